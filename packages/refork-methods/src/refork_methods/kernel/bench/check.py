"""One batch of calls held against what must be true of it, and against expected results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork_methods.kernel.bench.process import RESULT, Batch, Host, Memory, Placed, Took
from refork_methods.kernel.bench.result import Stage
from refork_methods.kernel.problem import Problem

Values: TypeAlias = NDArray[Any]
#: Elements at a time: what is computed of them stays in a core's own caches.
BLOCK = 16384


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """The worst relative error (inf: not finite); where the worst excess lies, None where all pass."""

    error: float
    slot: int | None = None
    element: int | None = None
    got: float = 0.0
    expected: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every value is near enough."""
        return self.element is None


def compare(
    got: Values,
    expected: Values,
    rtol: float,
    atol: float,
    *,
    scale: float = 0.0,
    beside: Values | None = None,
) -> Compared:
    """Compare ``slots elements`` arrays: |got - expected| <= rtol |expected| + atol rms(the slot's expected).

    ``scale`` is the least rms: that of one number whose terms happen to cancel says nothing of rounding.
    ``beside`` are results of another program, which may be off as well: who is at most twice as far off as
    they are, beyond the tolerance, passes.

    The error is |got - expected| over |expected| + (atol / rtol) rms, 0 where both are equal. Integers must
    be equal.
    """
    if not expected.size:
        return Compared(0.0)
    if expected.dtype.kind in "iub":
        return _whole(got, expected)
    error, most, worst = 0.0, 0.0, -1
    for slot, theirs in enumerate(expected):
        rms = max(_rms(theirs), scale)
        for start in range(0, len(theirs), BLOCK):
            block = slice(start, start + BLOCK)
            mine, exact = got[slot, block], _precise(theirs[block])
            if not np.isfinite(mine).all():
                place = start + int(np.isfinite(mine).argmin())
                return _at(slot * len(theirs) + place, got, expected, float("inf"))
            size = np.abs(exact)
            whole = size + (atol / rtol if rtol else 0.0) * rms
            # Where both are 0 the quotient is 0 / 0: the where below drops it.
            with np.errstate(all="ignore"):
                off = np.abs(mine - exact)
                error = float(np.maximum(error, np.max(np.where(off > 0, off / whole, 0))))
            off -= rtol * size + atol * rms
            if beside is not None:
                off -= 2 * np.abs(beside[slot, block] - exact)
            place = int(np.argmax(off))
            # What is no number is the worst, and the first of them.
            if not (np.isnan(most) or off[place] <= most):
                most, worst = float(off[place]), slot * len(theirs) + start + place
    return Compared(error) if worst < 0 else _at(worst, got, expected, error)


def _precise(values: Values) -> Values:
    # The difference of two floats would itself be rounded to a float: they are compared in double.
    return values.astype(values.dtype if values.dtype.itemsize > 4 else np.float64)


def _rms(values: Values) -> float:
    """Root of the mean square of a slot."""
    parts = (_precise(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK))
    with np.errstate(over="ignore"):
        return float(np.sqrt(sum(np.sum(part * part) for part in parts) / len(values)))


def _whole(got: Values, expected: Values) -> Compared:
    if np.array_equal(got, expected):
        return Compared(0.0)
    off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    error = float(np.max(off / np.maximum(np.abs(expected.astype(np.float64)), 1)))
    return _at(int(np.argmax(got != expected)), got, expected, error)


def _at(flat: Any, got: Values, expected: Values, error: float) -> Compared:
    slot, place = divmod(int(flat), got.shape[1])
    return Compared(error, slot, place, float(got[slot, place]), float(expected[slot, place]))


Arrays: TypeAlias = dict[str, NDArray[Any]]


@final
class RejectedError(Exception):
    """A candidate does not stand: at which stage, why, its error if known, and the trick it looks like."""

    def __init__(self, stage: Stage, why: str, *, cheat: str = "", error: float | None = None) -> None:
        super().__init__(why)
        self.stage, self.cheat, self.error = stage, cheat, error


def called(host: Host, batch: Batch, placed: Placed, again: int = 0) -> tuple[Arrays, Took]:
    """Call a kernel on a batch; what its arrays held when it had returned, and the time.

    ``again``: how often it is called on a batch of one in the time that counts, after one call before it.

    Raises:
        RejectedError: it wrote to its inputs or beside its arrays. FailedError: as :meth:`Host.run`.
    """
    host.memory.write(batch, placed, max(again, 1))
    if again:
        host.run(1)
    took = host.run(again or batch.calls)
    found = host.memory.read(batch.calls, placed)
    _untouched(host.memory, batch, placed, found)
    return found, took


def _untouched(memory: Memory, batch: Batch, placed: Placed, found: Arrays) -> None:
    for one in memory.layout.regions:
        if one.role == "in" and not _same(found[one.name], memory.given(batch, one)):
            raise RejectedError("cheat", f"it wrote to its input {one.name}", cheat="writes-inputs")
    beside = memory.overwritten(batch.calls, placed)
    if beside is not None:
        raise RejectedError("cheat", f"it wrote {beside}", cheat="out-of-bounds")


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal byte by byte, in the parts of a long double that count."""
    if one.dtype == np.longdouble:
        return bool((one == other).all())
    left, right = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    # Eight bytes at a time, and those that are left by themselves.
    words = len(left) - len(left) % 8
    ends = np.array_equal(left[words:], right[words:])
    return ends and np.array_equal(left[:words].view(np.uint64), right[:words].view(np.uint64))


def judge(
    problem: Problem,
    host: Host,
    batch: Batch,
    result: Arrays,
    expected: Arrays,
    *,
    scales: Mapping[str, float] | None = None,
    slack: float = 1.0,
    beside: Arrays | None = None,
) -> float:
    """The worst relative error of a batch's outputs; tolerances are taken ``slack`` times.

    ``scales`` by output and ``beside``, another program's results: see :func:`compare`.

    Raises:
        RejectedError: a value is not near enough.
    """
    worst = 0.0
    for one in host.layout.regions:
        if one.role == "in":
            continue
        theirs = None if beside is None else beside[one.name]
        near = compare(
            result[one.name], expected[one.name], problem.rtol * slack, problem.atol * slack,
            scale=(scales or {}).get(one.name, 0.0), beside=theirs,
        )  # fmt: skip
        if not near.passed:
            raise RejectedError("check", _difference(host.memory, batch, one.name, near), error=near.error)
        worst = max(worst, near.error)
    return worst


def _difference(memory: Memory, batch: Batch, name: str, near: Compared) -> str:
    place = name if name == RESULT else f"{name}[{near.element}]"
    one = next(region for region in memory.layout.regions if region.name == name)
    given = memory.given(batch, one)
    held = given[min(near.slot or 0, len(given) - 1), near.element or 0]
    # What was not written still holds its poison, which may be NaN, and NaN equals nothing.
    if one.role == "out" and (near.got == held or np.isnan([near.got, held]).all()):
        return f"{place} was not written"
    return f"{place} is {near.got:.9g}, expected {near.expected:.9g}"
