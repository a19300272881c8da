"""The sampling distribution: from logits to one token per row, its log-probs, and how near it was to another.

Every function is row-wise and reduces over a fixed order of the vocabulary, so a row's result does
not depend on the rows beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.errors import BadInput, InternalError
from refork.sampling.settings import Sampling
from refork.types import IntArray

TIE = 1e-6
"""Nearer than this (in probability, or in nats for Gumbel and greedy) counts as a tie."""

_LANE = 64


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token per row, all [B].

    ``logprobs`` are under the distribution that was sampled from, ``logprobs_t1`` under temperature 1 with
    no filter, in nats; ``entropy`` in nats or None; ``ties`` says where rounding might decide.
    """

    tokens: Tensor
    logprobs: Tensor
    logprobs_t1: Tensor
    entropy: Tensor | None
    ties: Tensor


@final
class SoFar:
    """The tokens that one request's penalties read: those of its prompt, and how often each was said since.

    ``generated`` is how many of the last tokens of the prefix belong to the turn itself. Repetition
    penalties read both parts, the other two the turn alone, as in vLLM.
    """

    __slots__ = ("_place", "counts", "tokens", "used")

    def __init__(self, prefix: IntArray, generated: int = 0) -> None:
        cut = len(prefix) - generated
        known = np.unique(prefix).astype(np.int64)
        self.used = len(known)
        self.tokens: NDArray[np.int64] = known
        self.counts: NDArray[np.int64] = np.zeros(self.used, dtype=np.int64)
        self._place = {int(token): place for place, token in enumerate(known)}
        for token in prefix[cut:].tolist():
            self.take(int(token))

    def take(self, token: int) -> None:
        """One more token was said."""
        place = self._place.get(token)
        if place is None:
            place = self._place[token] = self.used
            if self.used == len(self.tokens):
                self.tokens = np.pad(self.tokens, (0, self.used + 64))
                self.counts = np.pad(self.counts, (0, self.used + 64))
            self.tokens[place], self.counts[place] = token, 0
            self.used += 1
        self.counts[place] += 1


@dataclass(frozen=True, slots=True)
class History:
    """What penalties read, for rows of logits: each (row, token) pair once, with how often it was said.

    ``rows``, ``tokens`` and ``counts`` are all [k]; a count of 0 is a token that only the prompt holds.
    """

    rows: Tensor
    tokens: Tensor
    counts: Tensor

    @classmethod
    def of(cls, rows: Sequence[SoFar | None], device: torch.device) -> History:
        """The history of rows, one after the other; None: a row that nobody draws."""
        none = np.zeros(0, dtype=np.int64)
        sizes = [0 if one is None else one.used for one in rows]
        parts = [
            np.repeat(np.arange(len(rows)), sizes),
            np.concatenate([none, *(one.tokens[: one.used] for one in rows if one is not None)]),
            np.concatenate([none, *(one.counts[: one.used] for one in rows if one is not None)]),
        ]
        return cls(*(torch.from_numpy(part).to(device) for part in parts))


def restrict(
    logits: Tensor,
    settings: Sampling,
    first: Tensor | None = None,
    allowed: Tensor | None = None,
    history: History | None = None,
) -> Tensor:
    """Logits [B, V] to draw from: ``allowed`` [B, V], bans, penalties, temperature, min-p, top-k, top-p.

    They act in this order. -inf is never drawn. ``first`` [B] marks rows at their first free token, where
    ``banned_first`` acts too. Temperature 0 leaves the scale alone (the caller takes the maximum). What ties
    with the k-th is kept. Penalties read ``history``, which must be given with them.

    Raises:
        BadInput: no token is left in some row.
    """
    scores = penalise(_ban(logits, settings, first, allowed), settings, history)
    if settings.temperature not in (0.0, 1.0):
        scores = scores / settings.temperature
    if settings.temperature == 0.0:
        return scores
    if settings.min_p:
        # In nats, so that no softmax is needed; in float64, so that the border does not move by a rounding.
        least = scores.amax(dim=1, keepdim=True).double() + math.log(settings.min_p)
        scores = scores.masked_fill(scores.double() < least, -torch.inf)
    if settings.top_k is not None and settings.top_k < scores.shape[1]:
        # A cut by value, not by rank: among equals a rank would hang on how the sort breaks ties.
        least = scores.topk(settings.top_k).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if settings.top_p is not None and settings.top_p < 1.0:
        scores = _nucleus(scores, settings.top_p)
    return scores


def penalise(scores: Tensor, settings: Sampling, history: History | None) -> Tensor:
    """Scores [B, V] after the repetition, frequency and presence penalties, in this order.

    Source: vLLM's apply_penalties, whose repetition penalty is that of arXiv 1909.05858 over prompt and
    output.
    """
    if not settings.penalised:
        return scores
    if history is None:
        # A caller that does not follow what is said would draw from another distribution without a word.
        raise InternalError("penalties were asked for where nobody follows which tokens were said")
    repetition, frequency, presence = settings.penalties
    found = scores[history.rows, history.tokens]
    if repetition != 1.0:
        # Dividing a negative logit would make its token likelier, and both kinds are to become rarer.
        found = torch.where(found > 0, found / repetition, found * repetition)
    if frequency:
        found = found - frequency * history.counts
    if presence:
        found = found - presence * (history.counts > 0)
    return scores.index_put((history.rows, history.tokens), found)


def _ban(logits: Tensor, settings: Sampling, first: Tensor | None, allowed: Tensor | None) -> Tensor:
    """Logits with banned tokens, and those that are not allowed, at -inf."""
    if not settings.banned and not settings.banned_first and allowed is None:
        return logits
    scores = logits.clone() if allowed is None else logits.masked_fill(~allowed, -torch.inf)
    if settings.banned:
        scores[:, list(settings.banned)] = -torch.inf
    if settings.banned_first and first is not None and bool(first.any()):
        columns = torch.tensor(settings.banned_first, device=scores.device)
        scores[first.nonzero(), columns] = -torch.inf
    if bool((scores.amax(dim=1) == -torch.inf).any()):
        raise BadInput(
            "every token is banned" if allowed is None else "every token that the grammar allows is banned",
            where="sampling",
            hint="leave at least one token free",
        )
    return scores


def _nucleus(scores: Tensor, top_p: float) -> Tensor:
    """Scores outside the smallest set of tokens with probability ``top_p`` at -inf.

    Source: arXiv 1904.09751.
    """
    # Stable: equals stay in the order of their ids, on every machine.
    ordered, index = scores.sort(descending=True, stable=True)
    shares = torch.softmax(ordered, dim=1, dtype=torch.float64)
    # The sum before a token decides, so the token that reaches top_p is still kept.
    drop = shares.cumsum(dim=1) - shares >= top_p
    # With a tiny top_p nothing would be left.
    drop[:, 0] = False
    return scores.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), -torch.inf)


def _without(scores: Tensor, tokens: Tensor, greedy: bool) -> Tensor:
    """Scores [B, V] with one token of each row at -inf; ``tokens`` [B] are ids, or -1 for none."""
    rows = (tokens >= 0).nonzero()[:, 0]
    if not len(rows):
        return scores
    taken = scores.clone()
    taken[rows, tokens[rows]] = -torch.inf
    # A greedy distribution is all on its maximum: without it nothing is left.
    left = taken[rows].amax(dim=1) == (scores[rows].amax(dim=1) if greedy else -torch.inf)
    if bool((~left if greedy else left).any()):
        raise BadInput(
            "no token is left: the distribution's only one was excluded",
            where="sampling",
            hint="a wider top-k or top-p, or a temperature above 0",
        )
    return taken


@dataclass(frozen=True, slots=True)
class _Mass:
    """Unnormalised probabilities: ``lanes`` [B, V / 64, 64], sums over blocks in float64, logs in nats."""

    lanes: Tensor
    blocks: Tensor
    total: Tensor
    log_total: Tensor
    peak: Tensor


def _mass(scores: Tensor) -> _Mass:
    """Exponentials below the row maximum, padded so that every row is summed in the same order."""
    rows, size = scores.shape
    # Whole lanes and whole groups of eight rows: how the sums below are split must not depend on the batch.
    width = -(-size // _LANE) * _LANE
    tall = -(-rows // 8) * 8
    peak = scores.amax(dim=1, keepdim=True)
    lanes = scores.new_empty((tall, width))
    lanes[:, size:] = -torch.inf
    # Padding rows are never read; a finite value keeps NaN out of them.
    lanes[rows:] = 0.0
    torch.sub(scores, peak, out=lanes[:rows, :size])
    lanes = lanes.exp_().view(tall, width // _LANE, _LANE)
    # 64 float32 terms lose little; a running float32 sum over a whole vocabulary would lose the tail.
    blocks = lanes.sum(dim=2).double().cumsum(dim=1)
    total = blocks[:, -1]
    log_total = total.log()
    return _Mass(lanes[:rows], blocks[:rows], total[:rows], log_total[:rows], peak[:, 0].double())


def _invert(mass: _Mass, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [B] whose slice of the cumulative distribution holds the uniform, and ties [B].

    Tokens lie in the order of their ids. Two arms with one uniform draw tokens from the same part of
    the distribution (inverse-CDF coupling).
    """
    # A uniform near 1 may round up to the whole mass, behind which there is no token.
    below = torch.nextafter(mass.total, torch.zeros_like(mass.total))
    target = torch.minimum(uniforms * mass.total, below)[:, None]
    # Two steps, the block and then the lane in it: a cumulative sum over all of V for each row costs more.
    block = (mass.blocks <= target).sum(dim=1, keepdim=True)
    base = torch.where(block > 0, mass.blocks.gather(1, (block - 1).clamp(min=0)), 0.0)
    lane = mass.lanes.gather(1, block[:, :, None].expand(*block.shape, _LANE))[:, 0].double()
    edges = base + lane.cumsum(dim=1)
    inside = (edges <= target).sum(dim=1, keepdim=True)
    # A block's sum in float32 and in float64 differ a little: never leave its last possible token.
    last = torch.where(lane > 0, torch.arange(_LANE, device=lane.device), 0).amax(1, keepdim=True)
    inside = torch.minimum(inside, last)
    high = edges.gather(1, inside)
    low = high - lane.gather(1, inside)
    # The two outer ends of the distribution have no neighbour to tie with.
    near_low = (low > 0) & (target - low < TIE * mass.total[:, None])
    near_high = (high < below[:, None]) & (high - target < TIE * mass.total[:, None])
    return (block * _LANE + inside)[:, 0], (near_low | near_high)[:, 0]


def _largest(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Index of the largest key [B] (the lowest of equals), and whether the second is within a tie."""
    top = keys.topk(min(2, keys.shape[1])).values
    # topk promises no order among equals, so the lowest id with the largest key is looked for.
    tokens = (keys == top[:, :1]).to(torch.uint8).argmax(dim=1)
    near = top[:, :1] - top[:, 1:] < TIE  # of a vocabulary of one, nothing
    return tokens, near.any(dim=1)


def log_probs_of(mass: _Mass, scores: Tensor, tokens: Tensor) -> Tensor:
    """Log-probs [B] in nats (float64) of tokens [B] under the distribution of ``scores`` [B, V]."""
    chosen = scores.gather(1, tokens[:, None])[:, 0].double()
    return chosen - mass.peak - mass.log_total


def entropy_lower_bound(mass: _Mass, scores: Tensor, top_k: int) -> Tensor:
    """Entropy [B] in nats over the ``top_k`` likeliest tokens, not renormalised: a lower bound."""
    best = scores.topk(min(top_k, scores.shape[1])).values.double()
    # 0 log 0 is 0, and -inf times 0 would be NaN.
    logs = best - mass.peak[:, None] - mass.log_total[:, None]
    return -torch.where(logs > -torch.inf, logs.exp() * logs, 0.0).sum(dim=1)


def draw(
    logits: Tensor,
    settings: Sampling,
    noise: Tensor,
    *,
    first: Tensor | None = None,
    forced: Tensor | None = None,
    without: Tensor | None = None,
    allowed: Tensor | None = None,
    history: History | None = None,
) -> Drawn:
    """One token per row of ``logits`` [B, V].

    ``noise`` is float64: uniforms [B] for the inverse coupling, standard Gumbels [B, V] for the Gumbel
    coupling, unused when greedy. ``forced`` [B] holds token ids, or -1 where the distribution decides;
    ``without`` [B] the token that a row's distribution is conditioned not to give, once filtered, or -1;
    ``first`` [B] marks first free tokens; ``allowed`` [B, V] says what may be drawn at all; ``history`` is
    what penalties read. A forced token outside the distribution has log-prob -inf.

    Raises:
        BadInput: no token is left in some row.
    """
    logits = logits.float()
    scores = restrict(logits, settings, first, allowed, history)
    if without is not None:
        scores = _without(scores, without, settings.temperature == 0.0)
    # Where nothing filters, both distributions are one object and one pass over V is saved.
    plain = _mass(logits)
    mass = plain if scores is logits else _mass(scores)
    if settings.temperature == 0.0:
        tokens, ties = _largest(scores)
    elif settings.coupling == "gumbel":
        logs = scores.double() - mass.peak[:, None] - mass.log_total[:, None]
        tokens, ties = _largest(logs + noise)
    else:
        tokens, ties = _invert(mass, noise)
    law_choice = tokens
    if forced is not None:
        # A forced token was not drawn, so no rounding could have changed it.
        ties = ties & (forced < 0)
        tokens = torch.where(forced >= 0, forced, tokens)
    logprobs_t1 = log_probs_of(plain, logits, tokens)
    if settings.temperature == 0.0:
        # All of a greedy distribution lies on its maximum, so any other forced token is outside it.
        logprobs = torch.where(tokens == law_choice, 0.0, -torch.inf)
    else:
        logprobs = logprobs_t1 if mass is plain else log_probs_of(mass, scores, tokens)
    wanted = settings.entropy_top_k
    entropy = None if wanted is None else entropy_lower_bound(plain, logits, wanted).float()
    return Drawn(tokens, logprobs.float(), logprobs_t1.float(), entropy, ties)


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probs [B] in nats (float32) of tokens [B] under logits [B, V], temperature 1."""
    logits = logits.float()
    return log_probs_of(_mass(logits), logits, tokens).float()


def likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of each row of logits [B, V] and their log-probs in nats, temperature 1.

    Both are [B, count], the likeliest first.
    """
    logits = logits.float()
    mass = _mass(logits)
    best = logits.topk(min(count, logits.shape[1]))
    logs = best.values.double() - mass.peak[:, None] - mass.log_total[:, None]
    return best.indices, logs.float()
