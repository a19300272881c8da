"""Hints to fetch what later iterations read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ramify.core.errors import BadInput
from ramify.discover.kernel.rewrite.rule import (
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
from ramify.discover.kernel.rewrite.syntax import (
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
from ramify.discover.kernel.rewrite.unit import Unit


def _reads(unit: Unit, label: str) -> dict[str, list[At]]:
    """Arrays that a loop reads at places that move with its counter, and where."""
    loop, _ = loop_at(unit, label)
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    written = {root(s.target) for s in statements(loop.body) if isinstance(s, Assign)}
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


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        try:
            arrays = _reads(unit, label)
        except BadInput:
            continue
        for array in arrays:
            yield from ({"array": array, "loop": label, "ahead": ahead} for ahead in (16, 64))


def _make(unit: Unit, given: Parameters) -> Changed:
    label, array, ahead = text_of(given, "loop"), text_of(given, "array"), count_of(given, "ahead")
    loop, _ = loop_at(unit, label)
    reads = _reads(unit, label).get(array)
    if not reads or any(isinstance(s, Do) for s in statements(loop.body)):
        raise refuse(f"loop {label} reads no {array} in order, or is told to fetch already")
    made: list[Stmt] = []
    for read in reads:
        later = put(read, {loop.counter: plus(Name(loop.counter), ahead)})
        hint = Do(Call("__builtin_prefetch", (Unary("&", later),)))
        indirect = any(isinstance(part, At) and root(part) != array for part in inside(read))
        # An index is read to find the address: it must be one that the loop would read.
        test = Op("<", plus(Name(loop.counter), ahead), loop.upper)
        made.append(If(test, (hint,)) if indirect else hint)
    return Changed(exchange(unit, loop, (replace(loop, body=(*made, *bare(loop.body)), pragmas=()),)))


RULE = Rule("prefetch", ("CapacityMiss", "StridedAccess"), _offers, _make)
