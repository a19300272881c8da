"""Loops that follow each other made one, and one made two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from refork.errors import BadInput
from refork_methods.kernel.rewrite.depend import in_order
from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule, exchange, loop_at, refuse, text_of
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    Declare,
    Expr,
    Loop,
    Name,
    Note,
    Number,
    Stmt,
    Stmts,
    bare,
    code,
    map_stmts,
    names,
    names_in,
    put_in,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled

#: A body of more statements, such as an unrolled one, is not offered to be split.
LONGEST = 8


def _bodies(body: Stmts) -> Iterator[Stmts]:
    yield body
    for stmt in statements(body):
        for part in ("body", "yes", "no"):
            inner: Any = getattr(stmt, part, None)
            if inner:
                yield inner


def _following(unit: Unit, loop: Loop) -> tuple[Stmts, Loop]:
    """The next loop beside one, and the plain declarations between them.

    Raises:
        BadInput: something else stands there.
    """
    for body in _bodies(unit.body):
        place = next((number for number, stmt in enumerate(body) if stmt is loop), None)
        if place is None:
            continue
        between: list[Stmt] = []
        for stmt in body[place + 1 :]:
            match stmt:
                case Loop():
                    return tuple(between), stmt
                case Declare(value=None | Number()):
                    between.append(stmt)
                case Note():
                    pass
                case _:
                    break
    raise refuse(f"no loop follows {loop.counter}")


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    known = labelled(unit.body)
    by_loop = {id(loop): label for label, (loop, _) in known.items()}
    for label, (loop, _) in known.items():
        try:
            yield {"first": label, "second": by_loop[id(_following(unit, loop)[1])]}
        except BadInput:
            continue


def _fuse(unit: Unit, given: Parameters) -> Changed:
    label = text_of(given, "first")
    loop, above = loop_at(unit, label)
    between, second = _following(unit, loop)
    other = next(name for name, (one, _) in labelled(unit.body).items() if one is second)
    if other != text_of(given, "second"):
        raise refuse(f"{given['second']} does not follow {label}")
    loop_at(unit, other)
    own: dict[str, Expr] = {second.counter: Name(loop.counter)}
    taken = names_in((loop,))
    for stmt in statements(second.body):
        name = stmt.name if isinstance(stmt, Declare) else stmt.counter if isinstance(stmt, Loop) else ""
        if name and name in taken and isinstance(stmt, Declare):
            own[name] = Name(unit.fresh(name))
    body = put_in(bare(second.body), own)
    if (loop.lower, loop.upper, loop.step) != (second.lower, second.upper, second.step):
        raise refuse(f"{label} and {other} do not count alike")
    if _writes(unit, loop, second) or loop.type != second.type:
        raise refuse(f"the bounds of {other} change")
    joined = replace(loop, body=(*bare(loop.body), *body), pragmas=())
    in_order(unit, bare(loop.body), body, joined, above)
    moved = tuple(replace(one) for one in between)
    changed = exchange(exchange(unit, second, ()), loop, (*moved, joined))
    for declared in between:
        changed = _without(changed, declared)
    return Changed(changed)


def _writes(unit: Unit, loop: Loop, second: Loop) -> bool:
    """Whether the first loop changes the second one's bounds."""
    written = {
        s.target.id for s in statements(loop.body) if isinstance(s, Assign) and isinstance(s.target, Name)
    }
    return bool(written & (names(second.lower) | names(second.upper)))


def _without(unit: Unit, stmt: Stmt) -> Unit:
    return replace(unit, body=map_stmts(unit.body, lambda one: () if one is stmt else one))


def _places(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label, (loop, _) in labelled(unit.body).items():
        places = len(code(loop.body))
        for place in range(1, places if places <= LONGEST else 1):
            yield {"loop": label, "at": place}


def _split(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    place = given.get("at")
    body = code(bare(loop.body))
    if not isinstance(place, int) or not 0 < place < len(body):
        raise refuse(f"loop {loop.counter} has no place {place}")
    first, second = body[:place], body[place:]
    in_order(unit, first, second, loop, above)
    return Changed(
        exchange(unit, loop, (replace(loop, body=first, pragmas=()), replace(loop, body=second, pragmas=())))
    )


FUSE = Rule("fuse", ("BandwidthRoof", "StoreTraffic", "CapacityMiss"), _offers, _fuse)
SPLIT = Rule("split", ("CpuRegisterSpill", "CpuScalarFallback"), _places, _split)
