"""What a problem moves at least, and smaller sizes of it for a simulation that takes long."""

from __future__ import annotations

from dataclasses import replace

from refork.errors import BadInput
from refork_methods.kernel.problem import BYTES, Problem

#: A simulated run takes about so many times as long as the kernel (ours: 20 to 150 were seen).
SLOWER = 100.0
#: Seconds that it is meant to take.
AIM = 5.0
#: Sizes below are not halved: they are widths of stencils and numbers of channels.
LEAST = 32
#: The arrays stay larger than so many first-level caches, that capacity tells.
CACHE = 4 * (48 << 10)


def array_bytes(problem: Problem, role: str = "") -> float:
    """Bytes of all arrays, or of those that are written (``out``); what is read and written counts twice."""
    total = 0.0
    for one in problem.arguments:
        if not one.array:
            continue
        size = problem.length(one) * BYTES[one.ctype]
        if role == "out":
            total += size * (one.role in ("out", "inout"))
        else:
            total += size * (2 if one.role == "inout" else 1)
    return total


def with_bytes(problem: Problem) -> tuple[Problem, list[str]]:
    """The problem with its least traffic where none was declared: each array moved once. And a note on it."""
    size = array_bytes(problem)
    if problem.bytes is not None or problem.flops is None or not size:
        return problem, []
    said = f"bytes are not declared: {size:.4g} are assumed, each array once (bytes=E)"
    return replace(problem, bytes=size), [said]


def simulated_problem(problem: Problem, seconds: float | None) -> tuple[Problem, list[str]]:
    """The same at sizes halved together until a simulation is quick; itself where it is, or cannot be.

    The halved problem has its work where the problem's work follows from its sizes.
    """
    if seconds is None or seconds * SLOWER <= AIM:
        return problem, []
    small, expected = problem, seconds * SLOWER
    while expected > AIM:
        try:
            halved = _halved(small)
        except BadInput:
            break
        if halved is None or array_bytes(halved) < CACHE:
            break
        expected *= _part(small, halved)
        small = halved
    if small is problem:
        return problem, [f"the simulated run may take {expected:.0f} s: no smaller sizes were found"]
    sizes = ", ".join(f"{name}={size}" for name, size in small.sizes.items())
    return small, [f"simulated at {sizes}: at full size it would take about {seconds * SLOWER:.0f} s"]


def _halved(problem: Problem) -> Problem | None:
    sizes = {name: size // 2 if size >= LEAST else size for name, size in problem.sizes.items()}
    return None if sizes == problem.sizes else problem.resized(sizes)


def _part(before: Problem, after: Problem) -> float:
    """What share of the work is left: by flops, else by bytes."""
    for name in ("flops", "bytes"):
        old, new = getattr(before, name), getattr(after, name)
        if old and new:
            return float(new / old)
    return array_bytes(after) / array_bytes(before)
