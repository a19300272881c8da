"""A small table of counts kept in several copies, so that increments do not wait for each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.access import fold_of
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    cut,
    exchange,
    innermost,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.rules.unroll import scoped
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
    Stmt,
    Stmts,
    code,
    expressions,
    inside,
    map_expr,
    map_exprs,
    plus,
    put_in,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, is_integer

#: Entries of a table that is copied; a longer one is used as it is.
ROOM = 4096
#: From one copy to the next. A processor takes a read for one of what was just written where the low 12 bits
#: of the two addresses agree: equal entries of copies a multiple of 4096 bytes apart would wait again.
STRIDE = ROOM + 80


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield from ({"loop": label, "copies": copies} for copies in (4, 8, 2))


def length_of(unit: Unit, array: str) -> tuple[Expr, str]:
    """How long a table is, and what has to be promised for it."""
    known = unit.parameter(array)
    if known is not None and known.dims and len(known.dims) == 1 and known.dims[0] is not None:
        return known.dims[0], ""
    if array in unit.lengths:
        return unit.lengths[array], ""
    for stmt in unit.body:
        match stmt:
            case Loop(counter=counter, lower=Number(text="0"), upper=upper, step=1, body=body):
                match code(body):
                    case (Assign(target=At(base=Name(id=name), index=Name(id=at)), op="=", value=Number()),):
                        if name == array and at == counter:
                            return upper, f"indices of {array} below its length"
            case _:
                pass
    raise refuse(f"the length of {array} is not known")


def table_of(unit: Unit, loop: Loop) -> str:
    """The table that a loop counts into, and does not read."""
    scattered = {
        root(s.target) or ""
        for s in statements(loop.body)
        if isinstance(s, Assign) and isinstance(s.target, At) and isinstance(s.target.base, Name)
        and (folded := fold_of(s)) is not None and folded[0] == "+"
        and any(isinstance(p, At) for p in inside(s.target.index))
    }  # fmt: skip
    if len(scattered) != 1:
        raise refuse(f"loop {loop.counter} counts into no one table")
    (array,) = scattered
    uses = sum(
        1 for s in statements(loop.body) for e in expressions(s) for p in inside(e) if p == Name(array)
    )
    writes = sum(1 for s in statements(loop.body) if isinstance(s, Assign) and root(s.target) == array)
    if uses != writes:
        raise refuse(f"{array} is read in loop {loop.counter}")
    return array


def _make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    copies = count_of(given, "copies", 16)
    if any(isinstance(s, Loop | If) for s in statements(loop.body)) or loop.step != 1:
        raise refuse("only plain innermost loops", f"loop {loop.counter}")
    array = table_of(unit, loop)
    length, assumes = length_of(unit, array)
    kind = unit.kind(array)
    parallel(unit, loop, above)
    if not kind:
        raise refuse(f"the type of {array} is not known")
    own, entry = unit.fresh(f"{array}_private"), unit.fresh("entry")
    before, end = cut(unit, loop, copies)
    size = Number(str((copies - 1) * STRIDE))
    zeros = tuple(Assign(_place(own, number, Name(entry)), "=", Number("0")) for number in range(1, copies))
    clear = Loop(entry, "int", Number("0"), length, 1, zeros)
    body: list[Stmt] = []
    for number in range(copies):
        copied = put_in(code(loop.body), {loop.counter: plus(Name(loop.counter), number)})
        body.extend(scoped(_moved(copied, array, own, number)))
    total: Expr = _place(own, 1, Name(entry))
    for number in range(2, copies):
        total = Op("+", total, _place(own, number, Name(entry)))
    merge = Loop(entry, "int", Number("0"), length, 1, (Assign(At(Name(array), Name(entry)), "+=", total),))
    main = replace(loop, upper=end, step=copies, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    fits: Stmts = (Declare(kind, own, (size,)), clear, *before, main, rest, merge)
    test = Op("<=", length, Number(str(ROOM)))
    made = If(test, fits, (replace(loop, pragmas=()),))
    return Changed(exchange(unit, loop, (made,)), not is_integer(kind), assumes)


def _place(own: str, number: int, index: Expr) -> At:
    return At(Name(own), index if number == 1 else Op("+", Number(str((number - 1) * STRIDE)), index))


def _moved(body: Stmts, array: str, own: str, number: int) -> Stmts:
    """Statements that count into one of the copies."""
    if number == 0:
        return body

    def moved(part: Expr) -> Expr:
        return _place(own, number, part.index) if isinstance(part, At) and part.base == Name(array) else part

    return map_exprs(body, lambda expr: map_expr(expr, moved))


RULE = Rule("private_table", ("DependencyChain", "StoreTraffic"), _offers, _make)
