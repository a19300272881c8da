"""A block of sums held in vector registers: the micro-kernel of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import values_of
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    cut,
    exchange,
    inner_of,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.rules.memory_sum import is_zero
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Braces,
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Stmt,
    Stmts,
    bare,
    code,
    names,
    plus,
    put,
    put_in,
    root,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled
from refork_methods.kernel.rewrite.vector_helpers import with_helpers
from refork_methods.kernel.rewrite.vectors import lanes_of, stored, unit_stride, vector_type, widened

ROWS, WIDTHS = (4, 6, 8), (1, 2, 3)


@final
@dataclass(frozen=True, slots=True)
class _Nest:
    """Rows, columns (along memory), the loops that sum, what is summed where, and the body of a column."""

    rows: Loop
    columns: Loop
    sums: tuple[Loop, ...]
    target: At
    addend: Expr
    sign: str
    stores: str
    body: Stmts


def _chain(loop: Loop) -> tuple[list[Loop], Stmts]:
    chain = [loop]
    while (inner := inner_of(chain[-1])) is not None:
        chain.append(inner)
    return chain, code(chain[-1].body)


def _find(unit: Unit, top: Loop) -> _Nest:
    """The sum under a loop over rows.

    Raises:
        BadInput: it is of another form.
    """
    chain, last = _chain(top)
    match last:
        case (Assign(target=At() as target, op="+=" | "-=" as sign, value=addend),):
            inside = [one for one in chain if one.counter in names(target)]
            sums = tuple(one for one in chain[1:] if one.counter not in names(target))
            if len(inside) != 2 or top not in inside or not sums:
                raise refuse("no sums over rows and columns")
            columns = next(one for one in inside if one is not top)
            rows, stores = top, ""
            body = (Assign(target, sign, addend),)
            for one in reversed(sums):
                body = (replace(one, body=body, pragmas=()),)  # type: ignore[assignment]
            found = _Nest(rows, columns, sums, target, addend, sign, stores, body)
        case (
            Declare(name=name, dims=(), value=start),
            Loop() as loop,
            Assign(target=At() as target, op=stores, value=Name(id=kept)),
        ):
            inner, only = _chain(loop)
            match only:
                case (Assign(target=Name(id=summed), op="+=" | "-=" as sign, value=addend),):
                    pass
                case _:
                    raise refuse("more than a sum in the loop")
            if (
                len(chain) < 2
                or not name == kept == summed
                or not is_zero(start)
                or stores not in ("=", "+=")
            ):
                raise refuse("no sums over rows and columns")
            if unit.kind(name) != unit.kind(root(target) or "") or len(chain) != 2:
                raise refuse("the sum is of another type than the array")
            found = _Nest(top, chain[1], tuple(inner), target, addend, sign, stores, chain[1].body)
        case _:
            raise refuse("no sums over rows and columns")
    return found


def _checked(unit: Unit, found: _Nest, above: tuple[Loop, ...]) -> bool:
    loops = (found.rows, found.columns, *found.sums)
    for loop in loops:
        used = names(loop.lower) | names(loop.upper)
        if used & {one.counter for one in (found.rows, found.columns)} or (
            loop.step != 1 and loop not in found.sums
        ):
            raise refuse(f"the bounds of {loop.counter} change in the nest")
    if not unit_stride(found.target, found.columns.counter, values_of(unit)):
        raise refuse("the columns do not lie along memory")
    rounds = parallel(unit, found.rows, above)
    # The columns are independent as well: the place of each sum is its own.
    path: list[Loop] = [*above]
    inner = found.rows
    while inner is not found.columns:
        path.append(inner)
        following = inner_of(inner)
        assert following is not None
        inner = following
    return parallel(unit, found.columns, tuple(path)) or rounds


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label, (loop, _) in labelled(unit.body).items():
        try:
            found = _find(unit, loop)
            lanes = lanes_of(unit, unit.kind(root(found.target) or ""))
        except BadInput:
            continue
        for rows, width in product(ROWS, WIDTHS):
            yield {"loop": label, "rows": rows, "columns": lanes * width}


def _micro(unit: Unit, found: _Nest, rows: int, width: int) -> Stmts:
    """Sums of ``rows`` by ``width`` vectors from the counters on."""
    kind = unit.kind(root(found.target) or "")
    lanes, values = lanes_of(unit, kind), values_of(unit)
    vector = vector_type(kind, lanes)[0]
    start: list[Stmt] = []
    adds: list[Stmt] = []
    stores: list[Stmt] = []
    for row in range(rows):
        for place in range(width):
            at: dict[str, Expr] = {
                found.rows.counter: plus(Name(found.rows.counter), row),
                found.columns.counter: plus(Name(found.columns.counter), place * lanes),
            }
            target = put(found.target, at)
            assert isinstance(target, At)
            held = Name(f"sum_{row}_{place}")
            memory = stored(target, kind, lanes)
            start.append(Declare(vector, held.id, (), Braces((Number("0"),)) if found.stores else memory))
            addend = put(widened(unit, found.addend, found.columns.counter, kind, lanes, values), at)
            adds.append(Assign(held, found.sign, addend))
            stores.append(Assign(memory, found.stores or "=", held))
    inner: Stmts = tuple(adds)
    for loop in reversed(found.sums):
        inner = (replace(loop, body=inner, pragmas=()),)
    return (*start, *inner, *stores)


def _make(unit: Unit, given: Parameters) -> Changed:
    top, above = loop_at(unit, text_of(given, "loop"))
    rows, columns = count_of(given, "rows", 16), count_of(given, "columns", 128)
    found = _find(unit, top)
    kind = unit.kind(root(found.target) or "")
    lanes = lanes_of(unit, kind)
    if columns % lanes or not _vectors(unit, found, kind, lanes):
        raise refuse(f"{columns} is no number of full vectors of {lanes}")
    rounds = _checked(unit, found, above)
    before, row_end = cut(unit, found.rows, rows)
    declared, column_end = cut(unit, found.columns, columns)
    wide, middle = columns // lanes, replace(found.columns, lower=column_end)
    narrow, middle_end = cut(unit, middle, lanes, "narrow") if columns > lanes else ((), column_end)
    counter = found.rows.counter
    one_row = unit.fresh(f"{counter}_rest")

    def across(count: int) -> Stmts:
        micro = _micro(unit, found, count, wide)
        made = [replace(found.columns, upper=column_end, step=columns, body=micro, pragmas=())]
        if columns > lanes:
            micro = _micro(unit, found, count, 1)
            made.append(replace(middle, upper=middle_end, step=lanes, body=micro, pragmas=()))
        rest: Stmts = (replace(found.columns, lower=middle_end, body=bare(found.body), pragmas=()),)
        if count > 1:
            last = plus(Name(counter), count)
            rest = (
                Loop(
                    one_row, found.rows.type, Name(counter), last, 1, put_in(rest, {counter: Name(one_row)})
                ),
            )
        return (*made, *rest)

    main = replace(found.rows, upper=row_end, step=rows, body=across(rows), pragmas=())
    rest = replace(found.rows, lower=row_end, body=across(1), pragmas=())
    changed = exchange(unit, found.rows, (*before, *declared, *narrow, main, rest))
    return Changed(with_helpers(changed), rounds)


def _vectors(unit: Unit, found: _Nest, kind: str, lanes: int) -> bool:
    """Whether the addend has anything to read along the columns."""
    made = widened(unit, found.addend, found.columns.counter, kind, lanes, values_of(unit))
    return made != found.addend


RULE = Rule(
    "register_tile", ("LoadPressure", "StoreTraffic", "DependencyChain", "CpuScalarFallback"), _offers, _make
)
