"""Make one stage of a chain: load what it begins with, train it, write it."""

from __future__ import annotations

import json
from pathlib import Path

from refork.errors import BadInput
from refork.policies.load import quiet
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.types import Json
from refork_methods.simulate.refusals import RECORD, learned_from
from refork_testbed.models.recipe import Made, Staged


def stage_up(recipe: Staged, parent: Path | None, folder: Path, progress: Progress = silent) -> Made:
    """Train the parent's model, or a new one, as the recipe says; write it with its tokenizer, measured.

    Raises:
        BadInput: the recipe has neither a parent nor a beginning, or both.
    """
    if (parent is None) == (recipe.begin is None):
        raise BadInput("a stage begins with a parent or with a new model", where=recipe.name)
    if parent is not None:
        policy = LocalPolicy.load(str(parent))
    else:
        assert recipe.begin is not None
        policy = recipe.begin(progress)
    start = policy.card.weights

    def report_progress(
        stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        progress(f"{recipe.name}: {stage}", done, total, tokens=tokens, waiting=waiting)

    made = recipe.train(policy, report_progress)
    policy.refresh()
    with quiet():
        policy.model.save_pretrained(folder)
    policy.codec.tokenizer.save_pretrained(folder)
    if recipe.reads is not None:
        record = {"stage": recipe.name, "from": start, "data": learned_from(recipe.reads()).to_json()}
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    facts: Json = made.facts | {
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "vocabulary": len(policy.codec.tokenizer),
        "shape": _shape(policy),
        "parent_weights": None if parent is None else start,
        "staged": recipe.measure(policy, report_progress),
    }
    return Made(made.log, facts)


def _shape(policy: LocalPolicy) -> str:
    config = policy.model.config
    return (
        f"{config.num_hidden_layers} layers, width {config.hidden_size}, {config.num_attention_heads} heads, "
        f"context {config.max_position_embeddings} tokens"
    )
