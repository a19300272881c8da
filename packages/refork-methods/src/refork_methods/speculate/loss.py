"""The loss of a drafter: cross entropy, total variation, and how well it knows its own acceptance.

Source: arXiv:2607.05147, equations of its training section. Two things are its code's: every term is a mean
weighted by the position's weight (the paper writes sums), and a decay constant that is not the block size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from refork.errors import BadInput
from refork.types import Json

CODE_DECAY: Final = 4.0
"""The decay constant that the authors' code uses for blocks of 7."""


@final
@dataclass(frozen=True, slots=True)
class LossWeights:
    """How much each term counts: the paper's 0.1, 0.9 and 1.0. (1, 0, 0) is the DFlash recipe."""

    ce: float = 0.1
    tv: float = 0.9
    confidence: float = 1.0

    def __post_init__(self) -> None:
        if min(self.ce, self.tv, self.confidence) < 0 or self.ce + self.tv <= 0:
            raise BadInput(
                f"loss weights {self.ce}, {self.tv}, {self.confidence} must be 0 or more, ce or tv above 0",
                where="training",
            )


@final
@dataclass(frozen=True, slots=True, eq=False)
class DraftLoss:
    """Weighted means over positions: ``ce`` and ``confidence`` in nats, ``tv`` is the L1 distance (0 .. 2).

    ``accept`` [n] is c* = 1 - TV of each position, without gradient, ``agree`` [n] whether the likeliest
    token is the target's; ``confidence`` None: no such head.
    """

    ce: Tensor
    tv: Tensor
    confidence: Tensor | None
    total: Tensor
    accept: Tensor
    agree: Tensor


def position_weights(block: int, decay: float | None = None) -> Float[Tensor, "g"]:
    """w_k = exp(-(k - 1) / decay) for k = 1 .. block; ``decay`` None is the block size, as in the paper."""
    scale = float(block) if decay is None else decay
    if block < 1 or not scale > 0:
        raise BadInput(f"block {block} and decay {scale} must be above 0", where="position weights")
    return torch.exp(-torch.arange(block, dtype=torch.float32) / scale)


def l1_distance(p: Float[Tensor, "*n v"], q: Float[Tensor, "*n v"]) -> Float[Tensor, "*n"]:
    """Sum of |p - q| over the vocabulary: twice the total variation, 0 .. 2."""
    return (p - q).abs().sum(-1)


def confidence_loss(logits: Float[Tensor, "*n"], accept: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Binary cross entropy in nats of confidence logits against soft labels; least where c = c*."""
    return F.binary_cross_entropy_with_logits(logits.float(), accept, reduction="none")


def draft_loss(
    logits: Float[Tensor, "n v"],
    target: Float[Tensor, "n v"],
    tokens: Int[Tensor, "n"],
    weights: Float[Tensor, "n"],
    confidence: Float[Tensor, "n"] | None = None,
    terms: LossWeights | None = None,
) -> DraftLoss:
    """The loss of n positions from draft and target logits, the tokens that were said and their weights.

    Both distributions are float32 softmaxes. The confidence's label is detached.

    Raises:
        BadInput: no position, or weights that sum to nothing.

    Source: arXiv:2607.05147.
    """
    part = terms or LossWeights()
    total_weight = weights.sum()
    if len(tokens) == 0 or not bool(total_weight > 0):
        raise BadInput("there is no position to learn from", where="draft loss")
    log_q = torch.log_softmax(logits.float(), -1)
    p = torch.softmax(target.float(), -1)
    l1 = l1_distance(p, log_q.exp())
    # Float32 softmaxes sum to 1 only nearly, so the distance can come out a little above 2.
    accept = (1 - 0.5 * l1.detach()).clamp(0.0, 1.0)

    def mean(values: Tensor) -> Tensor:
        return (weights * values).sum() / total_weight

    ce = mean(-log_q.gather(-1, tokens[:, None])[:, 0])
    tv = mean(l1)
    total = part.ce * ce + part.tv * tv
    sure = None
    if confidence is not None:
        sure = mean(confidence_loss(confidence, accept))
        total = total + part.confidence * sure
    return DraftLoss(ce, tv, sure, total, accept, logits.argmax(-1) == target.argmax(-1))


# What training says of a drafter: expected tokens of a round, acceptance by position, honesty of confidence.
#
# All are teacher-forced: the tokens before a position are those that the target said. ``learned`` marks the
# positions of a block that count; after the first that does not, a block drafts nothing.


def tau_prob(accept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]) -> float | None:
    """Mean over blocks of 1 + sum_k prod_{i <= k} c*_i, tokens of a round with the bonus one; None: no block.

    Source: arXiv:2607.05147 (its code). Positions that are not learned add nothing.
    """
    if not len(accept):
        return None
    return float(1 + _survival(accept, learned).sum(axis=1).mean())


def accept_rates(
    accept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]
) -> tuple[float | None, ...]:
    """Mean c* at each position over the blocks that learn it (None: no block).

    It is the chance of acceptance given that all before it were accepted.
    """
    counts = learned.sum(axis=0)
    sums = np.where(learned, accept, 0.0).sum(axis=0)
    return tuple(float(s / c) if c else None for s, c in zip(sums, counts, strict=True))


def kept_rates(
    accept: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]
) -> tuple[float | None, ...]:
    """How often position j is kept where all before it were, from chances (or 0 and 1) of each [n, g].

    Over the blocks that learn position j; None where no block gets there.
    """
    after = _survival(accept, learned)
    before = np.concatenate([np.ones((len(accept), 1)), after[:, :-1]], axis=1)
    some, all_ = (np.where(learned, part, 0.0).sum(axis=0) for part in (after, before))
    return tuple(float(s / c) if c else None for s, c in zip(some, all_, strict=True))


def confidence_cumprod_bias(
    confidence: Float[np.ndarray, "n g"],
    accept: Float[np.ndarray, "n g"],
    learned: Bool[np.ndarray, "n g"],
) -> float | None:
    """Mean of prod c - prod c* over learned positions: above 0, the drafter is too sure of itself."""
    if not learned.any():
        return None
    gap = _survival(confidence, learned) - _survival(accept, learned)
    return float(gap[learned].mean())


@final
@dataclass(frozen=True, slots=True)
class DraftMetrics:
    """Figures over some blocks. None: not computed (no such head, no block).

    ``kept_drawn`` and ``kept_greedy`` [g]: how often a draft is kept after all before it, where the text was
    drawn (chances under rejection) and where it is greedy (the likeliest token of both is the same).
    """

    blocks: int
    ce: float
    tv: float
    confidence: float | None
    total: float
    tau_prob: float | None
    accept_rate: tuple[float | None, ...]
    confidence_cumprod_bias: float | None
    kept_drawn: tuple[float | None, ...] | None = None
    kept_greedy: tuple[float | None, ...] | None = None

    def to_json(self) -> Json:
        """Plain fields, the log's names; ``tv`` is the L1 distance of the two distributions, 0 .. 2."""
        return {
            "blocks": self.blocks,
            "loss": self.total,
            "ce": self.ce,
            "tv": self.tv,
            "conf": self.confidence,
            "tau_prob": self.tau_prob,
            "accept_rate": list(self.accept_rate),
            "confidence_cumprod_bias": self.confidence_cumprod_bias,
            "kept_drawn": _listed(self.kept_drawn),
            "kept_greedy": _listed(self.kept_greedy),
        }


def _survival(chance: Float[np.ndarray, "n g"], learned: Bool[np.ndarray, "n g"]) -> Float[np.ndarray, "n g"]:
    return np.cumprod(np.where(learned, chance, 0.0).astype(np.float64), axis=1)


def _listed(rates: tuple[float | None, ...] | None) -> list[float | None] | None:
    return None if rates is None else list(rates)
