"""The loss of a drafter: cross entropy, total variation, and how well it knows its own acceptance.

Source: arXiv:2607.05147, equations of its training section. Two things are its code's: every term is a mean
weighted by the position's weight (the paper writes sums), and a decay constant that is not the block size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from refork.errors import BadInput

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


def acceptance(p: Float[Tensor, "*n v"], q: Float[Tensor, "*n v"]) -> Float[Tensor, "*n"]:
    """The chance that a token drawn from q is accepted under p: sum of min(p, q) = 1 - TV."""
    return torch.minimum(p, q).sum(-1)


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

    Both laws are float32 softmaxes. The confidence's label is detached.

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
