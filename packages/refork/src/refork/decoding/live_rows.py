"""The running rows of a live decoder: who sits where, and the passes over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from torch import Tensor

from refork.decoding.batch import Batch
from refork.decoding.live_draw import Groups, Noises, RunningRequest, groups
from refork.decoding.live_prompts import Prompts
from refork.decoding.loop import BranchDecoder
from refork.decoding.plan import align
from refork.decoding.prefill import Ints
from refork.errors import InternalError

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
        self.newest = np.where(source >= 0, np.append(self.newest, 0)[source], 0)
        self.noises.place(source)
        self.groups = groups(self.branches)
        prompts.prefix_cache.tidy()
        runs = np.array([_run(branch) for branch in self.branches], dtype=np.int64)
        batch.slots = {int(run): prompts.prefix_cache.slot(int(run)) for run in np.unique(runs)}
        keep = np.array([len(branch.request.tokens) for branch in arriving], dtype=np.int64)
        batch.place(source, fresh, runs[fresh], keep)
        self._fit()
        return fresh

    def _fit(self) -> None:
        """Give the store of suffixes room for all rows, and memory that is no longer needed back."""
        batch = self.batch
        store = batch.suffix.store
        rows, used = align(len(batch), self.decoder.backbone.granule), int(batch.said.max())
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
