"""LoRA adapters through PEFT: train few weights, leave the model's own as they are."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from pydantic import Field

from refork.errors import BadInput
from refork.runs.recipe import RecipePart


class LoraSettings(RecipePart):
    """A LoRA adapter."""

    #: Rank of the adapter.
    rank: int = Field(default=8, ge=1)
    #: Its scale is alpha / rank.
    alpha: float = Field(default=16.0, gt=0)
    #: Layers that get one.
    targets: tuple[str, ...] | str = "all-linear"
    #: Of its first weights.
    seed: int = 0


def add_lora(model: Any, settings: LoraSettings) -> Any:
    """The model with a fresh adapter, which alone is trained; at first it changes nothing.

    The adapter's initial weights are a function of ``settings.seed``, so a resumed run begins alike.

    Raises:
        BadInput: the model has an adapter already, or no layer of these names.

    Source: LoRA (arXiv 2106.09685).
    """
    from peft import LoraConfig, PeftModel, get_peft_model

    if isinstance(model, PeftModel):
        raise BadInput("this model has an adapter already", hint="merge it first, or train it as it is")
    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    config = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, target_modules=targets, task_type="CAUSAL_LM",
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # PEFT asks transformers for a property under its old name.
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing`", category=FutureWarning)
        torch.manual_seed(settings.seed)
        try:
            return get_peft_model(model, config)
        except ValueError as error:
            raise BadInput(f"no adapter can be added: {error}", where="lora") from error


def merged(model: Any) -> Any:
    """The model with its adapter added into its own weights; a model without one as it is."""
    from peft import PeftModel

    return model.merge_and_unload() if isinstance(model, PeftModel) else model
