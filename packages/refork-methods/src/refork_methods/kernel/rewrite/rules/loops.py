"""Loops exchanged, cut into tiles, unrolled, made one and made two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import accesses, fold_of
from refork_methods.kernel.rewrite.canonical import is_narrow
from refork_methods.kernel.rewrite.depend import exchangeable, in_order, may_alias, parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    cut,
    every_loop,
    exchange,
    guarded,
    inner_of,
    innermost,
    loop_at,
    offer,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
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
    inside,
    least,
    map_expr,
    map_exprs,
    map_stmts,
    names,
    names_in,
    plus,
    put_in,
    root,
    scoped,
    statements,
)
from refork_methods.kernel.rewrite.unit import Unit, labelled

ZEROS = ("0", "0.0", "0.0f", "0.f", "0.", "0.0F")


def is_zero(expr: Expr | None) -> bool:
    """Whether an expression is a literal zero."""
    return isinstance(expr, Number) and expr.text in ZEROS


def expose(unit: Unit, label: str) -> tuple[Unit, bool]:
    """``s = 0; for (k) s += e; t = s;`` as ``t = 0`` in a nest of its own and ``t += e`` in a perfect one.

    ``t = 0; for (k) t += e;`` is parted in the same way.

    The loop has the same label afterwards but for a count. Returns whether rounding may change.

    Raises:
        BadInput: the loop is not of this form, or the order of the parts matters.
    """
    loop, above = loop_at(unit, label)
    if not above:
        raise refuse(f"no loop around {label}")
    parent = above[-1]
    match code(parent.body):
        case (Assign(target=At(), op="=") as start_, Loop() as inner) if inner is loop:
            return _parted(unit, above, (start_,), bare((loop,))), False
        case (
            Declare(name=name, dims=(), value=start),
            Loop() as inner,
            Assign(target=At() as target, op=op, value=Name(id=stored)),
        ):
            if inner is not loop or name != stored or start is None or op not in ("=", "+="):
                raise refuse(f"loop {label} holds no sum")
        case _:
            raise refuse(f"loop {label} holds no sum in a variable")
    array = root(target) or ""
    # Of t += s only the zero of s may go: the sum then runs on from t itself.
    if op == "+=" and not is_zero(start):
        raise refuse("the sum starts at another value")
    if unit.kind(name) != unit.kind(array) or not unit.kind(array):
        raise refuse("the sum is of another type than the array")
    used = [one for one in accesses(unit, loop.body, (*above, loop)) if one.array != name]
    if any(may_alias(unit, one.array, array) for one in used) or names(target) & {loop.counter}:
        raise refuse(f"{array} may be read in the loop", "memory_sum")
    body = map_exprs(
        bare((loop,)), lambda expr: map_expr(expr, lambda part: target if part == Name(name) else part)
    )
    first: Stmts = () if op == "+=" else (Assign(target, "=", start),)
    return _parted(unit, above, first, body), op == "+="


def _parted(unit: Unit, above: tuple[Loop, ...], first: Stmts, second: Stmts) -> Unit:
    """Both parts in the nest, each in one of its own as far out as order allows."""
    # From the inside out, while a loop is all of the body of the one around it.
    level = len(above) - 1
    one, two = first, second
    outer: Loop = above[level]
    changed = exchange(unit, outer, (replace(outer, body=(*one, *two), pragmas=()),))
    while level >= 0:
        outer = above[level]
        if first:
            in_order(changed, one, two, replace(outer, body=(*one, *two)), above[:level])
        one = (replace(outer, body=one, pragmas=()),) if first else ()
        two = (replace(outer, body=two, pragmas=()),)
        new = (*one, *two)
        changed = exchange(unit, outer, new)
        if level == 0 or inner_of(above[level - 1]) is not outer:
            break
        level -= 1
    return changed


def with_exposed(unit: Unit, label: str) -> tuple[Unit, bool]:
    """The kernel with a loop's sum exposed where it is one, and whether rounding may change."""
    try:
        return expose(unit, label)
    except BadInput:
        return unit, False


def _to_memory(unit: Unit, given: Parameters) -> Changed:
    return Changed(*expose(unit, text_of(given, "loop")))


def _to_scalar(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    nest = (*above, loop)
    for stmt in code(loop.body):
        if not isinstance(stmt, Assign) or not isinstance(stmt.target, At) or fold_of(stmt) is None:
            continue
        target, array = stmt.target, root(stmt.target) or ""
        varying = {loop.counter} | {s.name for s in loop.body if isinstance(s, Declare)}
        if names(target) & varying or any(isinstance(p, At) for i in [target.index] for p in inside(i)):
            continue
        own = Name(unit.fresh(f"{array}_sum"))
        changed = map_exprs(bare(loop.body), lambda e: map_expr(e, lambda p: own if p == target else p))  # noqa: B023
        held = Declare(unit.kind(array), own.id, (), target)
        first = _set_before(loop, above, target)
        if first is not None:
            held = replace(held, value=first.value)
        trial = exchange(
            unit, loop, (held, replace(loop, body=changed, pragmas=()), Assign(target, "=", own))
        )
        if not unit.kind(array) or any(
            one.array != own.id and may_alias(unit, one.array, array)
            for one in accesses(trial, changed, nest)
        ):
            continue
        made = (held, replace(loop, body=changed, pragmas=()), Assign(target, "=", own))
        if first is not None:
            # The place was written anyway, so it may be where the loop never runs.
            return Changed(_without(exchange(unit, loop, made), first))
        # A loop that never runs must not read or write the place: it may lie beyond the array.
        return Changed(exchange(unit, loop, guarded(unit, loop, above, made)))
    raise refuse("no sum of the loop is held in memory")


def _set_before(loop: Loop, above: tuple[Loop, ...], target: At) -> Assign | None:
    """The statement right before a loop that sets a place to a number or variable; None: there is none."""
    body = code(above[-1].body) if above else ()
    for stmt, following in pairwise(body):
        if following is loop and isinstance(stmt, Assign) and (stmt.target, stmt.op) == (target, "="):
            return stmt if isinstance(stmt.value, Number | Name) else None
    return None


TO_MEMORY = Rule("memory_sum", ("StridedAccess", "CapacityMiss"), offer(every_loop), _to_memory)
TO_SCALAR = Rule(
    "scalar_sum", ("StoreTraffic", "DependencyChain", "CpuScalarFallback"), offer(innermost), _to_scalar
)


def _interchange_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    known = labelled(unit.body)
    by_loop = {id(loop): label for label, (loop, _) in known.items()}
    for label, (_, above) in known.items():
        if above:
            yield {"outer": by_loop[id(above[-1])], "inner": label}


def _interchange_make(unit: Unit, given: Parameters) -> Changed:
    label = text_of(given, "inner")
    loop, above = loop_at(unit, label)
    if not above or labelled(unit.body).get(text_of(given, "outer"), (None,))[0] is not above[-1]:
        raise refuse(f"{label} is not right inside of {given['outer']}")
    # A sum in a variable stands between the two loops; held in memory, it does not.
    if inner_of(above[-1]) is not loop:
        unit, _ = with_exposed(unit, label)
        loop, above = loop_at(unit, label)
    outer = above[-1]
    loop_at(unit, next(name for name, (one, _) in labelled(unit.body).items() if one is outer))
    if inner_of(outer) is not loop:
        raise refuse(f"{outer.counter} and {label} are not perfectly nested")
    if outer.counter in names(loop.lower) | names(loop.upper):
        raise refuse(f"the bounds of {label} depend on {outer.counter}")
    rounds = exchangeable(unit, outer, loop, above[:-1])
    within = replace(outer, body=bare(loop.body), pragmas=())
    return Changed(exchange(unit, outer, (replace(loop, body=(within,), pragmas=()),)), rounds)


INTERCHANGE = Rule(
    "interchange",
    ("StridedAccess", "CpuScalarFallback", "CapacityMiss"),
    _interchange_offers,
    _interchange_make,
)


SIZES = (16, 32, 64, 128, 256)


def _tile_make(unit: Unit, given: Parameters) -> Changed:
    label, size = text_of(given, "loop"), count_of(given, "size")
    loop, above = loop_at(unit, label)
    if above and inner_of(above[-1]) is not loop:
        unit, _ = with_exposed(unit, label)
        loop, above = loop_at(unit, label)
    if loop.step != 1 or any(loop.lower == Name(one.counter) for one in above):
        raise refuse(f"{label} is tiled already")
    # The loop over tiles moves out over as many loops as order allows.
    rounds, level = False, len(above)
    while level > 0 and inner_of(above[level - 1]) is (above[level] if level < len(above) else loop):
        outer = above[level - 1]
        if outer.counter in names(loop.lower) | names(loop.upper):
            break
        try:
            rounds = exchangeable(unit, outer, loop, above[: level - 1], above[level:]) or rounds
        except BadInput:
            break
        level -= 1
    nested = inner_of(loop) is not None
    if level == len(above) and not (nested and not above):
        raise refuse(f"no loop around {label} that its tiles could move over")
    base = unit.fresh(f"{loop.counter}0")
    within = replace(
        loop,
        lower=Name(base),
        upper=least(plus(Name(base), size), loop.upper),
        body=bare(loop.body),
        pragmas=(),
    )
    top = above[level] if level < len(above) else loop
    inner: Loop = within
    for outer in reversed(above[level:]):
        inner = replace(outer, body=(inner,), pragmas=())
    tiles = Loop(base, loop.type, loop.lower, loop.upper, size, (inner,))
    # The last step over tiles may pass the largest number of the type, and begin again at the least.
    if is_narrow(loop.type):
        raise refuse(f"{label} counts in too small a type")
    return Changed(exchange(unit, top, (tiles,)), rounds)


TILE = Rule(
    "tile", ("CapacityMiss", "StridedAccess", "ConflictMiss"), offer(every_loop, size=SIZES), _tile_make
)


def _unroll(unit: Unit, given: Parameters) -> Changed:
    loop, _ = loop_at(unit, text_of(given, "loop"))
    times = count_of(given, "times", 64)
    if any(isinstance(stmt, Loop) for stmt in statements(loop.body)):
        raise refuse("only innermost loops are unrolled", f"loop {loop.counter}")
    if loop.step > 16:
        raise refuse("the loop takes large steps already", f"loop {loop.counter}")
    before, end = cut(unit, loop, times * loop.step)
    body: list[Stmt] = []
    for number in range(times):
        body.extend(
            scoped(put_in(code(loop.body), {loop.counter: plus(Name(loop.counter), number * loop.step)}))
        )
    main = replace(loop, upper=end, step=times * loop.step, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    return Changed(exchange(unit, loop, (*before, main, rest)))


def _outer(unit: Unit) -> list[str]:
    """Labels of loops that hold another."""
    inner = set(innermost(unit))
    return [label for label in labelled(unit.body) if label not in inner]


def join(unit: Unit, body: Stmts, counter: str, offsets: list[int]) -> Stmts:
    """Iterations at several offsets of a counter, loops inside joined into one each.

    Raises:
        BadInput: the bounds of a loop inside differ from iteration to iteration.
    """
    local = [s.name for s in statements(body) if isinstance(s, Declare)]
    maps: list[dict[str, Expr]] = []
    for number, offset in enumerate(offsets):
        renamed: dict[str, Expr] = {name: Name(unit.fresh(f"{name}_{number}")) for name in local if number}
        maps.append(renamed | {counter: plus(Name(counter), offset)})
    return _joined(body, counter, set(local), maps)


def _joined(body: Stmts, counter: str, local: set[str], maps: list[dict[str, Expr]]) -> Stmts:
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            if (names(stmt.lower) | names(stmt.upper)) & ({counter} | local):
                raise refuse(f"the bounds of {stmt.counter} change with {counter}")
            # One loop for all copies: their iterations then share what they read, which is the point of it.
            made.append(replace(stmt, body=_joined(stmt.body, counter, local, maps)))
        elif isinstance(stmt, Note):
            made.append(stmt)
        else:
            for values in maps:
                made.extend(put_in((stmt,), values))
    return tuple(made)


def _jam(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    times = count_of(given, "times", 16)
    if not any(isinstance(stmt, Loop) for stmt in code(loop.body)):
        raise refuse("no loop inside to join", f"loop {loop.counter}")
    if loop.step > 1:
        raise refuse("the loop takes larger steps already", f"loop {loop.counter}")
    rounds = parallel(unit, loop, above)
    before, end = cut(unit, loop, times)
    body = join(unit, bare(loop.body), loop.counter, list(range(times)))
    main = replace(loop, upper=end, step=times, body=body, pragmas=())
    rest = replace(loop, lower=end, body=loop.body, pragmas=())
    return Changed(exchange(unit, loop, (*before, main, rest)), rounds)


# Sums keep their order: no chain is broken.
UNROLL = Rule("unroll", ("PortPressure", "BranchMiss"), offer(innermost, times=(2, 4, 8)), _unroll)
JAM = Rule(
    "jam", ("LoadPressure", "StoreTraffic", "DependencyChain"), offer(_outer, times=(2, 4, 6, 8)), _jam
)


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


def _joined_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
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
    # A variable of the second loop gets another name where the first one has it too.
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
    # Copies: statements are told apart by identity, and the old ones are taken out below.
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


def _split_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
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


FUSE = Rule("fuse", ("BandwidthRoof", "StoreTraffic", "CapacityMiss"), _joined_offers, _fuse)
SPLIT = Rule("split", ("CpuRegisterSpill", "CpuScalarFallback"), _split_offers, _split)
