"""What a drafter attends to: keys and values of each branch, from the hidden states of its model."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from refork.decoding.speculator import ActiveRows
from refork.errors import BadInput
from refork.types import IntArray
from refork_methods.speculate.eagle import EagleDraft
from refork_methods.speculate.model import DraftModel

# The drafters that can propose for a batch of branches: all kinds there are.

Proposer: TypeAlias = DraftModel | EagleDraft


def as_proposer(draft: Any) -> Proposer:
    """The drafter, if it is one of these; raises BadInput where it is not."""
    if isinstance(draft, DraftModel | EagleDraft):
        return draft
    raise BadInput(f"a drafter is needed, not {type(draft).__name__}")


# The drafter's context: keys and values of what each branch has said, the last ``window`` positions of it.
#
# A ring per branch: position p lies in slot p mod window, so nothing is ever moved as branches grow. Keys
# carry their rotary position, so the order of slots does not matter. Block keys are never kept.

Ints = NDArray[np.int64]

_SWEEP = 16
_FIRST = 64
"""Positions that a cache without a window begins with."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What the drafter's blocks attend to: per layer keys and values [rows, heads, columns, width].

    ``visible`` [rows, columns] marks the columns that hold something; None: all do.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    visible: Tensor | None


@final
class ContextCache:
    """Keys and values of branches, in the order of the batch's rows; it grows and shrinks with them.

    ``first`` and ``end`` [rows] say which positions of each branch it knows: ``first .. end - 1``.
    """

    def __init__(self, window: int | None) -> None:
        self.window = window
        self.size = window or _FIRST
        self.first: Ints = np.zeros(0, dtype=np.int64)
        self.end: Ints = np.zeros(0, dtype=np.int64)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    def __len__(self) -> int:
        return len(self.end)

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self._keys, *self._values))

    def clear(self) -> None:
        """Forget every branch, and give the memory back."""
        self.first = self.end = np.zeros(0, dtype=np.int64)
        self._keys, self._values = [], []

    def arrange(self, source: Ints) -> None:
        """Make row i what row ``source[i]`` was; -1: a branch of which nothing is known."""
        known = source >= 0
        self.first = np.where(known, self._taken(self.first, source), 0)
        self.end = np.where(known, self._taken(self.end, source), 0)
        if self._keys:
            # A row of which nothing is known takes row 0's memory: first = end = 0 hides all of it.
            index = torch.from_numpy(np.maximum(source, 0)).to(self._keys[0].device)
            if len(self._keys[0]) == 0:
                index = index[:0]
            self._keys = [self._rows(tensor, index, len(source)) for tensor in self._keys]
            self._values = [self._rows(tensor, index, len(source)) for tensor in self._values]

    @staticmethod
    def _taken(array: Ints, source: Ints) -> Ints:
        return array[np.maximum(source, 0)] if len(array) else np.zeros(len(source), dtype=np.int64)

    @staticmethod
    def _rows(tensor: Tensor, index: Tensor, count: int) -> Tensor:
        if len(index) == count:
            return tensor[index]
        return tensor.new_zeros((count, *tensor.shape[1:]))

    def write(
        self,
        rows: Ints,
        positions: Ints,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        take: Ints | None = None,
    ) -> None:
        """Put keys and values (per layer [n, heads, width]) of ``positions`` of ``rows``, both [m].

        ``take`` [m] says which of the n each one is (default: one each, n = m), so that branches of one
        prefix share its computation. A branch's positions must follow what it knows, or begin anew.
        """
        if not len(rows):
            return
        self._know(rows, positions)
        if not self._keys:
            shape = keys[0].shape
            size = (len(self), shape[1], self.size, shape[2])
            self._keys = [tensor.new_zeros(size) for tensor in keys]
            self._values = [tensor.new_zeros(size) for tensor in values]
        device = keys[0].device
        # Of two positions in one slot the later one counts, and it must not depend on the order of writes.
        kept = np.flatnonzero(positions >= self.end[rows] - self.size)
        row = torch.from_numpy(rows[kept]).to(device)
        slot = torch.from_numpy(positions[kept] % self.size).to(device)
        if take is None and len(kept) == len(rows):
            for mine, new in zip((*self._keys, *self._values), (*keys, *values), strict=True):
                mine[row, :, slot] = new
            return
        source = torch.from_numpy(kept if take is None else take[kept]).to(device)
        for mine, new in zip((*self._keys, *self._values), (*keys, *values), strict=True):
            mine[row, :, slot] = new[source]

    def _know(self, rows: Ints, positions: Ints) -> None:
        """Note the positions that come, and make room for them where there is no window."""
        low = np.full(len(self), np.iinfo(np.int64).max)
        np.minimum.at(low, rows, positions)
        high = np.full(len(self), -1, dtype=np.int64)
        np.maximum.at(high, rows, positions)
        touched = high >= 0
        # What is written twice is the same; a gap, or what lies before, begins anew.
        anew = touched & ((low > self.end) | (low < self.first) | (self.end == 0))
        self.first = np.where(anew, low, self.first)
        before = self.end
        self.end = np.where(touched, high + 1, self.end)
        if self.window is None:
            needed = int((self.end - self.first).max())
            if needed > self.size:
                self._grow(needed, before)

    def _grow(self, needed: int, end: Ints) -> None:
        """Rings of twice the size, or more; what they hold lies elsewhere then."""
        old = self.size
        while self.size < needed:
            self.size *= 2
        if not self._keys:
            return
        span = np.arange(old)
        place = self.first[:, None] + span
        # `end` is that from before this write: what comes now is written after the rings have grown.
        row, column = np.nonzero(place < end[:, None])
        place = place[row, column]
        device = self._keys[0].device
        where, here, there = (torch.from_numpy(a).to(device) for a in (row, place % old, place % self.size))
        for held in (self._keys, self._values):
            for layer, tensor in enumerate(held):
                grown = tensor.new_zeros((*tensor.shape[:2], self.size, tensor.shape[3]))
                grown[where, :, there] = tensor[where, :, here]
                held[layer] = grown

    def context(self, rows: Ints | None = None) -> Context:
        """What ``rows`` (all of them) attend to, without columns that none uses."""
        first, end = (self.first, self.end) if rows is None else (self.first[rows], self.end[rows])
        used = int(end.max()) if len(end) else 0
        columns = self.size if used > self.size else used
        slot = np.arange(columns)
        last = end[:, None] - 1
        # Of the positions that share a slot the newest one is in it. The modulo is never negative, so slots
        # not reached yet, and all those of an empty branch, come out below 0 and are not visible.
        place = last - (last - slot) % self.size
        visible = place >= np.maximum(first, end - self.size)[:, None]
        keys, values = self._keys, self._values
        if rows is not None and keys:
            index = torch.from_numpy(rows).to(keys[0].device)
            keys, values = [k[index] for k in keys], [v[index] for v in values]
        if columns < self.size:
            keys = [tensor[:, :, :columns] for tensor in keys]
            values = [tensor[:, :, :columns] for tensor in values]
        if visible.all():
            return Context(keys, values, None)
        device = keys[0].device if keys else None
        return Context(keys, values, torch.from_numpy(visible).to(device))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """Hidden states [n, layers, width] of ``positions`` [m], ``request_ids`` [m]; ``take`` [m] which of n."""

    states: Tensor
    request_ids: Ints
    positions: Ints
    take: Ints | None


@final
class LateStates:
    """Hidden states that no draft needed yet, kept as they came for the last ``window`` positions."""

    def __init__(self, window: int | None) -> None:
        self.window = window
        self._chunks: deque[Noted] = deque()
        self._gone: set[int] = set()

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return sum(chunk.states.numel() * chunk.states.element_size() for chunk in self._chunks)

    def add(self, states: Tensor, request_ids: Ints, positions: Ints, take: Ints | None = None) -> None:
        """Note the states of one pass, or of a prompt."""
        if len(request_ids):
            self._chunks.append(Noted(states, request_ids, positions, take))
        # Every pass gives each living branch a position or more, so older passes are out of every window.
        if self.window is not None and len(self._chunks) > 2 * self.window:
            self._drop(self.window)

    def _drop(self, window: int) -> None:
        """Forget chunks that hold nothing but what lies before the window of its branch."""
        newest: dict[int, int] = {}
        for chunk in self._chunks:
            for request_id, place in zip(chunk.request_ids.tolist(), chunk.positions.tolist(), strict=True):
                newest[request_id] = max(newest.get(request_id, 0), place)
        kept: deque[Noted] = deque()
        for chunk in self._chunks:
            request_ids = chunk.request_ids.tolist()
            last = np.array([newest[t] for t in request_ids], dtype=np.int64)
            here = np.array([t not in self._gone for t in request_ids])
            if (here & (chunk.positions > last - window)).any():
                kept.append(chunk)
        self._chunks = kept

    def leave(self, request_ids: Ints) -> None:
        """Forget chunks that hold nothing but branches that ended; looked for now and then."""
        self._gone.update(request_ids.tolist())
        if len(self._gone) >= _SWEEP:
            self._chunks = deque(c for c in self._chunks if not self._gone.issuperset(c.request_ids.tolist()))
            self._gone &= {t for c in self._chunks for t in c.request_ids.tolist()}

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
        self._gone.clear()

    def peek(self) -> list[Noted]:
        """All chunks, in the order they came."""
        return list(self._chunks)

    def take(self) -> list[Noted]:
        """All chunks, in the order they came; they are forgotten here."""
        chunks = list(self._chunks)
        self.clear()
        return chunks


# From a model's hidden states to what its drafter attends to, as late and as seldom as possible.

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
        # All these tensors are alive at once, so an address names one; positions hang on the prompt's length.
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

    def note(self, branches: ActiveRows, spread: Ints, kept_tokens: Ints, states: Tensor) -> None:
        """States [sum of spread, layers, width] of a pass; of each branch the first ``kept_tokens``."""
        row = np.repeat(np.arange(len(kept_tokens)), kept_tokens)
        ahead = np.arange(len(row)) - np.repeat(np.cumsum(kept_tokens) - kept_tokens, kept_tokens)
        start = np.cumsum(spread) - spread
        take = None if np.array_equal(spread, kept_tokens) else start[row] + ahead
        self._late.add(states, branches.request_id[row], branches.position[row] + ahead, take)

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
        # A draft for some rows must leave the states where they are: the other rows still need theirs.
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
            np.maximum.at(newest, row, item.positions[there])
        states: list[Tensor] = []
        row_of, place_of, take_of, where = [], [], [], []
        count = 0
        for item, (every, every_row) in zip(noted, parts, strict=True):
            near = item.positions[every] > newest[every_row] - self.reach
            there = every[near]
            # Branches of one prefix share its states, at one position all: each state is projected once.
            used, inverse = np.unique(there if item.take is None else item.take[there], return_inverse=True)
            if not len(used):
                continue
            states.append(_some(item.states, used))
            place = np.zeros(len(used), dtype=np.int64)
            place[inverse] = item.positions[there]
            where.append(place)
            row_of.append(every_row[near])
            place_of.append(item.positions[there])
            take_of.append(inverse + count)
            count += len(used)
        if states:
            keys, values = self._keys_values(states, np.concatenate(where))
            row, place, take = (np.concatenate(a) for a in (row_of, place_of, take_of))
            self._cache.write(row, place, keys, values, take)

    def _keys_values(self, states: list[Tensor], positions: Ints) -> tuple[list[Tensor], list[Tensor]]:
        """Per layer keys and values [n, heads, width] of states at their positions [n]."""
        features = self.model.context(states[0] if len(states) == 1 else torch.cat(states))
        where = torch.from_numpy(positions).to(features.device)
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
