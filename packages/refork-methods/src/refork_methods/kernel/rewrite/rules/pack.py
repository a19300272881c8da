"""A tile copied to where its rows lie side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.access import values_of
from refork_methods.kernel.rewrite.depend import assigned, may_alias
from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule, exchange, loop_at, refuse, text_of
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Declare,
    Expr,
    If,
    Loop,
    Name,
    Number,
    Op,
    Pick,
    Stmts,
    bare,
    expressions,
    inside,
    map_expr,
    map_exprs,
    names,
    plus,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled, loops
from refork_methods.kernel.rewrite.vectors import unit_stride

MOST = 65536


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label, (loop, _) in labelled(unit.body).items():
        if loop.step >= 16:
            reads = {
                root(p) or ""
                for s in statements(loop.body)
                for e in expressions(s)
                for p in inside(e)
                if isinstance(p, At)
            }
            for array in sorted(reads):
                yield {"array": array, "loop": label}


def _extent(loop: Loop, nest: tuple[Loop, ...]) -> int | None:
    """How many values a loop within a tile takes at most."""
    base = next((one for one in nest if loop.lower == Name(one.counter)), None)
    if base is None or loop.step != 1:
        return None
    match loop.upper:
        case Pick(test=Op(op="<"), yes=yes) if yes == plus(Name(base.counter), base.step):
            return base.step
        case _:
            return None


def _make(unit: Unit, given: Parameters) -> Changed:
    array, label = text_of(given, "array"), text_of(given, "loop")
    loop, above = loop_at(unit, label)
    if unit.parameter(array) is None or any(may_alias(unit, array, one) for one in assigned(loop.body)):
        raise refuse(f"{array} may be written in loop {label}")
    nested = [one for one, _ in loops(loop.body)]
    if any(isinstance(s, If) for s in statements(loop.body)) or len({one.counter for one in nested}) != len(
        nested
    ):
        raise refuse(f"loop {label} does not read a whole tile")
    found = {
        p
        for s in statements(loop.body)
        for e in expressions(s)
        for p in inside(e)
        if isinstance(p, At) and root(p) == array
    }
    whole = {p for p in found if not any(p is not q and p in tuple(inside(q)) for q in found)}
    if len(whole) != 1:
        raise refuse(f"{array} is read in several ways")
    (read,) = whole
    if any(isinstance(p, At) and root(p) != array for p in inside(read)):
        raise refuse(f"{array} is read by way of another array")
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    used = [one for one in nested if one.counter in names(read)]
    extents = [_extent(one, (*above, loop)) for one in used]
    if names(read) & local or not used or len(used) == len(nested) or any(one is None for one in extents):
        raise refuse(f"{array} is not read tile by tile in loop {label}")
    order = sorted(
        zip(used, extents, strict=True), key=lambda one: unit_stride(read, one[0].counter, values_of(unit))
    )
    size = 1
    place: Expr | None = None
    for one, extent in order:
        size *= extent or 1
        step = Op("-", Name(one.counter), one.lower)
        place = step if place is None else Op("+", Op("*", place, Number(str(extent))), step)
    assert place is not None
    if size > MOST or not unit.kind(array):
        raise refuse(f"a tile of {array} has {size} numbers")
    buffer = unit.fresh(f"{array}_tile")
    packed = At(Name(buffer), place)
    copy: Stmts = (Assign(packed, "=", read),)
    for one, _ in reversed(order):
        copy = (replace(one, body=copy, pragmas=()),)
    body = map_exprs(bare(loop.body), lambda e: map_expr(e, lambda p: packed if p == read else p))
    held = Declare(f"__attribute__((aligned(64))) {unit.kind(array)}", buffer, (Number(str(size)),))
    return Changed(exchange(unit, loop, (replace(loop, body=(held, *copy, *body), pragmas=()),)))


RULE = Rule("pack", ("ConflictMiss", "CapacityMiss", "StridedAccess"), _offers, _make)
