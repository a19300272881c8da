"""One form for what C writes in several: counters and sums declared where they live, pointers inlined."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.show import show
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Opaque,
    Stmt,
    Stmts,
    Unary,
    inside,
    map_expr,
    map_exprs,
    map_stmts,
    names,
    names_in,
    statements,
    within,
)  # fmt: skip

_QUALIFIERS = re.compile(
    r"__attribute__\s*\(\(.*?\)\)\)?|\b(?:const|register|static|extern|inline|restrict|__restrict(?:__)?)\b"
)
_INTEGER = re.compile(r"(?:(?:un)?signed|char|short|int|long|size_t|ssize_t|ptrdiff_t|u?int\d+_t|\s)+")

_NARROW = re.compile(r"\b(?:char|short|u?int(?:8|16)_t|_?[bB]ool)\b")
_UNSIGNED_INT = re.compile(r"unsigned(?: int)?|uint32_t")


def element(kind: str) -> str:
    """A type without its qualifiers and stars."""
    return " ".join(_QUALIFIERS.sub(" ", kind).replace("*", " ").split())


def is_integer(kind: str) -> bool:
    """Whether a type counts."""
    return bool(_INTEGER.fullmatch(element(kind)))


def is_narrow(kind: str) -> bool:
    """Whether an integer type holds less than ``int``: it drops bits, and counters begin again early."""
    return bool(_NARROW.search(element(kind)))


def keeps_int(kind: str) -> bool:
    """Whether a conversion to a type leaves a subscript as it is: to int, or to a wider integer."""
    name = element(kind)
    return is_integer(kind) and not is_narrow(kind) and not _UNSIGNED_INT.fullmatch(name)


def loops(body: Stmts, above: tuple[Loop, ...] = ()) -> Iterator[tuple[Loop, tuple[Loop, ...]]]:
    """All counted loops, outer ones first, each with those around it."""
    for stmt in body:
        if isinstance(stmt, Loop):
            yield stmt, above
            yield from loops(stmt.body, (*above, stmt))
        else:
            for part in ("body", "yes", "no"):
                yield from loops(getattr(stmt, part, ()), above)


def canonical(body: Stmts) -> Stmts:
    """A function's body in that form."""
    # Pointers first: counters that only their offsets name then stand in the subscripts themselves.
    return _sums(_settled(_pointers(_subscripts(body))))


def _subscripts(body: Stmts, around: tuple[Loop, ...] = ()) -> Stmts:
    """Pointers that each iteration moves on by the same step replaced by subscripts with the loop's counter.

    Loops with a pointer that moves in another way are not understood.
    """
    made: list[Stmt] = []
    for place, stmt in enumerate(body):
        if not isinstance(stmt, Loop):
            parts = {
                name: _subscripts(getattr(stmt, name), around)
                for name in ("body", "yes", "no")
                if hasattr(stmt, name)
            }
            made.append(replace(stmt, **parts) if parts else stmt)  # type: ignore[arg-type]
            continue
        loop = replace(stmt, body=_subscripts(stmt.body, (*around, stmt)))
        after: list[Stmt] = []
        for name in _moving(loop.body):
            walked = _subscripted(loop, name)
            own = any(isinstance(s, Declare) and s.name == name for s in body)
            # What outlives a pass of the loop around is read in the next one.
            used = (bool(around) and not own) or any(_mentions(s, name) for s in body[place + 1 :])
            if walked is None or (used and not _counted(loop, around)):
                after = [Opaque(show((stmt,)).strip())]
                break
            loop, step = walked
            if used:
                count = loop.upper
                total = count if step == Number("1") else Op("*", count, step)
                after.append(Assign(Name(name), "+=", total))
        made.extend(after if after and isinstance(after[0], Opaque) else (loop, *after))
    return tuple(made)


def _moving(body: Stmts) -> list[str]:
    """Variables that are read through, and that a statement of the body itself adds to."""
    through = {p.base.id for p in within(body) if isinstance(p, At) and isinstance(p.base, Name)}
    through |= {
        p.arg.id for p in within(body) if isinstance(p, Unary) and p.op == "*" and isinstance(p.arg, Name)
    }
    added = [s.target.id for s in statements(body) if isinstance(s, Assign) and isinstance(s.target, Name)]
    return [name for name in dict.fromkeys(added) if name in through]


def _counted(loop: Loop, around: tuple[Loop, ...]) -> bool:
    """Whether a loop runs as often as its bound says: a number, or the bound of a loop around it."""
    if loop.lower != Number("0") or loop.step != 1:
        return False
    known = [one.upper for one in around if one.lower == Number("0")]
    return isinstance(loop.upper, Number) or (isinstance(loop.upper, Name) and loop.upper in known)


def _subscripted(loop: Loop, name: str) -> tuple[Loop, Expr] | None:
    """The loop with a pointer standing still, and each iteration's step; None where that is not plain."""
    moves = [s for s in loop.body if isinstance(s, Assign) and s.target == Name(name)]
    every = [s for s in statements(loop.body) if isinstance(s, Assign) and s.target == Name(name)]
    if (
        len(moves) != 1
        or len(every) != 1
        or moves[0].op != "+="
        or loop.step != 1
        or loop.lower != Number("0")
    ):
        return None
    step, place = moves[0].value, next(n for n, s in enumerate(loop.body) if s is moves[0])
    changed = {
        s.target.id for s in statements(loop.body) if isinstance(s, Assign) and isinstance(s.target, Name)
    }
    changed |= {s.name for s in statements(loop.body) if isinstance(s, Declare)} | {loop.counter, name}
    if not isinstance(step, Number | Name) or names(step) & changed or name in names(loop.upper):
        return None
    moved: Expr = Name(loop.counter) if step == Number("1") else Op("*", Name(loop.counter), step)

    def still(part: Expr, more: Expr) -> Expr:
        match part:
            case At(base=Name(id=base), index=index) if base == name:
                return At(part.base, more if index == Number("0") else Op("+", more, index))
            case Unary(op="*", arg=Name(id=base)) if base == name:
                return At(Name(name), more)
            case _:
                return part

    body: list[Stmt] = []
    for number, stmt in enumerate(loop.body):
        if number != place:
            more = moved if number < place else Op("+", moved, step)
            body += map_exprs((stmt,), lambda expr, more=more: map_expr(expr, lambda part: still(part, more)))  # type: ignore[misc]
    uses = sum(part == Name(name) for part in within(tuple(body)))
    plain = sum(isinstance(part, At) and part.base == Name(name) for part in within(tuple(body)))
    # Passed on or compared, a pointer is more than a name for a place.
    return None if uses != plain else (replace(loop, body=tuple(body)), step)


def _sums(body: Stmts) -> Stmts:
    """Variables declared at the top (``float s;``) that every iteration sets first declared there instead."""
    for declared in [s for s in body if isinstance(s, Declare)]:
        if declared.dims or not isinstance(declared.value, Number | None):
            continue
        rest = tuple(s for s in body if s is not declared)
        users = [s for s in rest if _mentions(s, declared.name)]
        moved = [_set_first(s, declared) for s in users]
        if users and None not in moved:
            new = {id(user): loop for user, loop in zip(users, moved, strict=True) if loop is not None}
            body = tuple(new.get(id(s), s) for s in rest)
    return body


def _mentions(stmt: Stmt, name: str) -> bool:
    opaque = any(isinstance(s, Opaque) and re.search(rf"\b{name}\b", s.text) for s in statements((stmt,)))
    return opaque or name in names_in((stmt,))


def _set_first(stmt: Stmt, declared: Declare) -> Loop | None:
    """A loop whose iterations declare a variable, where each sets it before it is read."""
    name = declared.name
    if not isinstance(stmt, Loop) or name in names(stmt.lower) | names(stmt.upper):
        return None
    users = [s for s in stmt.body if _mentions(s, name)]
    # Its own counter has the name: the variable is another one.
    if not users:
        return None
    match users[0]:
        case Assign(target=Name(id=target), op="=", value=value) if target == name and name not in names(
            value
        ):
            own: Stmt = Declare(declared.type, name, (), value)
            return replace(stmt, body=tuple(own if s is users[0] else s for s in stmt.body))
        case Loop():
            inner = [_set_first(s, declared) for s in users]
            if None in inner:
                return None
            new = {id(user): loop for user, loop in zip(users, inner, strict=True) if loop is not None}
            return replace(stmt, body=tuple(new.get(id(s), s) for s in stmt.body))
        case _:
            return None


def _settled(body: Stmts) -> Stmts:
    """Loops whose counter is declared before them declare it themselves, where nothing else reads it."""
    outer = [s for s in body if isinstance(s, Declare) and not s.dims and is_integer(s.type)]
    for declared in outer:
        name = declared.name
        users = [loop for loop, _ in loops(body) if loop.counter == name]
        nested = any(
            name == above.counter for loop, path in loops(body) for above in path if loop.counter == name
        )
        rest = map_stmts(body, lambda s, name=name: () if isinstance(s, Loop) and s.counter == name else s)  # type: ignore[misc]
        rest = tuple(stmt for stmt in rest if stmt is not declared)
        opaque = any(isinstance(s, Opaque) and re.search(rf"\b{name}\b", s.text) for s in statements(body))
        if users and not nested and not opaque and name not in names_in(rest):
            kind = declared.type
            body = tuple(stmt for stmt in body if stmt is not declared)
            body = map_stmts(
                body,
                lambda s, name=name, kind=kind: (
                    replace(s, type=kind) if isinstance(s, Loop) and s.counter == name else s
                ),  # type: ignore[misc]
            )
    return map_stmts(body, lambda s: Opaque(show((s,)).strip()) if isinstance(s, Loop) and not s.type else s)


def _pointers(body: Stmts) -> Stmts:
    """Local pointers into arrays (``row = a + i * n``) replaced by what they stand for."""
    pointers = [s.name for s in statements(body) if isinstance(s, Declare) and "*" in s.type]
    for each in pointers:
        # Looked up anew: what came before has made other statements. Of two of a name neither is replaced.
        several = [s for s in statements(body) if isinstance(s, Declare) and s.name == each]
        declared = several[0]
        if len(several) != 1 or declared.value is None:
            continue
        base, offset = _aim(declared.value)
        if base is None or "(" in declared.type:
            continue
        name = declared.name
        rest = map_stmts(body, lambda s, d=declared: () if s is d else s)  # type: ignore[misc]
        uses = sum(part == Name(name) for part in within(rest))
        plain = sum(isinstance(part, At) and part.base == Name(name) for part in within(rest))
        fixed = names(base) | (set() if offset is None else names(offset))
        opaque = any(isinstance(s, Opaque) and re.search(rf"\b{name}\b", s.text) for s in statements(rest))
        # Passed on, compared or moved, a pointer is more than a name for a place.
        if uses != plain or opaque or any(_assigned(rest, one) for one in (*fixed, name)):
            continue
        # What is read from memory may have changed by the time that the pointer is used.
        if offset is not None and any(isinstance(part, At) for part in inside(offset)):
            continue

        def aim(part: Expr, name: str = name, base: Expr = base, offset: Expr | None = offset) -> Expr:
            if isinstance(part, At) and part.base == Name(name):
                return At(base, part.index if offset is None else Op("+", offset, part.index))
            return part

        body = map_exprs(rest, lambda expr: map_expr(expr, aim))
    return body


def _assigned(body: Stmts, name: str) -> bool:
    written = any(isinstance(s, Assign) and s.target == Name(name) for s in statements(body))
    return written or Unary("&", Name(name)) in within(body)


def _aim(value: Expr | None) -> tuple[Expr | None, Expr | None]:
    match value:
        case Name():
            return value, None
        case Op(op="+", left=left, right=right):
            base, offset = _aim(left)
            return base, (right if offset is None else Op("+", offset, right))
        case Unary(op="&", arg=At(base=base, index=index)):
            return base, index
        case _:
            return None, None
