"""One batch of calls held against what must be true of it, and against expected results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork_methods.kernel.bench.compare import Compared, compare
from refork_methods.kernel.bench.draw import Batch, Memory
from refork_methods.kernel.bench.layout import RESULT, Placed
from refork_methods.kernel.bench.process import Host, Took
from refork_methods.kernel.bench.result import Stage
from refork_methods.kernel.problem import Problem

Arrays: TypeAlias = dict[str, NDArray[Any]]


@final
class RejectedError(Exception):
    """A candidate does not stand: at which stage, why, its error if known, and the trick it looks like."""

    def __init__(self, stage: Stage, why: str, *, cheat: str = "", error: float | None = None) -> None:
        super().__init__(why)
        self.stage, self.cheat, self.error = stage, cheat, error


def called(host: Host, batch: Batch, placed: Placed) -> tuple[Arrays, Took]:
    """Call a kernel on a batch; what its arrays held when it had returned, and the time.

    Raises:
        RejectedError: it wrote to its inputs or beside its arrays. FailedError: as :meth:`Host.run`.
    """
    host.memory.write(batch, placed)
    took = host.run(batch.calls)
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
    words = len(left) - len(left) % 8
    ends = np.array_equal(left[words:], right[words:])
    return ends and np.array_equal(left[:words].view(np.uint64), right[:words].view(np.uint64))


def judge(
    problem: Problem,
    host: Host,
    batch: Batch,
    found: Arrays,
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
            found[one.name], expected[one.name], problem.rtol * slack, problem.atol * slack,
            scale=(scales or {}).get(one.name, 0.0), beside=theirs,
        )  # fmt: skip
        if not near.passed:
            raise RejectedError("check", _told(host.memory, batch, one.name, near), error=near.error)
        worst = max(worst, near.error)
    return worst


def _told(memory: Memory, batch: Batch, name: str, near: Compared) -> str:
    place = name if name == RESULT else f"{name}[{near.place}]"
    one = next(region for region in memory.layout.regions if region.name == name)
    given = memory.given(batch, one)
    held = given[min(near.slot or 0, len(given) - 1), near.place or 0]
    if one.role == "out" and (near.got == held or np.isnan([near.got, held]).all()):
        return f"{place} was not written"
    return f"{place} is {near.got:.9g}, expected {near.expected:.9g}"
