"""Where keys and values lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import final

import torch
from torch import Tensor


@cache
def _enough(width: int) -> int:
    """8, or 16 where this processor's library treats eight rows of keys so wide apart; measured once."""
    drawn = torch.Generator().manual_seed(0)
    rows, keys = (torch.randn(2, 64, width, generator=drawn) for _ in range(2))
    whole = torch.bmm(rows, keys.mT)
    return 8 if torch.equal(torch.bmm(rows[:, :8], keys.mT), whole[:, :8]) else 16


@dataclass(frozen=True, slots=True)
class LayerShape:
    """Key-value heads, query heads per key-value head, and head widths of one attention layer."""

    heads: int
    group: int
    key: int
    value: int

    @property
    def enough(self) -> int:
        """Products of a multiple of so many rows of queries give each row the bits that it has among many."""
        return _enough(self.key)


@dataclass(frozen=True, slots=True)
class KvShape:
    """What one position costs: layers, dtype, device."""

    layers: tuple[LayerShape, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def row_unit(self) -> int:
        """Rows whose query heads fill as many rows of a matrix product as it needs, in every layer."""
        return math.lcm(*(s.enough // math.gcd(s.enough, s.group) for s in self.layers))

    @property
    def own_unit(self) -> int:
        """Positions by which suffixes grow: products so small that libraries treat them apart are avoided."""
        least = min(s.group * min(s.key, s.value) for s in self.layers)
        return 16 * -(-400 // (16 * least))

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values of one position, all layers."""
        return sum(s.heads * (s.key + s.value) for s in self.layers) * self.dtype.itemsize


@final
class Stack:
    """Keys and values of ``count`` token runs that all begin at position ``start``.

    One tensor [count, heads, length, width] per layer for keys and one for values. Unused positions
    are zeros, which every mask hides; they must stay finite, since 0 * NaN is NaN.
    """

    def __init__(self, shape: KvShape, count: int, start: int, length: int) -> None:
        self.shape = shape
        self.count = count
        self.start = start
        self.length = length
        self.keys = [self._zeros(s.heads, s.key) for s in shape.layers]
        self.values = [self._zeros(s.heads, s.value) for s in shape.layers]

    def _zeros(self, heads: int, width: int) -> Tensor:
        size = (self.count, heads, self.length, width)
        return torch.zeros(size, dtype=self.shape.dtype, device=self.shape.device)

    @property
    def bytes(self) -> int:
        """Memory it holds."""
        return self.count * self.length * self.shape.bytes_per_token

    def write(self, layer: int, items: Tensor, offsets: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put keys and values [n, heads, width] of one layer at (item, offset) pairs [n]."""
        self.keys[layer][items, :, offsets] = keys
        self.values[layer][items, :, offsets] = values

    def take(self, items: Tensor) -> Stack:
        """A compact copy of some runs."""
        # Past __init__, which would allocate zeros only to throw them away.
        copy = object.__new__(Stack)
        copy.shape, copy.count, copy.start, copy.length = self.shape, len(items), self.start, self.length
        copy.keys = [tensor[items] for tensor in self.keys]
        copy.values = [tensor[items] for tensor in self.values]
        return copy

    def part(self, first: int, last: int) -> Stack:
        """Runs ``first .. last - 1`` in the same memory."""
        view = object.__new__(Stack)
        view.shape, view.count, view.start, view.length = self.shape, last - first, self.start, self.length
        view.keys = [tensor[first:last] for tensor in self.keys]
        view.values = [tensor[first:last] for tensor in self.values]
        return view

    def clear(self, item: int, start: int = 0) -> None:
        """Zeros from offset ``start`` of a run on."""
        for tensor in (*self.keys, *self.values):
            tensor[item, :, start:] = 0

    def copy_block(self, item: int, at: int, source: Stack, other: int, other_at: int, size: int) -> None:
        """Copy ``size`` positions of run ``other`` of another stack, from and to these offsets."""
        for layer in range(len(self.keys)):
            mine, theirs = slice(at, at + size), slice(other_at, other_at + size)
            self.keys[layer][item, :, mine] = source.keys[layer][other, :, theirs]
            self.values[layer][item, :, mine] = source.values[layer][other, :, theirs]


@final
class Suffix:
    """Keys and values of what branches said themselves, one row per branch."""

    def __init__(self, shape: KvShape, rows: int, length: int) -> None:
        self.shape = shape
        self.store = Stack(shape, rows, 0, length)

    def move(self, rows: Tensor, source: Tensor, used: int) -> None:
        """Rows [n] become what rows ``source`` [n] were; only ``used`` positions matter."""
        for tensor in (*self.store.keys, *self.store.values):
            tensor[rows, :, :used] = tensor[source, :, :used]

    def fit(self, rows: int, length: int, used: int) -> None:
        """A store of this size, with the first ``used`` positions of the first ``rows`` rows, and zeros."""
        old = self.store
        self.store = Stack(self.shape, rows, 0, length)
        count = min(rows, old.count)
        for mine, theirs in zip(
            (*self.store.keys, *self.store.values), (*old.keys, *old.values), strict=True
        ):
            mine[:count, :, :used] = theirs[:count, :, :used]
