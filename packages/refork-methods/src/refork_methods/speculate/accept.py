"""Which drafted tokens are kept, and what follows them: two exact rules over distributions in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from numpy.typing import NDArray
from torch import Tensor

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling.distribution import TIE, restrict
from refork.sampling.noise import NoiseKey, gumbels, stream_of, uniforms

# Distributions of tokens in float64, from the float32 logits of a model or a drafter, and draws from them.
#
# The model's sampling and the drafter's go through the same filters in the same precision, so that what is
# compared is what was sampled from. Every function is row-wise.

_BELOW = 1.0 - 2.0**-52
"""A uniform rounded up to 1 must not go beyond the last token."""

_AT_ONCE = 1 << 25
"""Numbers turned to float64 at a time, where only a sum over them is wanted."""


def distribution_scores(
    logits: Float[Tensor, "n vocabulary"], settings: Sampling, first: Bool[Tensor, "n"] | None = None
) -> Float[Tensor, "n vocabulary"]:
    """Float32 logits of the sampling that is sampled from: after bans, temperature, top-k and top-p.

    -inf is never drawn. At temperature 0 the sampling is all on the likeliest token (the lowest id of
    equals).
    ``first`` marks first free tokens.

    Raises:
        BadInput: no token is left in some row.
    """
    scores = restrict(logits.float(), settings, first)
    if settings.temperature != 0.0:
        return scores
    best = (scores == scores.amax(dim=-1, keepdim=True)).to(torch.uint8).argmax(dim=-1, keepdim=True)
    return torch.full_like(scores, -torch.inf).scatter_(1, best, 0.0)


def distribution_of(scores: Float[Tensor, "*n vocabulary"]) -> Float64[Tensor, "*n vocabulary"]:
    """Probabilities in float64 of scores that :func:`law_scores` gave."""
    return torch.softmax(scores, dim=-1, dtype=torch.float64)


def chance_of(scores: Float[Tensor, "n vocabulary"], tokens: Int64[Tensor, "n"]) -> Float64[Tensor, "n"]:
    """The probabilities of one token per row, without holding the whole sampling of all rows in float64."""
    step = max(_AT_ONCE // scores.shape[-1], 1)
    parts = [torch.logsumexp(scores[at : at + step].double(), dim=-1) for at in range(0, len(scores), step)]
    total = parts[0] if len(parts) == 1 else torch.cat(parts) if parts else scores.new_zeros(0).double()
    return (scores.gather(1, tokens[:, None])[:, 0].double() - total).exp()


def pick(sampling: Float64[Tensor, "n vocabulary"], uniforms: Float64[Tensor, "n"]) -> Int64[Tensor, "n"]:
    """The tokens of :func:`draw_from`."""
    edges = sampling.cumsum(dim=-1)
    return (edges <= uniforms[:, None] * (edges[:, -1:] * _BELOW)).sum(dim=-1)


def draw_from(
    sampling: Float64[Tensor, "n vocabulary"], uniforms: Float64[Tensor, "n"]
) -> tuple[Int64[Tensor, "n"], Bool[Tensor, "n"]]:
    """Tokens by inverse CDF, none of probability 0; and where rounding might have chosen a neighbour.

    The sampling need not be normalised.
    """
    edges = sampling.cumsum(dim=-1)
    total = edges[:, -1:]
    target = uniforms[:, None] * (total * _BELOW)
    # `<=`: the edge of a token of probability 0 is that of the token before it, so it is passed over.
    tokens = (edges <= target).sum(dim=-1, keepdim=True)
    high = edges.gather(1, tokens)
    low = high - sampling.gather(1, tokens)
    # Nothing lies below the first edge or above the last, so there is no neighbour to be mistaken for.
    near = ((low > 0) & (target - low < TIE * total)) | ((high < total) & (high - target < TIE * total))
    return tokens[:, 0], near[:, 0]


# The random numbers of a round: those of plain decoding for the coupled rule, else streams of their own.
#
# Numbers of the rejection rule are addressed by where the round begins and the place in it, never by a
# token's place alone: what a discarded draft was drawn with is not used again, so no earlier confidence can
# know of it.

Ints = NDArray[np.int64]

_AHEAD = 64
"""Uniforms of plain decoding are made for this many tokens at a time."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class RoundChances:
    """Uniforms of a rejection round: ``draft`` and ``accept`` [rows, g], ``residual`` [rows]."""

    draft: Float64[np.ndarray, "rows g"]
    accept: Float64[np.ndarray, "rows g"]
    residual: Float64[np.ndarray, "rows"]

    def some(self, part: Ints) -> RoundChances:
        """Those of some rows."""
        return RoundChances(self.draft[part], self.accept[part], self.residual[part])


def round_chances(noise: Sequence[NoiseKey], generated: Int[np.ndarray, "rows"], g: int) -> RoundChances:
    """The numbers of the rounds that begin after ``generated`` tokens; a pure function of the address."""
    own = [replace(key, stream=_stream(key.stream)) for key in noise]
    # No two rounds of an answer begin at one token, so the numbers of each are used by no other.
    lanes = 2 * g + 1
    found = uniforms(own, lanes, np.asarray(generated, dtype=np.int64) * lanes)
    return RoundChances(found[:, :g], found[:, g : 2 * g], found[:, 2 * g])


_streams: dict[int, int] = {}


def _stream(stream: int) -> int:
    """The stream of drafts, acceptances and residuals that belongs to a stream of plain decoding."""
    found = _streams.get(stream)
    if found is None:
        if len(_streams) > 1 << 16:
            _streams.clear()
        found = _streams[stream] = stream_of("speculate", stream)
    return found


@final
class PlainChances:
    """What plain decoding draws the next tokens with, held ahead by request id."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Float64[np.ndarray, "n"]]] = {}

    def forget(self, request_ids: Ints) -> None:
        """Drop what was made for branches that ended."""
        for request_id in request_ids:
            self._held.pop(int(request_id), None)

    def uniforms(
        self, request_ids: Ints, noise: Sequence[NoiseKey], generated: Ints, count: int
    ) -> Float64[np.ndarray, "rows count"]:
        """Uniforms of the tokens at offsets ``generated .. generated + count - 1`` of each branch."""
        out = np.empty((len(request_ids), count), dtype=np.float64)
        missing = []
        for row, (request_id, begin) in enumerate(zip(request_ids.tolist(), generated.tolist(), strict=True)):
            held = self._held.get(request_id)
            at = -1 if held is None else begin - held[0]
            if held is None or at < 0 or at + count > len(held[1]):
                missing.append(row)
            else:
                out[row] = held[1][at : at + count]
        if missing:
            length = max(_AHEAD, 2 * count)
            made = uniforms([noise[row] for row in missing], length, generated[missing])
            for row, values in zip(missing, made, strict=True):
                self._held[int(request_ids[row])] = (int(generated[row]), values)
                out[row] = values[:count]
        return out


def plain_gumbels(noise: Sequence[NoiseKey], generated: Ints, count: int, size: int) -> NDArray[np.float64]:
    """Gumbel noise [rows, count, size] of the tokens at offsets ``generated .. generated + count - 1``."""
    keys = [key for key in noise for _ in range(count)]
    offsets = (generated[:, None] + np.arange(count)).reshape(-1)
    return gumbels(keys, offsets, size).reshape(len(noise), count, size)


# Which drafted tokens are kept, and what is said after them: two exact rules, as pure functions.
#
# ``rejection`` keeps a draft with probability min(1, p/q) and else draws from what p has more than q: of
# all exact rules that see one draft at a time it keeps most. ``coupled`` draws the model's own token with
# the noise that plain decoding uses, and keeps the draft while it is the same token: what is said is then,
# token for token, what plain decoding says, whatever drafter, schedule or batch. At temperature 0 the two
# are one.
#
# Source: arXiv 2607.05147, section 2 (rejection); the coupled rule is ours, in the sense of arXiv 2408.07978
# (drafter-invariant coupling), by addressed noise.


def residual(
    p: Float64[Tensor, "*n vocabulary"], q: Float64[Tensor, "*n vocabulary"]
) -> Float64[Tensor, "*n vocabulary"]:
    """The distribution after a rejection: max(p - q, 0), normalised; where q covers p it is p."""
    more = (p - q).clamp(min=0.0)
    total = more.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, more / total, p)


def keep_chance(p_token: Float64[Tensor, "*n"], q_token: Float64[Tensor, "*n"]) -> Float64[Tensor, "*n"]:
    """Probability min(1, p/q) of keeping a drafted token, from its probabilities under both distributions.

    Raises:
        BadInput: a drafted token has probability 0 under q: q is not what it was drawn from.
    """
    if not bool((q_token > 0).all()):
        raise BadInput(
            "a drafted token has probability 0 under the draft distribution",
            hint="q must be what drafts were sampled from, after temperature, top-k and top-p",
        )
    return (p_token / q_token).clamp(max=1.0)


def leading(accepted: Bool[Tensor, "rows g"]) -> Int64[Tensor, "rows"]:
    """How many are kept before the first that is not."""
    return accepted.to(torch.int64).cumprod(dim=-1).sum(dim=-1)


def within(lengths: Int64[Tensor, "rows"], g: int) -> Bool[Tensor, "rows g"]:
    """Which of g drafts are verified."""
    return torch.arange(g, device=lengths.device) < lengths[:, None]


def decided(
    accepted: Int64[Tensor, "rows"],
    u_accept: Float64[Tensor, "rows g"],
    chance: Float64[Tensor, "rows g"],
    near: Bool[Tensor, "rows"],
) -> Bool[Tensor, "rows g1"]:
    """Ties of a round: of each acceptance, and for the last token of its refusal or of its draw."""
    close = (u_accept - chance).abs() < TIE
    close = torch.cat([close, torch.zeros_like(near)[:, None]], dim=1)
    last = torch.arange(close.shape[1], device=close.device) == accepted[:, None]
    return torch.where(last, close | near[:, None], close)


def couple(
    own: Int64[Tensor, "rows g1"], drafted: Int64[Tensor, "rows g"], lengths: Int64[Tensor, "rows"]
) -> tuple[Int64[Tensor, "rows"], Int64[Tensor, "rows"]]:
    """How many drafts are the model's own tokens, from the left, and its own token after them."""
    accepted = leading((own[:, :-1] == drafted) & within(lengths, drafted.shape[1]))
    return accepted, own.gather(1, accepted[:, None])[:, 0]
