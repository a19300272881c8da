"""Laws of tokens in float64, from the float32 logits of a model or a drafter, and draws from them.

The model's law and the drafter's go through the same filters in the same precision, so that what is compared
is what was sampled from. Every function is row-wise.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.distribution import TIE, restrict

_SUM = 1e-9
"""How far the sum of a law may be from 1: float64 stays far below, float32 and half precision do not."""

_BELOW = 1.0 - 2.0**-52
"""A uniform rounded up to 1 must not go beyond the last token."""

_AT_ONCE = 1 << 25
"""Numbers turned to float64 at a time, where only a sum over them is wanted."""


def law_scores(
    logits: Float[Tensor, "n vocabulary"], settings: Sampling, first: Bool[Tensor, "n"] | None = None
) -> Float[Tensor, "n vocabulary"]:
    """Float32 logits of the law that is sampled from: after bans, temperature, top-k and top-p.

    -inf is never drawn. At temperature 0 the law is all on the likeliest token (the lowest id of equals).
    ``first`` marks first free tokens.

    Raises:
        BadInput: no token is left in some row.
    """
    scores = restrict(logits.float(), settings, first)
    if settings.temperature != 0.0:
        return scores
    best = (scores == scores.amax(dim=-1, keepdim=True)).to(torch.uint8).argmax(dim=-1, keepdim=True)
    return torch.full_like(scores, -torch.inf).scatter_(1, best, 0.0)


def law_of(scores: Float[Tensor, "*n vocabulary"]) -> Float64[Tensor, "*n vocabulary"]:
    """Probabilities in float64 of scores that :func:`law_scores` gave."""
    return torch.softmax(scores, dim=-1, dtype=torch.float64)


def chance_of(scores: Float[Tensor, "n vocabulary"], tokens: Int64[Tensor, "n"]) -> Float64[Tensor, "n"]:
    """The probabilities of one token per row, without holding the whole law of all rows in float64."""
    step = max(_AT_ONCE // scores.shape[-1], 1)
    parts = [torch.logsumexp(scores[at : at + step].double(), dim=-1) for at in range(0, len(scores), step)]
    total = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else scores.new_zeros(0).double()
    return (scores.gather(1, tokens[:, None])[:, 0].double() - total).exp()


def pick(law: Float64[Tensor, "n vocabulary"], uniforms: Float64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """The tokens of :func:`draw_from`."""
    edges = law.cumsum(dim=-1)
    return (edges <= uniforms[:, None] * (edges[:, -1:] * _BELOW)).sum(dim=-1)


def draw_from(
    law: Float64[Tensor, "n vocabulary"], uniforms: Float64[Tensor, "n"]
) -> tuple[Int64[Tensor, "n"], Bool[Tensor, "n"]]:
    """Tokens by inverse CDF, none of probability 0; and where rounding might have chosen a neighbour.

    The law need not be normalised.
    """
    edges = law.cumsum(dim=-1)
    total = edges[:, -1:]
    target = uniforms[:, None] * (total * _BELOW)
    tokens = (edges <= target).sum(dim=-1, keepdim=True)
    high = edges.gather(1, tokens)
    low = high - law.gather(1, tokens)
    near = ((low > 0) & (target - low < TIE * total)) | ((high < total) & (high - target < TIE * total))
    return tokens[:, 0], near[:, 0]


def check_law(law: Float[Tensor, "*n vocabulary"], name: str) -> None:
    """Refuse what is no law in float64.

    Raises:
        BadInput: another precision, a negative number or NaN, or a row that does not sum to 1.
    """
    if law.dtype != torch.float64:
        raise BadInput(
            f"{name} is in {str(law.dtype).removeprefix('torch.')}",
            hint="acceptance is exact only where both laws are in one precision: float64",
        )
    if bool((law < 0).any()) or not bool((law.sum(dim=-1) - 1.0).abs().le(_SUM).all()):
        raise BadInput(f"{name} is no probability law", hint="rows must be 0 or more and sum to 1")
