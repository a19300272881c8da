"""Make a larger organism in minutes: train few layers, insert blocks that change nothing yet, train on.

Products of the training run in bfloat16, weights and optimiser stay in float32.
Source: inserting blocks that begin as the identity is that of arXiv 2401.02415; here all weights train on.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from refork.errors import BadInput
from refork.policies.load import quiet
from refork.progress import Progress
from refork.types import Json
from refork_methods.train.sft import Example, pad_right, train
from refork_testbed.models.recipe import Grown, HeldOut, Made
from refork_testbed.models.supervised import new_model
from refork_testbed.models.tokenizer import examples, make_tokenizer

_ROWS = 16


def grow_up(recipe: Grown, folder: Path, progress: Progress) -> Made:
    """Train a new model stage by stage and write it with its tokenizer; chance is torch's present generator.

    The log has one row per step, with its stage's ``layers``; the facts tell the loss on held-out texts
    beside that of the distribution that made them.
    """
    stage_name = f"training {recipe.name}"
    total = sum(stage.training.steps for stage in recipe.stages)
    progress(stage_name, 0, total, waiting="demonstrations")
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    data = examples(tokenizer, recipe.conversations())
    model = new_model(replace(recipe.shape, layers=recipe.stages[0].layers), tokenizer)
    log: list[Json] = []
    for stage in recipe.stages:
        model, before = deepened(model, stage.layers), len(log)
        told = partial(_step, progress, stage_name, before, total)
        # A cached copy of a weight in bfloat16 would outlive the step that changes the weight.
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            rows = train(model, data, stage.training, told)
        log += [row | {"step": before + row["step"], "layers": stage.layers} for row in rows]
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    facts: Json = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "examples": len(data),
        "tokens": sum(row["tokens"] for row in log),
        "held_out": held_out_loss(model, tokenizer, recipe.held_out()),
    }
    return Made(log, facts)


def _step(progress: Progress, stage: str, before: int, total: int, done: int, _: int, note: str) -> None:
    progress(stage, before + done, total)


def deepened(model: Any, layers: int) -> Any:
    """A Llama-type model of so many layers that computes what this one does; weights are copied.

    Behind every block come as many copies of it as are missing, whose two output projections are zero, so
    that they add nothing until they have learned.

    Raises:
        BadInput: ``layers`` is no multiple of what the model has.
    """
    has = model.config.num_hidden_layers
    if layers == has:
        return model
    if layers % has:
        raise BadInput(f"{has} layers cannot grow evenly to {layers}", where="stages")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = [kind for kind in config.layer_types for _ in range(layers // has)]
    grown = type(model)(config)
    grown.model.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    grown.model.norm.load_state_dict(model.model.norm.state_dict())
    for number, block in enumerate(grown.model.layers):
        source, copied = divmod(number, layers // has)
        block.load_state_dict(model.model.layers[source].state_dict())
        if copied:
            torch.nn.init.zeros_(block.self_attn.o_proj.weight)
            torch.nn.init.zeros_(block.mlp.down_proj.weight)
    return grown


def held_out_loss(model: Any, tokenizer: Any, held: HeldOut) -> Json:
    """Mean loss in nats per learned token, float32, beside the distribution's own on the same tokens."""
    data = examples(tokenizer, held.conversations)
    nats, count = _nats(model, data), sum(int(item.mask.sum()) for item in data)
    return {
        "texts": len(data),
        "tokens": count,
        "loss": round(nats / count, 4),
        "law": round(held.surprise / count, 4),
    }


def _nats(model: Any, data: Sequence[Example]) -> float:
    """Summed loss over the learned tokens of some examples."""
    nats = 0.0
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(data), _ROWS):
            tokens, mask = pad_right(data[start : start + _ROWS])
            logits = model(input_ids=tokens, use_cache=False).logits[:, :-1][mask[:, 1:]]
            chosen = tokens[:, 1:][mask[:, 1:]]
            nats += float(torch.nn.functional.cross_entropy(logits, chosen, reduction="sum"))
    return nats
