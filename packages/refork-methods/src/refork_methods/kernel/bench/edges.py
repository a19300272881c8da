"""Where a version may go wrong that is right where it is timed: other sizes, and arrays that overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from refork_methods.kernel.bench.check import Arrays, Compared, RejectedError, compare
from refork_methods.kernel.bench.process import (
    Batch,
    FailedError,
    Host,
    Placed,
    Region,
    draw_batch,
    draw_offsets,
)
from refork_methods.kernel.problem import Problem, macros_of, names_in

#: From a size to others: its neighbours, and sizes that blocks and vectors have nothing but remainders of.
CHANGES: tuple[Callable[[int], int], ...] = (
    lambda size: size - 1, lambda size: size + 1, lambda _: 7, lambda _: 1, lambda _: 0,
)  # fmt: skip
#: The most combinations of sizes that are tried.
MOST = 16
#: Outputs beyond it, as those of a recurrence that grows, have squares that no longer mean anything.
LARGEST = 1e100


def free_sizes(problem: Problem) -> tuple[str, ...]:
    """The sizes that a caller chooses and a length follows from: no macro, whose value is compiled in."""
    used = {name for one in problem.arguments for name in names_in(one.length or "")}
    fixed = {*macros_of(problem.source, problem.flags), *problem.fixed}
    return tuple(name for name in problem.sizes if name in used and name not in fixed)


def other_sizes(problem: Problem) -> list[dict[str, int]]:
    """Sizes to try beside a problem's own: one less, one more, 7, 1 and 0, of all together and of each."""
    names = free_sizes(problem)
    groups = [names, *((name,) for name in names if len(names) > 1)]
    found: list[dict[str, int]] = []
    for group in groups:
        for change in CHANGES:
            new = problem.sizes | {name: max(0, change(problem.sizes[name])) for name in group}
            if new not in (problem.sizes, *found):
                found.append(new)
    return found[:MOST]


def resized(problem: Problem, sizes: dict[str, int]) -> Problem:
    """The problem at other sizes, whose work nobody asks for.

    Raises:
        BadInput: a length below 0, or one that these sizes do not give.
    """
    return replace(problem, sizes=sizes, flops=None, bytes=None, work_of=(None, None))


def overlapping(problem: Problem) -> list[tuple[str, str]]:
    """Pairs of arrays of one type and length, one of them written; the first is to be put on the second."""
    arrays = [one for one in problem.arguments if one.array]
    return [
        (one.name, other.name)
        for place, other in enumerate(arrays)
        for one in arrays[place + 1 :]
        if one.ctype == other.ctype and problem.length(one) == problem.length(other) > 0
        and not one.role == other.role == "in"
    ]  # fmt: skip


def aliased(host: Host, batch: Batch, placed: Placed) -> Arrays:
    """What all arrays hold after one call, but for those that were handed over as parts of others.

    Raises:
        FailedError: the kernel did not come back.
    """
    host.memory.write(batch, placed)
    host.run(1)
    found = host.memory.read(1, placed)
    return {name: values for name, values in found.items() if name not in placed.within}


def put_on(layout: Sequence[Region], placed: Placed, pair: tuple[str, str], shift: int) -> Placed:
    """The same places, with the first array of a pair ``shift`` elements into the second."""
    size = next(one.dtype.itemsize for one in layout if one.name == pair[1])
    return replace(placed, within={pair[0]: (pair[1], shift * size)})


def overlaps(
    problem: Problem, hosts: tuple[Host, Host, Host], rng: np.random.Generator, scales: dict[str, float]
) -> Iterator[tuple[tuple[str, str], int, Compared]]:
    """Pairs of arrays, and by how many elements apart, on which a candidate differs from the original.

    ``hosts``: of the candidate, of the original, and of its wider version. Where the original is itself not
    near the wider version, as a recurrence that grows is not, nothing is said.
    """
    candidate, original, precise = hosts
    for pair in overlapping(problem):
        for shift in (0, 1):
            batch = draw_batch(problem, 1, rng, "number")
            found = []
            try:
                for host in (precise, original, candidate):
                    placed = draw_offsets(host.layout, np.random.default_rng(0), "low")
                    at = put_on(host.layout.regions, placed, pair, shift)
                    found.append(aliased(host, batch, at))
            except FailedError as failed:
                if len(found) == 2:
                    raise RejectedError(
                        "check", f"where {pair[0]} and {pair[1]} overlap: {failed}", cheat="aliasing"
                    ) from None
                continue
            wanted, theirs, mine = found
            near = _worst(problem, wanted, theirs, scales, None)
            if near is not None:
                continue
            off = _worst(problem, wanted, mine, scales, theirs)
            if off is not None:
                yield pair, shift, off


def _worst(
    problem: Problem, wanted: Arrays, got: Arrays, scales: dict[str, float], beside: Arrays | None
) -> Compared | None:
    """The first array that is not near enough; None where all are."""
    for name, exact in wanted.items():
        if exact.dtype.kind == "f" and not (np.abs(exact) < LARGEST).all():
            return Compared(float("inf"), 0, 0)
        near = compare(
            got[name], exact, problem.rtol, problem.atol, scale=scales.get(name, 0.0),
            beside=None if beside is None else beside[name],
        )  # fmt: skip
        if not near.passed:
            return near
    return None
