"""Hints to fetch what later iterations read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import values_of
from refork_methods.kernel.rewrite.affine import Poly, add, poly
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    exchange,
    innermost,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Call,
    Declare,
    Do,
    If,
    Name,
    Op,
    Stmt,
    Unary,
    bare,
    expressions,
    inside,
    names,
    plus,
    put,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit
from refork_methods.kernel.rewrite.vector_helpers import LINE, SIZES

#: All arrays that a loop reads in order.
ALL = "all"
#: Counts ahead: a few lines, and as far as memory is late when it is asked for several streams.
AHEAD = (16, 64, 512)


def _reads(unit: Unit, label: str) -> dict[str, list[At]]:
    """Arrays that a loop reads at places that move with its counter, and where."""
    loop, _ = loop_at(unit, label)
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    stores = [s.target for s in statements(loop.body) if isinstance(s, Assign)]
    # Of a vector that is stored, too: its place is the address of a subscript.
    written = {
        root(part) for one in stores for part in (one, *(p.arg for p in inside(one) if isinstance(p, Unary)))
    }
    found: dict[str, list[At]] = {}
    for stmt in loop.body:
        if isinstance(stmt, Assign | Declare):
            for part in (p for e in expressions(stmt) for p in inside(e)):
                array = root(part) if isinstance(part, At) else None
                if not isinstance(part, At) or array is None or array in written:
                    continue
                if loop.counter in names(part) and not names(part) & local and unit.parameter(array):
                    found.setdefault(array, [])
                    found[array].extend([] if part in found[array] else [part])
    return found


def _indirect(read: At) -> bool:
    """Whether an index is itself read from memory."""
    return any(isinstance(part, At) and part != read for part in inside(read))


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        try:
            found = _reads(unit, label)
        except BadInput:
            continue
        ordered = [array for array, reads in found.items() if not any(map(_indirect, reads))]
        arrays = [one for one in found if one not in ordered]
        # Streams that are read side by side end their wait together, or not at all.
        for array in ([ALL] if len(ordered) > 1 else ordered) + arrays:
            for ahead in AHEAD:
                yield {"array": array, "loop": label, "ahead": ahead}


def _lines(unit: Unit, reads: list[At]) -> list[At]:
    """One read of each line of the caches, as far as subscripts tell."""
    values = values_of(unit)
    kept: list[tuple[At, Poly | None]] = []
    for read in reads:
        place = poly(read.index, values)
        size = SIZES.get(unit.kind(root(read) or ""), LINE)
        gaps = [
            add(place, other, -1)
            for one, other in kept
            if place is not None and other is not None and one.base == read.base
        ]
        if not any(set(gap) <= {()} and abs(gap.get((), 0)) * size < LINE for gap in gaps):
            kept.append((read, place))
    return [read for read, _ in kept]


def _make(unit: Unit, given: Parameters) -> Changed:
    label, array, ahead = text_of(given, "loop"), text_of(given, "array"), count_of(given, "ahead")
    loop, _ = loop_at(unit, label)
    found = _reads(unit, label)
    if array == ALL:
        reads = [read for some in found.values() if not any(map(_indirect, some)) for read in some]
    else:
        reads = found.get(array, [])
    if not reads or any(isinstance(s, Do) for s in statements(loop.body)):
        raise refuse(f"loop {loop.counter} reads no {array} in order, or is told to fetch already")
    made: list[Stmt] = []
    for read in _lines(unit, reads):
        later = put(read, {loop.counter: plus(Name(loop.counter), ahead)})
        hint = Do(Call("__builtin_prefetch", (Unary("&", later),)))
        # An index is read to find the address: it must be one that the loop would read.
        test = Op("<", plus(Name(loop.counter), ahead), loop.upper)
        made.append(If(test, (hint,)) if _indirect(read) else hint)
    return Changed(exchange(unit, loop, (replace(loop, body=(*made, *bare(loop.body)), pragmas=()),)))


RULE = Rule("prefetch", ("CapacityMiss", "StridedAccess"), _offers, _make)
