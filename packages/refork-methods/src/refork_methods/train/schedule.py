"""Learning rates over a run, and the optimizer that takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch

from refork.errors import BadInput

Shape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How the rate moves: linear warm-up over ``warmup`` steps, then ``shape`` towards ``final`` x ``peak``.

    As is usual, that rate is the one that would follow the last step: no step is taken at a rate of 0.
    """

    peak: float = 5e-4
    shape: Shape = "constant"
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        if not self.peak > 0 or not math.isfinite(self.peak):
            raise BadInput(f"the learning rate is {self.peak!r}; it must be above 0", where="schedule")
        if self.shape not in ("constant", "linear", "cosine"):
            raise BadInput(f"unknown schedule {self.shape!r}", hint="known: constant, linear, cosine")
        if self.warmup < 0 or not 0 <= self.final <= 1:
            raise BadInput("warmup must be 0 or more and final in [0, 1]", where="schedule")

    def rate(self, step: int, total: int) -> float:
        """The rate of a step (0-based) of ``total``: a pure function, so nothing of it needs saving."""
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        if self.shape == "constant":
            return self.peak
        share = min(1.0, (step - self.warmup) / max(1, total - self.warmup))
        fall = 1 - share if self.shape == "linear" else 0.5 * (1 + math.cos(math.pi * share))
        return self.peak * (self.final + (1 - self.final) * fall)


def adamw(
    model: Any, schedule: Schedule, *, weight_decay: float = 0.0, betas: tuple[float, float] = (0.9, 0.999)
) -> torch.optim.AdamW:
    """AdamW over the parameters that are trained (with an adapter: the adapter's only).

    Raises BadInput where nothing is.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise BadInput("this model has no parameter to train", hint="add an adapter, or unfreeze the model")
    return torch.optim.AdamW(trained, lr=schedule.peak, weight_decay=weight_decay, betas=betas)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use a rate from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
