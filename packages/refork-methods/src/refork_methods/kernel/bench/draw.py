"""Inputs drawn at random for a number of calls, written to a process's memory, and what is read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.kernel.bench.layout import PRECISE, Layout, Placed, Region, dtype_of
from refork_methods.kernel.problem import FLOATING, Argument, Problem
from refork_methods.kernel.problem_expr import value

Values: TypeAlias = NDArray[Any]
#: What an output holds before a call: NaN, or numbers that could be results. Integers: random bytes in both.
Poison: TypeAlias = Literal["nan", "number"]
#: The exponent of skewed indices (Zipf).
SKEW = 1.5


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of ``calls`` calls, by argument: arrays of ``calls elements``, and scalars of ``calls``."""

    calls: int
    arrays: dict[str, Values]
    scalars: dict[str, Values]
    poison: dict[str, Values]


def draw_batch(problem: Problem, calls: int, rng: np.random.Generator, poison: Poison = "nan") -> Batch:
    """Fresh inputs for each call; what outputs hold beforehand is drawn too."""
    arrays: dict[str, Values] = {}
    scalars: dict[str, Values] = {}
    poisons: dict[str, Values] = {}
    for one in problem.arguments:
        if one.role == "out":
            poisons[one.name] = _poison(one, problem.length(one), rng, poison)
        elif one.array:
            arrays[one.name] = _drawn(problem, one, (calls, problem.length(one)), rng)
        elif one.role == "size":
            scalars[one.name] = np.full(calls, problem.sizes[one.name], dtype_of(one.ctype))
        else:
            scalars[one.name] = _drawn(problem, one, (calls, 1), rng)[:, 0]
    return Batch(calls, arrays, scalars, poisons)


def _drawn(problem: Problem, one: Argument, shape: tuple[int, int], rng: np.random.Generator) -> Values:
    dtype = dtype_of(one.ctype)
    kind, _, rest = one.fill.partition(":")
    known = value(rest, problem.sizes, f"fill of {one.name}") if rest else 0.0
    if kind == "const":
        return np.full(shape, known, dtype)
    if kind == "permutation":
        return rng.permuted(np.broadcast_to(np.arange(shape[1], dtype=dtype), shape), axis=1)
    if kind in ("index", "sorted-index", "skewed-index", "offsets"):
        if known < (kind != "offsets"):
            raise BadInput(f"there is no index below {known:g}", where=f"fill of {one.name}")
        if kind == "skewed-index":
            share = np.arange(1, int(known) + 1) ** -SKEW
            return np.searchsorted(np.cumsum(share)[:-1] / share.sum(), rng.random(shape)).astype(dtype)
        drawn = rng.integers(0, int(known) + (kind == "offsets"), shape).astype(dtype)
        if kind != "index":
            drawn.sort(axis=1)
        if kind == "offsets":
            drawn[:, 0], drawn[:, -1] = 0, int(known)
        return drawn
    if one.ctype in FLOATING:
        numbers = rng.random(shape, dtype=np.float32 if dtype.itemsize == 4 else np.float64)
        return (numbers * 0.9 + 0.1 if kind == "positive" else numbers * 2 - 1).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    low = 1 if kind == "positive" else 0 if dtype.kind == "u" else -100
    return rng.integers(low, 101, shape).astype(dtype)


def _poison(one: Argument, count: int, rng: np.random.Generator, kind: Poison) -> Values:
    dtype = dtype_of(one.ctype)
    if dtype.kind != "f":
        if dtype.kind == "b":
            return rng.integers(0, 2, (1, count)).astype(dtype)
        return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(1, count)
    if kind == "nan":
        return np.full((1, count), np.nan, dtype)
    return (rng.random((1, count)) * 2 - 1).astype(dtype)


@final
class Memory:
    """The shared memory of one process, as our side sees it."""

    def __init__(self, layout: Layout, data: NDArray[np.uint8]) -> None:
        self.layout, self._data = layout, data
        self._slots = data[layout.slots :].reshape(-1, layout.stride)

    def write(self, batch: Batch, placed: Placed) -> None:
        """Put a batch's inputs in, poison its outputs, and fill the rest of their regions."""
        layout, calls = self.layout, batch.calls
        table = self._data[: layout.row * calls].reshape(calls, layout.row)
        starts = layout.slots + np.arange(calls, dtype=np.uint64) * np.uint64(layout.stride)
        for number, one in enumerate(layout.regions):
            offset = placed.offsets[one.name]
            rest, room = placed.canaries[one.name], self._slots[:calls, one.start : one.start + one.room]
            room[:, :offset] = rest[:offset]
            room[:, offset + one.size :] = rest[offset:]
            room[:, offset : offset + one.size] = self._bytes(self.given(batch, one))
            at = starts + np.uint64(one.start + offset)
            table[:, 8 * number : 8 * number + 8] = at.view(np.uint8).reshape(calls, 8)
        first = 8 * len(layout.regions)
        for number, scalar in enumerate(layout.scalars):
            ctype = PRECISE.get(scalar.ctype, scalar.ctype) if layout.precise else scalar.ctype
            told = batch.scalars[scalar.name].astype(dtype_of(ctype))
            begins = first + 16 * number
            table[:, begins : begins + told.itemsize] = told.reshape(calls, 1).view(np.uint8)

    def given(self, batch: Batch, one: Region) -> Values:
        """What a region's array holds before the calls; one row where all calls' are the same."""
        if one.name in batch.arrays:
            return batch.arrays[one.name].astype(one.dtype, copy=False)
        known = batch.poison.get(one.name)
        if known is None:  # the entry's result
            known = np.full((1, one.count), np.nan if one.dtype.kind == "f" else 85)
        return known.astype(one.dtype, copy=False)

    def read(self, calls: int, placed: Placed) -> dict[str, Values]:
        """Copies of all arrays, each ``calls elements``."""
        found = {}
        for one in self.layout.regions:
            start = one.start + placed.offsets[one.name]
            raw = self._slots[:calls, start : start + one.size].copy()  # which nobody changes later
            found[one.name] = raw.view(one.dtype)
        return found

    def overwritten(self, calls: int, placed: Placed) -> str | None:
        """The array beside which bytes were changed, in words; None where none were."""
        for one in self.layout.regions:
            offset, rest = placed.offsets[one.name], placed.canaries[one.name]
            room = self._slots[:calls, one.start : one.start + one.room]
            if not (room[:, :offset] == rest[:offset]).all():
                return f"before the start of {one.name}"
            if not (room[:, offset + one.size :] == rest[offset:]).all():
                return f"past the end of {one.name}"
        return None

    @staticmethod
    def _bytes(values: Values) -> NDArray[np.uint8]:
        return np.ascontiguousarray(values).view(np.uint8)
