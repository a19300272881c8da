"""The drafter's context: keys and values of what each branch has said, the last ``window`` positions of it.

A ring per branch: position p lies in slot p mod window, so nothing is ever moved as branches grow. Keys carry
their rotary position, so the order of slots does not matter. Block keys are never kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]

_SWEEP = 16
_FIRST = 64
"""Positions that a cache without a window begins with."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What the drafter's blocks attend to: per layer keys and values [rows, heads, columns, width].

    ``seen`` [rows, columns] marks the columns that hold something; None: all do.
    """

    keys: Sequence[Tensor]
    values: Sequence[Tensor]
    seen: Tensor | None


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
        places: Ints,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        take: Ints | None = None,
    ) -> None:
        """Put keys and values (per layer [n, heads, width]) of positions ``places`` of ``rows``, both [m].

        ``take`` [m] says which of the n each one is (default: one each, n = m), so that branches of one
        prefix share its computation. A branch's positions must follow what it knows, or begin anew.
        """
        if not len(rows):
            return
        self._know(rows, places)
        if not self._keys:
            shape = keys[0].shape
            size = (len(self), shape[1], self.size, shape[2])
            self._keys = [tensor.new_zeros(size) for tensor in keys]
            self._values = [tensor.new_zeros(size) for tensor in values]
        device = keys[0].device
        # Of two positions in one slot the later one counts, and it must not depend on the order of writes.
        kept = np.flatnonzero(places >= self.end[rows] - self.size)
        row = torch.from_numpy(rows[kept]).to(device)
        slot = torch.from_numpy(places[kept] % self.size).to(device)
        if take is None and len(kept) == len(rows):
            for mine, new in zip((*self._keys, *self._values), (*keys, *values), strict=True):
                mine[row, :, slot] = new
            return
        source = torch.from_numpy(kept if take is None else take[kept]).to(device)
        for mine, new in zip((*self._keys, *self._values), (*keys, *values), strict=True):
            mine[row, :, slot] = new[source]

    def _know(self, rows: Ints, places: Ints) -> None:
        """Note the positions that come, and make room for them where there is no window."""
        low = np.full(len(self), np.iinfo(np.int64).max)
        np.minimum.at(low, rows, places)
        high = np.full(len(self), -1, dtype=np.int64)
        np.maximum.at(high, rows, places)
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
        place = last - (last - slot) % self.size
        seen = place >= np.maximum(first, end - self.size)[:, None]
        keys, values = self._keys, self._values
        if rows is not None and keys:
            index = torch.from_numpy(rows).to(keys[0].device)
            keys, values = [k[index] for k in keys], [v[index] for v in values]
        if columns < self.size:
            keys = [tensor[:, :, :columns] for tensor in keys]
            values = [tensor[:, :, :columns] for tensor in values]
        if seen.all():
            return Context(keys, values, None)
        device = keys[0].device if keys else None
        return Context(keys, values, torch.from_numpy(seen).to(device))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """Hidden states [n, layers, width] of ``places`` [m] of ``request_ids`` [m]; ``take`` [m] which of n."""

    states: Tensor
    request_ids: Ints
    places: Ints
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

    def add(self, states: Tensor, request_ids: Ints, places: Ints, take: Ints | None = None) -> None:
        """Note the states of one pass, or of a prompt."""
        if len(request_ids):
            self._chunks.append(Noted(states, request_ids, places, take))
        # Every pass gives each living branch a position or more, so older passes are out of every window.
        if self.window is not None and len(self._chunks) > 2 * self.window:
            self._drop(self.window)

    def _drop(self, window: int) -> None:
        """Forget chunks that hold nothing but what lies before the window of its branch."""
        newest: dict[int, int] = {}
        for chunk in self._chunks:
            for request_id, place in zip(chunk.request_ids.tolist(), chunk.places.tolist(), strict=True):
                newest[request_id] = max(newest.get(request_id, 0), place)
        kept: deque[Noted] = deque()
        for chunk in self._chunks:
            request_ids = chunk.request_ids.tolist()
            last = np.array([newest[t] for t in request_ids], dtype=np.int64)
            here = np.array([t not in self._gone for t in request_ids])
            if (here & (chunk.places > last - window)).any():
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
