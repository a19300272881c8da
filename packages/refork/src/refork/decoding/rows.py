"""The running rows of a live decoder: which request is where, passes over them, and what they generate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from refork.decoding.batch import Batch
from refork.decoding.draw import DrawnTokens, Groups, RunningRequest, groups
from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import align
from refork.decoding.prefill import Ints
from refork.decoding.prompts import Prompts
from refork.decoding.record import Noises
from refork.decoding.speculator import Settled
from refork.errors import InternalError
from refork.sampling import distribution
from refork.types import FloatArray, IntArray

_LEAST = 64
"""Positions of a store that are never given back while somebody runs."""


@final
class LiveRows:
    """Row i runs ``branches[i]``; ``newest`` [n] is its last token, which the next pass feeds.

    ``groups`` are the rows by law, ``where`` the rows of living request_ids. ``layers`` (numbered) of hidden
    states are kept of every token that is fed. ``left`` collects request ids that a speculator should forget.
    """

    def __init__(self, decoder: BranchDecoder, prompts: Prompts, layers: tuple[int, ...]) -> None:
        self.decoder, self.prompts, self.layers = decoder, prompts, layers
        self.passes = 0
        self.left: list[int] = []
        self._empty()

    def _empty(self) -> None:
        self.batch = Batch(self.decoder.backbone, {}, 1, _LEAST, compact=False)
        self.branches: list[RunningRequest] = []
        self.where: dict[int, int] = {}
        self.newest = np.zeros(0, dtype=np.int64)
        self.noises = Noises()
        self.groups: Groups = []
        self._spoilt: list[int] = []

    @property
    def living(self) -> list[RunningRequest]:
        """The branches that go on."""
        return [self.branches[row] for row in self.where.values()]

    @property
    def bytes(self) -> int:
        """Keys and values of what the branches said."""
        return self.batch.suffix.store.bytes

    def leave(self, row: int, spoilt: bool = False) -> None:
        """A branch is over; ``spoilt``: what it left behind may not be finite."""
        branch = self.branches[row]
        del self.where[branch.request_id]
        self.batch.alive[row] = False
        branch.leave(self.prompts)
        if branch.joined:
            self.left.append(branch.request_id)
        if spoilt:
            self._spoilt.append(row)

    def tidy(self) -> None:
        """Drop the rows of the dead where an eighth of a pass would be saved."""
        if not self.where:
            self.prompts.prefix_cache.tidy()
            self._empty()
            return
        padded = self.decoder.backbone.padded
        before, after = padded(len(self.batch)), padded(len(self.where))
        if before > after and (before - after) * 8 >= before:
            self.admit([])

    def admit(self, arriving: Sequence[RunningRequest]) -> Ints:
        """Drop the dead and seat newcomers in their places; returns the newcomers' rows."""
        batch, prompts = self.batch, self.prompts
        # What they left may be NaN, which weights of 0 do not hide: 0 * NaN is NaN.
        for row in self._spoilt:
            batch.suffix.store.clear(row)
        self._spoilt = []
        count = len(self.where) + len(arriving)
        source = np.full(count, -1, dtype=np.int64)
        stay = np.flatnonzero(batch.alive)
        low = stay[stay < count]
        source[low] = low
        gaps = np.flatnonzero(source < 0)
        movers = stay[stay >= count]
        source[gaps[: len(movers)]] = movers
        fresh = gaps[len(movers) :]
        waiting = iter(arriving)
        self.branches = [self.branches[row] if row >= 0 else next(waiting) for row in source]
        self.where = {branch.request_id: row for row, branch in enumerate(self.branches)}
        # The appended 0 is what -1 reads, also where no row was here before.
        self.newest = np.where(source >= 0, np.append(self.newest, 0)[source], 0)
        self.noises.move_rows(source)
        self.groups = groups(self.branches)
        prompts.prefix_cache.tidy()
        runs = np.array([_run(branch) for branch in self.branches], dtype=np.int64)
        batch.slots = {int(run): prompts.prefix_cache.slot(int(run)) for run in np.unique(runs)}
        keep = np.array([len(branch.request.tokens) for branch in arriving], dtype=np.int64)
        batch.move_rows(source, fresh, runs[fresh], keep)
        self._fit()
        return fresh

    def _fit(self) -> None:
        """Give the store of suffixes room for all rows, and memory that is no longer needed back."""
        batch = self.batch
        store = batch.suffix.store
        rows, used = align(len(batch), self.decoder.backbone.granule), int(batch.generated.max())
        batch.limit = align(max(b.limit for b in self.branches), self.decoder.backbone.shape.own_unit)
        count, length = store.count, store.length
        if rows > count:
            count = max(rows, min(2 * count, align(2 * len(batch), self.decoder.backbone.granule)))
        elif 4 * rows <= count:
            count = 2 * rows
        if length > max(_LEAST, 4 * used):
            length = align(max(_LEAST, 2 * used))
        if count != store.count:
            # Made anew in any case, and clearing what nobody will say costs as much as a layer's pass.
            length = min(length, max(batch.limit, align(used, self.decoder.backbone.shape.own_unit)))
        if (count, length) != (store.count, store.length):
            batch.suffix.fit(count, length, min(used, length))

    def plain(self) -> tuple[Tensor, Tensor | None]:
        """Feed every row's newest token: logits [n, V], and the hidden states [n, layers, width] wanted."""
        self.passes += 1
        return self.batch.feed(self.newest, self.decoder.edits, self.layers)

    def spread(self, lengths: Ints, tokens: Ints) -> tuple[Tensor, Tensor | None]:
        """Feed ``lengths`` [n] tokens of each row, in all ``tokens`` [T]: logits [T, V] and hidden states."""
        self.passes += 1
        return self.batch.feed_several(tokens, lengths, self.decoder.edits, self.layers)


def _run(branch: RunningRequest) -> int:
    if branch.prompt is None:
        raise InternalError("a branch without a prompt cannot be seated")
    return branch.prompt.run


# What running branches say: tokens given to rows, and the rows that end with them.


Top: TypeAlias = tuple[tuple[IntArray, FloatArray], ...]
End: TypeAlias = Literal["stop", "length", "error"]

_NO_TOKENS = np.zeros(0, dtype=np.int32)
_NO_NATS = np.zeros(0, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """What one request said in one step: k tokens, and their log-probs [k] in nats.

    ``logprobs`` are under the distribution that was sampled from, ``logprobs_t1`` under temperature 1 with no
    filter. ``top`` holds, per token, the ids of the likeliest tokens and their log-probs (temperature 1).
    ``finish`` is None while it goes on; with ``"error"`` the reason stands in ``error``. ``ties`` counts
    tokens that rounding might have changed; ``entropy`` [k] in nats where it was asked for. ``drafted`` and
    ``accepted`` count the proposals of a speculator that were verified, and those of them that were said.
    """

    request_id: int
    tokens: IntArray
    logprobs: FloatArray
    logprobs_t1: FloatArray
    top: Top | None = None
    finish: End | None = None
    error: str | None = None
    ties: int = 0
    entropy: FloatArray | None = None
    drafted: int = 0
    accepted: int = 0


def failed(request_id: int, why: str) -> StepOutput:
    """A request that ends without another token."""
    return StepOutput(request_id, _NO_TOKENS, _NO_NATS, _NO_NATS, finish="error", error=why)


def say(rows: LiveRows, which: Ints, drawn: DrawnTokens, logits: Tensor) -> list[StepOutput]:
    """Give one drawn token to each living one of some rows [n] with logits [n, V]; end those it ends."""
    out, alive = [], rows.batch.alive
    top = _tops(rows, which, logits)
    tokens, ties, words = drawn.tokens.tolist(), drawn.ties.tolist(), drawn.tokens.astype(np.int32)
    for place, row in enumerate(which.tolist()):
        if not alive[row]:
            continue
        branch = rows.branches[row]
        if place in drawn.wrong:
            rows.leave(row, spoilt=True)
            out.append(failed(branch.request_id, drawn.wrong[place]))
            continue
        _, finish = _take(rows, row, branch, tokens[place : place + 1])
        one = slice(place, place + 1)
        entropy = (
            None if drawn.entropy is None or branch.sampling.entropy_top_k is None else drawn.entropy[one]
        )
        nats = drawn.logprobs[one], drawn.logprobs_t1[one]
        tied = int(ties[place])
        out.append(
            StepOutput(branch.request_id, words[one], *nats, top.get(place), finish, None, tied, entropy)
        )
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Verified:
    """What was settled for one ``row``, the ``index``-th of those in a pass.

    Its logits are rows ``first .. first + fed - 1`` of the pass. From the ``broken``-th of these on they are
    of no use, for the reason ``why``.
    """

    index: int
    row: int
    first: int
    fed: int
    settled: Settled
    broken: int | None = None
    why: str | None = None


def say_settled(rows: LiveRows, verified: Sequence[Verified], logits: Tensor) -> list[StepOutput]:
    """Give each row what a speculator settled on, up to where the row ends; ``logits`` [T, V] of the pass."""
    return [_say_settled(rows, item, logits) for item in verified]


def _say_settled(rows: LiveRows, item: Verified, logits: Tensor) -> StepOutput:
    branch, settled = rows.branches[item.row], item.settled
    room = branch.limit - int(rows.batch.generated[item.row])
    if not 0 < len(settled.tokens) <= min(room, item.fed):
        raise InternalError(
            f"a speculator settled on {len(settled.tokens)} tokens of {item.fed}, room for {room}"
        )
    usable = len(settled.tokens) if item.broken is None else min(item.broken, len(settled.tokens))
    count, finish = _take(rows, item.row, branch, [int(token) for token in settled.tokens[:usable]])
    why = None
    if finish is None and usable < len(settled.tokens):
        rows.leave(item.row, spoilt=True)
        finish, why = "error", item.why
    entropy = (
        None if settled.entropy is None or branch.sampling.entropy_top_k is None else settled.entropy[:count]
    )
    return StepOutput(
        branch.request_id,
        np.asarray(settled.tokens[:count], dtype=np.int32),
        np.asarray(settled.logprobs[:count], dtype=np.float32),
        np.asarray(settled.logprobs_t1[:count], dtype=np.float32),
        _top(logits[item.first : item.first + count], branch.request.top)
        if branch.request.top and count
        else None,
        finish,
        why,
        int(np.sum(settled.ties[:count])),
        entropy,
        item.fed - 1,
        min(settled.accepted, count),
    )


def _take(rows: LiveRows, row: int, branch: RunningRequest, tokens: list[int]) -> tuple[int, End | None]:
    """Give a row tokens until one ends it: how many it took, and how it ended."""
    said, finish, count = int(rows.batch.generated[row]), None, 0
    for token in tokens:
        said, count = said + 1, count + 1
        rows.newest[row] = token
        finish = branch.ended(token, said)
        if finish is not None:
            break
    rows.batch.generated[row] = said
    if finish is not None:
        rows.leave(row)
    return count, finish


def _tops(rows: LiveRows, which: Ints, logits: Tensor) -> dict[int, Top]:
    """The likeliest tokens of the branches that ask for them, by place."""
    counts = {p: rows.branches[row].request.top for p, row in enumerate(which.tolist())}
    asking = [place for place, count in counts.items() if count > 0]
    if not asking:
        return {}
    found = _top(logits[torch.tensor(asking, device=logits.device)], max(counts[p] for p in asking))
    return {
        place: ((ids[: counts[place]], logs[: counts[place]]),)
        for place, (ids, logs) in zip(asking, found, strict=True)
    }


def _top(logits: Tensor, count: int) -> Top:
    """Per row of logits [k, V]: the ids of the likeliest tokens and their log-probs."""
    ids, logs = distribution.likeliest(logits, count)
    return tuple(zip(ids.int().cpu().numpy(), logs.cpu().numpy(), strict=True))
