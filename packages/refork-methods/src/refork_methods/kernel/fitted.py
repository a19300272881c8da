"""Advice held against the source that it is about: what cannot be done there is not prescribed.

A tool reads counts, and says what mends such counts most often. Whether loops can be exchanged, tiled or
summed in parts is known from the source: from how it is nested, and from what the rewrites find legal there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import final

from refork.errors import UserError
from refork_methods.kernel.rewrite.access import fold_of
from refork_methods.kernel.rewrite.canonical import loops
from refork_methods.kernel.rewrite.moves import apply, moves
from refork_methods.kernel.rewrite.rule import innermost
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Declare,
    Loop,
    Name,
    Stmt,
    expressions,
    inside,
    names,
    statements,
    within,
)
from refork_methods.kernel.rewrite.unit import Unit, labelled, read_unit
from refork_methods.kernel.tool import Finding, Slip

GATHER = (
    "The places come from an index array: sort or block by index, so that neighbours in time are neighbours"
    " in memory, or store what is read together side by side."
)
SINGLE = "There is no loop to exchange with: store what a pass reads side by side, or pack it once for many."
CHAIN = (
    "Each result needs the one before it, so that more accumulators do not help: run several independent rows"
    " together, or sum blocks first and go through each block from its start (a blocked scan)."
)
ORDERED = "gcc keeps the order, and so does the algorithm: each result needs the one before it. "


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """A source's loops.

    ``depth``: of the deepest nest. ``gathers``: innermost loops read by way of an index array. ``chained``:
    they hand a value on to the next iteration that is used there. ``legal``: rewrites, ``restrict`` promised.
    """

    depth: int
    gathers: bool
    chained: bool
    legal: frozenset[str]


def shape_of(source: str, entry: str, flags: Sequence[str]) -> Shape | None:
    """The shape of a C function; None where it cannot be read."""
    try:
        unit = read_unit(source, entry, tuple(flags))
        slips: list[Slip] = []
        own = moves(source, entry, tuple(flags), slips)
        found = {one.name for one in own}
        for key in (one for one in own if one.name == "restrict"):
            promised, kept = apply(source, entry, tuple(flags), key)
            found |= {one.name for one in moves(promised, entry, kept, slips)}
    # A bug in a rule is the search's to tell; here it takes away no more than this look at the source.
    except (UserError, ValueError, LookupError, AttributeError, TypeError, RecursionError):
        return None
    nests = list(loops(unit.body))
    if not nests:
        return None
    inner = [labelled(unit.body)[label][0] for label in innermost(unit)]
    return Shape(
        1 + max(len(above) for _, above in nests), any(map(_gathers, inner)),
        any(_chained(unit, one) for one in inner), frozenset(found),
    )  # fmt: skip


def _gathers(loop: Loop) -> bool:
    return any(
        isinstance(part, At) and any(isinstance(p, At) for p in inside(part.index))
        for part in within(loop.body)
    )


def _chained(unit: Unit, loop: Loop) -> bool:
    """Whether an iteration uses what the one before it made, other than to add to it."""
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    before: set[str] = set()
    for stmt in statements(loop.body):
        if isinstance(stmt, Assign) and isinstance(stmt.target, Name) and stmt.target.id not in local:
            name = stmt.target.id
            others = [one for one in statements(loop.body) if one is not stmt]
            if fold_of(stmt) is not None and any(name in _read(one) for one in others):
                return True
            if stmt.op == "=" and name in before:
                return True
        if isinstance(stmt, Assign) and isinstance(stmt.target, At) and _reads_another(stmt, loop.counter):
            return True
        before |= _read(stmt)
    return False


def _reads_another(stmt: Assign, counter: str) -> bool:
    """Whether a statement reads another element of the array that it writes along a loop."""
    if not isinstance(stmt.target, At) or counter not in names(stmt.target):
        return False
    read = [part for part in inside(stmt.value) if isinstance(part, At) and part.base == stmt.target.base]
    return any(part != stmt.target and counter in names(part) for part in read)


def _read(stmt: Stmt) -> set[str]:
    if isinstance(stmt, Assign):
        return names(stmt.value) | (names(stmt.target) if isinstance(stmt.target, At) else set())
    return set().union(*(names(one) for one in expressions(stmt)))


def fitted(findings: Iterable[Finding], shape: Shape | None) -> tuple[Finding, ...]:
    """The same findings, with actions and gains that can be had in a source of this shape.

    The gains of loops exchanged or tiled were measured where that was done: they are stated where it can be,
    and not where the source cannot be read.
    """
    if shape is None:
        return tuple(
            replace(one, expected_gain=None) if one.tool in ("StridedAccess", "CapacityMiss") else one
            for one in findings
        )
    return tuple(_fitted(one, shape) for one in findings)


def _fitted(one: Finding, shape: Shape) -> Finding:
    legal = shape.legal
    match one.tool:
        case "StridedAccess" if shape.gathers:
            return replace(one, action=GATHER, expected_gain=None)
        case "StridedAccess" if shape.depth < 2:
            return replace(one, action=SINGLE, expected_gain=None)
        case "StridedAccess" if "interchange" not in legal:
            packed = "Transpose or pack the operand once: the loops cannot be exchanged as they are."
            return replace(one, action=packed, expected_gain=None)
        case "CapacityMiss" if shape.gathers:
            return replace(one, action=GATHER, expected_gain=None)
        case "CapacityMiss" if not legal & {"tile", "jam", "register_tile", "memory_sum"}:
            action = "Go over the data once for several uses of it; the loops cannot be tiled as they are."
            return replace(one, action=action, expected_gain=None)
        case "DependencyChain" if shape.chained and not legal & {"accumulators", "vector_sum"}:
            return replace(one, action=CHAIN, expected_gain=None)
        case "CpuScalarFallback" if (
            "accumulators" in one.action and shape.chained and not legal & {"accumulators", "vector_sum"}
        ):
            return replace(one, action=ORDERED + CHAIN)
        case "CpuScalarFallback" if one.action.startswith("Interchange") and (
            shape.depth < 2 or "interchange" not in legal
        ):
            return replace(one, action=GATHER if shape.gathers else SINGLE)
        case "LoadPressure" if not legal & {"jam", "register_tile"}:
            return replace(one, action="Keep what several iterations read in registers from one to the next.")
        case _:
            return one
