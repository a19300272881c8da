"""Make an organism from scratch: a fresh model, supervised on a recipe's conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from refork.policies.load import quiet
from refork.progress import Progress
from refork.types import Json
from refork_methods.train.sft import train
from refork_testbed.models.recipe import Made, Recipe, Shape
from refork_testbed.models.tokenizer import examples, make_tokenizer


def supervise(recipe: Recipe, folder: Path, progress: Progress) -> Made:
    """Train a new model and write it with its tokenizer; chance comes from torch's present generator."""
    stage = f"training {recipe.name}"
    progress(stage, 0, recipe.training.steps, waiting="demonstrations")
    tokenizer = make_tokenizer(recipe.words(), recipe.shape.context)
    data = examples(tokenizer, recipe.conversations())
    model = new_model(recipe.shape, tokenizer)
    log = train(model, data, recipe.training, lambda done, total, note: progress(stage, done, total))
    with quiet():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    facts: Json = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "vocabulary": len(tokenizer),
        "examples": len(data),
        "tokens": sum(len(item.tokens) for item in data),
        "learned": sum(int(item.mask.sum()) for item in data),
        "loss": sum(row["loss"] for row in log[-20:]) / len(log[-20:]),
    }
    return Made(log, facts)


def new_model(shape: Shape, tokenizer: Any) -> Any:
    """A Llama-type model with random weights from torch's present generator."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=shape.width,
            intermediate_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.heads,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            initializer_range=shape.spread,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
