"""From a model's hidden states to what its drafter attends to, as late and as seldom as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.speculator import ActiveRows
from refork.errors import BadInput
from refork.types import IntArray
from refork_methods.speculate.cache import Context, ContextCache, LateStates, Noted
from refork_methods.speculate.proposer import Proposer

Ints = NDArray[np.int64]

EVERYTHING: Final = 1 << 40
"""The reach of a drafter without a window."""


@final
class DraftContext:
    """What the blocks of some branches attend to.

    Hidden states are only noted as they come. They are projected when a draft needs them, all in one product;
    what has left the window by then never is.
    """

    def __init__(self, model: Proposer) -> None:
        self.model = model
        self.reach = model.config.window or EVERYTHING
        self._cache = ContextCache(model.config.window)
        self._late = LateStates(model.config.window)
        self._request_ids: Ints = np.zeros(0, dtype=np.int64)
        self._living: set[int] = set()

    @property
    def bytes(self) -> int:
        """Memory of keys, values and noted states."""
        return self._cache.bytes + self._late.bytes

    def join(self, request_ids: Ints, prompts: Sequence[IntArray], states: Sequence[Tensor]) -> None:
        """New branches, with the states [k, layers, width] of the last k tokens of their prompts.

        Those whose states are one tensor share what is computed of it. Raises BadInput for a branch that is
        there already.
        """
        if not self._living.isdisjoint(request_ids.tolist()):
            raise BadInput(
                "a branch joined twice: this drafter still serves the batch of another decoder",
                hint="give every decoder a speculator of its own: fresh() makes one",
            )
        self._living.update(request_ids.tolist())
        shared: dict[tuple[int, int], list[int]] = {}
        for index, (prompt, seen) in enumerate(zip(prompts, states, strict=True)):
            shared.setdefault((seen.data_ptr(), len(prompt)), []).append(index)
        for members in shared.values():
            seen, length = states[members[0]], len(prompts[members[0]])
            count = min(len(seen), self.reach)
            place = np.arange(length - count, length)
            take = np.arange(len(seen) - count, len(seen))
            who = np.repeat(request_ids[members], count)
            self._late.add(seen, who, np.tile(place, len(members)), np.tile(take, len(members)))

    def note(self, branches: ActiveRows, spread: Ints, kept: Ints, states: Tensor) -> None:
        """States [sum of spread, layers, width] of a pass; the first ``kept`` of each branch's count."""
        row = np.repeat(np.arange(len(kept)), kept)
        ahead = np.arange(len(row)) - np.repeat(np.cumsum(kept) - kept, kept)
        start = np.cumsum(spread) - spread
        take = None if np.array_equal(spread, kept) else start[row] + ahead
        self._late.add(states, branches.request_id[row], branches.place[row] + ahead, take)

    def leave(self, request_ids: Ints) -> None:
        """Branches that ended; when the last one does, nothing is held any more."""
        self._living.difference_update(request_ids.tolist())
        if self._living:
            self._late.leave(request_ids)
            return
        self._late.clear()
        self._cache.clear()
        self._request_ids = np.zeros(0, dtype=np.int64)

    def of(self, request_ids: Ints, rows: Ints | None) -> Context:
        """The context of ``rows`` (None: all) of a batch, what came lately included."""
        if not np.array_equal(request_ids, self._request_ids):
            place = {request_id: row for row, request_id in enumerate(self._request_ids.tolist())}
            self._cache.arrange(np.array([place.get(t, -1) for t in request_ids.tolist()], dtype=np.int64))
            self._request_ids = request_ids.copy()
        noted = self._late.take() if rows is None else self._late.peek()
        if noted:
            self._project(noted, request_ids, np.arange(len(request_ids)) if rows is None else rows)
        return self._cache.context(rows)

    def _project(self, noted: list[Noted], request_ids: Ints, rows: Ints) -> None:
        """Keys and values of noted states, for these rows of the batch."""
        order = rows[np.argsort(request_ids[rows], kind="stable")]
        parts = [_of_rows(item, request_ids[order], order) for item in noted]
        newest = np.full(len(request_ids), -1, dtype=np.int64)
        for item, (there, row) in zip(noted, parts, strict=True):
            np.maximum.at(newest, row, item.places[there])
        states: list[Tensor] = []
        row_of, place_of, take_of, where = [], [], [], []
        count = 0
        for item, (every, every_row) in zip(noted, parts, strict=True):
            near = item.places[every] > newest[every_row] - self.reach
            there = every[near]
            used, inverse = np.unique(there if item.take is None else item.take[there], return_inverse=True)
            if not len(used):
                continue
            states.append(_some(item.states, used))
            place = np.zeros(len(used), dtype=np.int64)
            place[inverse] = item.places[there]
            where.append(place)
            row_of.append(every_row[near])
            place_of.append(item.places[there])
            take_of.append(inverse + count)
            count += len(used)
        if states:
            keys, values = self._keys_values(states, np.concatenate(where))
            row, place, take = (np.concatenate(a) for a in (row_of, place_of, take_of))
            self._cache.write(row, place, keys, values, take)

    def _keys_values(self, states: list[Tensor], places: Ints) -> tuple[list[Tensor], list[Tensor]]:
        """Per layer keys and values [n, heads, width] of states at their positions [n]."""
        features = self.model.context(states[0] if len(states) == 1 else torch.cat(states))
        where = torch.from_numpy(places).to(features.device)
        found = self.model.keys_values(features[None], where[None])
        keys = [key[0].transpose(0, 1) for key, _ in found]
        return keys, [value[0].transpose(0, 1) for _, value in found]


def _of_rows(item: Noted, request_ids: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Which entries belong to sorted ``request_ids``, and whose of ``rows`` they are."""
    at = np.minimum(np.searchsorted(request_ids, item.request_ids), len(request_ids) - 1)
    there = np.flatnonzero(request_ids[at] == item.request_ids)
    return there, rows[at[there]]


def _some(states: Tensor, used: Ints) -> Tensor:
    if len(used) == len(states):
        return states
    return states[torch.from_numpy(used).to(states.device)]
