"""Sums and tables of counts held elsewhere: in several variables, vectors, registers or copies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import fold_of, values_of
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Given,
    Parameters,
    Rule,
    count_of,
    cut,
    exchange,
    inner_of,
    innermost,
    loop_at,
    offer,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.rules.hints import SIMD_FLAG
from refork_methods.kernel.rewrite.rules.loops import (
    is_zero,
)
from refork_methods.kernel.rewrite.rules.memory import AHEAD, ALL, PREFETCH
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Braces,
    Declare,
    Expr,
    If,
    Loop,
    Name,
    Number,
    Op,
    Pick,
    Stmt,
    Stmts,
    bare,
    code,
    inside,
    map_expr,
    map_exprs,
    names,
    plus,
    put,
    put_in,
    root,
    scoped,
    statements,
    within,
)
from refork_methods.kernel.rewrite.unit import Unit, labelled
from refork_methods.kernel.rewrite.vectors import (
    lanes_of,
    stored,
    unit_stride,
    vector_type,
    widened,
    with_helpers,
)


def folded(unit: Unit, loop: Loop) -> dict[str, str]:
    """The variables that a loop sums up, multiplies, or takes a maximum or minimum of, with which of them."""
    found: dict[str, str] = {}
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    for stmt in statements(loop.body):
        if isinstance(stmt, Assign) and isinstance(stmt.target, Name) and stmt.target.id not in local:
            kind = fold_of(stmt)
            # A sum that is held in vectors already stays as it is.
            if (
                kind is None
                or unit.kind(stmt.target.id).startswith("refork_")
                or not unit.kind(stmt.target.id)
            ):
                raise refuse(f"{stmt.target.id} is no sum", f"loop {loop.counter}")
            found[stmt.target.id] = kind[0]
    if not found:
        raise refuse("the loop sums up no variable", f"loop {loop.counter}")
    return found


def start_of(kind: str, held: str) -> Expr:
    """What a partial result starts from."""
    # No number is neutral for a maximum: each part starts at what is held.
    return Number("0") if kind == "+" else Number("1") if kind == "*" else Name(held)


def merge(kind: str, held: str, partial: Expr) -> Stmt:
    """A partial result taken into the whole."""
    if kind in "+*":
        return Assign(Name(held), f"{kind}=", partial)
    sign = ">" if kind == "max" else "<"
    return Assign(Name(held), "=", Pick(Op(sign, partial, Name(held)), partial, Name(held)))


def _accumulators_make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    count = count_of(given, "count", 16)
    if any(isinstance(stmt, Loop) for stmt in statements(loop.body)) or loop.step > 1:
        raise refuse("only innermost loops that step by one", f"loop {loop.counter}")
    sums = folded(unit, loop)
    rounds = parallel(unit, loop, above)
    before, end = cut(unit, loop, count * loop.step)
    copies = [{name: unit.fresh(f"{name}_{number}") for name in sums} for number in range(1, count)]
    declared = [
        Declare(unit.kind(name), copy[name], (), start_of(kind, name))
        for name, kind in sums.items()
        for copy in copies
    ]
    body: list[Stmt] = list(scoped(code(loop.body)))
    for number, copy in enumerate(copies, start=1):
        values: dict[str, Expr] = {loop.counter: plus(Name(loop.counter), number * loop.step)}
        values |= {name: Name(own) for name, own in copy.items()}
        body.extend(scoped(put_in(code(loop.body), values)))
    # Always in the same order: the same inputs give the same bits from call to call.
    merged = [merge(kind, name, Name(copy[name])) for name, kind in sums.items() for copy in copies]
    main = replace(loop, upper=end, step=count * loop.step, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    return Changed(exchange(unit, loop, (*before, *declared, main, *merged, rest)), rounds)


ACCUMULATORS = Rule(
    "accumulators",
    ("DependencyChain", "CpuScalarFallback"),
    offer(innermost, count=(2, 4, 8)),
    _accumulators_make,
)


def _vector_sum_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        for count in (1, 2, 4):
            yield {"loop": label, "vectors": count}
            yield {"loop": label, "vectors": count, "ahead": AHEAD[-1]}


def _vector_sum_make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    count = given.get("vectors")
    if not isinstance(count, int) or not 1 <= count <= 16 or loop.step != 1:
        raise refuse("the move needs vectors from 1 to 16 and a loop that steps by one")
    sums = folded(unit, loop)
    rounds = parallel(unit, loop, above)
    if set(sums.values()) != {"+"}:
        raise refuse("more than sums in the loop", f"loop {loop.counter}")
    kinds = {unit.kind(name) for name in sums}
    if len(kinds) != 1:
        raise refuse("sums of several types", f"loop {loop.counter}")
    (kind,) = kinds
    lanes, values = lanes_of(unit, kind), values_of(unit)
    vector = vector_type(kind, lanes)
    body: list[Stmt] = []
    held = {(name, number): unit.fresh(f"{name}_lanes_{number}") for name in sums for number in range(count)}
    for number in range(count):
        at: dict[str, Expr] = {loop.counter: plus(Name(loop.counter), number * lanes)}
        for stmt in code(loop.body):
            if (
                not isinstance(stmt, Assign)
                or not isinstance(stmt.target, Name)
                or stmt.op not in ("+=", "-=")
            ):
                raise refuse("more than sums in the loop", f"loop {loop.counter}")
            wide = widened(unit, stmt.value, loop.counter, kind, lanes, values)
            if wide == stmt.value or fold_of(stmt) is None:
                raise refuse("nothing is read along the loop", f"loop {loop.counter}")
            body.append(Assign(Name(held[stmt.target.id, number]), stmt.op, put(wide, at)))
    before, end = cut(unit, loop, lanes * count)
    declared = [Declare(vector, name, (), Braces((Number("0"),))) for name in held.values()]
    lane = unit.fresh("lane")
    gathered: Stmts = tuple(
        Assign(Name(name), "+=", _total([Name(held[name, number]) for number in range(count)], lane))
        for name in sums
    )
    # C has no sum of the numbers of a vector: its lanes are added one by one, once for all of them.
    merge = Loop(lane, "int", Number("0"), Number(str(lanes)), 1, gathered)
    main = replace(loop, upper=end, step=lanes * count, body=tuple(body), pragmas=())
    changed = exchange(unit, loop, (*before, *declared, main, merge, replace(loop, lower=end, pragmas=())))
    # In the main loop alone: what is left after it is short.
    if "ahead" in given:
        (name,) = (one for one, (found, _) in labelled(changed.body).items() if found is main)
        asked: Given = {"array": ALL, "loop": name, "ahead": given["ahead"]}
        changed = PREFETCH.make(changed, asked).unit
    return Changed(with_helpers(changed), rounds)


def _total(vectors: list[Name], lane: str) -> Expr:
    total: Expr = At(vectors[0], Name(lane))
    for one in vectors[1:]:
        total = Op("+", total, At(one, Name(lane)))
    return total


VECTOR_SUM = Rule(
    "vector_sum",
    ("DependencyChain", "CpuScalarFallback", "LoadPressure"),
    _vector_sum_offers,
    _vector_sum_make,
)


#: Entries of a table that is copied; a longer one is used as it is.
ROOM = 4096
#: From one copy to the next. A processor takes a read for one of what was just written where the low 12 bits
#: of the two addresses agree: equal entries of copies a multiple of 4096 bytes apart would wait again.
STRIDE = ROOM + 80


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
    uses = sum(part == Name(array) for part in within(loop.body))
    writes = sum(1 for s in statements(loop.body) if isinstance(s, Assign) and root(s.target) == array)
    if uses != writes:
        raise refuse(f"{array} is read in loop {loop.counter}")
    return array


def _private_table_make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    copies = count_of(given, "copies", 16)
    if any(isinstance(s, Loop | If) for s in statements(loop.body)) or loop.step != 1:
        raise refuse("only plain innermost loops", f"loop {loop.counter}")
    array = table_of(unit, loop)
    length, assumes = length_of(unit, array)
    kind = unit.kind(array)
    rounds = parallel(unit, loop, above)
    if not kind:
        raise refuse(f"the type of {array} is not known")
    own, entry = unit.fresh(f"{array}_private"), unit.fresh("entry")
    before, end = cut(unit, loop, copies)
    # The table itself is the first of the copies.
    size = Number(str((copies - 1) * STRIDE))
    zeros = tuple(
        Assign(_copy_element(own, number, Name(entry)), "=", Number("0")) for number in range(1, copies)
    )
    clear = Loop(entry, "int", Number("0"), length, 1, zeros)
    body: list[Stmt] = []
    for number in range(copies):
        copied = put_in(code(loop.body), {loop.counter: plus(Name(loop.counter), number)})
        body.extend(scoped(_moved(copied, array, own, number)))
    total: Expr = _copy_element(own, 1, Name(entry))
    for number in range(2, copies):
        total = Op("+", total, _copy_element(own, number, Name(entry)))
    merge = Loop(entry, "int", Number("0"), length, 1, (Assign(At(Name(array), Name(entry)), "+=", total),))
    main = replace(loop, upper=end, step=copies, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    fits: Stmts = (Declare(kind, own, (size,)), clear, *before, main, rest, merge)
    # How long the table is shows only when the kernel runs.
    test = Op("<=", length, Number(str(ROOM)))
    made = If(test, fits, (replace(loop, pragmas=()),))
    return Changed(exchange(unit, loop, (made,)), rounds, assumes)


def _copy_element(own: str, number: int, index: Expr) -> At:
    return At(Name(own), index if number == 1 else Op("+", Number(str((number - 1) * STRIDE)), index))


def _moved(body: Stmts, array: str, own: str, number: int) -> Stmts:
    """Statements that count into one of the copies."""
    if number == 0:
        return body

    def moved(part: Expr) -> Expr:
        return (
            _copy_element(own, number, part.index)
            if isinstance(part, At) and part.base == Name(array)
            else part
        )

    return map_exprs(body, lambda expr: map_expr(expr, moved))


PRIVATE_TABLE = Rule(
    "private_table",
    ("DependencyChain", "StoreTraffic"),
    offer(innermost, copies=(4, 8, 2)),
    _private_table_make,
)


#: Items that are compared with one entry after the other: they stay in the first cache meanwhile.
BLOCK = 1024


def _few_bins_make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    most = count_of(given, "most", 64)
    body = code(loop.body)
    before, last = body[:-1], body[-1] if body else None
    if loop.step != 1 or not all(isinstance(one, Declare) for one in before) or not isinstance(last, Assign):
        raise refuse("more than a count into a table", f"loop {loop.counter}")
    array = table_of(unit, loop)
    length, assumes = length_of(unit, array)
    kind, folded = unit.kind(array), fold_of(last)
    if folded is None or not isinstance(last.target, At):
        raise refuse("more than a count into a table", f"loop {loop.counter}")
    if parallel(unit, loop, above):
        raise refuse(f"{array} is no table of sums of integers")
    entry, total = unit.fresh("entry"), unit.fresh(f"{array}_count")
    inner = unit.fresh(f"{loop.counter}_item")
    declared, end = cut(unit, loop, BLOCK)
    equal: Expr = Op("==", last.target.index, Name(entry))
    more = equal if folded[1] == Number("1") else Pick(equal, folded[1], Number("0"))
    counted: Stmts = put_in((*before, Assign(Name(total), "+=", more)), {loop.counter: Name(inner)})
    # Without it gcc takes the loop over entries for vectors, and those are few.
    simd = (f"omp simd reduction(+: {total})",)
    block: Stmts = (
        Declare(kind, total, (), Number("0")),
        Loop(inner, loop.type, Name(loop.counter), plus(Name(loop.counter), BLOCK), 1, counted, simd),
        Assign(At(Name(array), Name(entry)), last.op, Name(total)),
    )
    entries = Loop(entry, "int", Number("0"), length, 1, block)
    main = replace(loop, upper=end, step=BLOCK, body=(entries,), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    few: Stmts = (*declared, main, rest)
    made: Stmt = If(Op("<=", length, Number(str(most))), few, (replace(loop, pragmas=()),))
    changed = exchange(unit, loop, (made,))
    if SIMD_FLAG not in changed.flags:
        changed = replace(changed, flags=(*changed.flags, SIMD_FLAG))
    return Changed(changed, False, assumes)


FEW_BINS = Rule(
    "few_bins",
    ("DependencyChain", "StoreTraffic", "BranchMiss"),
    offer(innermost, most=(8, 4)),
    _few_bins_make,
)


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


def _find(unit: Unit, top: Loop) -> _Nest:  # noqa: C901, PLR0912 - three forms of a sum
    """The sum under a loop over rows.

    Raises:
        BadInput: it is of another form.
    """
    chain, last = _chain(top)
    match last:
        case (Assign(target=At() as target, op="+=" | "-=" as sign, value=addend),):
            # The sum is in memory: loops whose counters its place does not name are those that sum.
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
        case (Assign(target=At() as target, op="=" as stores, value=start), Loop() as loop):
            # The sum is in memory, where it starts at zero.
            inner, only = _chain(loop)
            match only:
                case (Assign(target=At() as added, op="+=" | "-=" as sign, value=addend),):
                    pass
                case _:
                    raise refuse("more than a sum in the loop")
            counters = {one.counter for one in inner}
            if len(chain) != 2 or added != target or not is_zero(start) or names(target) & counters:
                raise refuse("no sums over rows and columns")
            found = _Nest(top, chain[1], tuple(inner), target, addend, sign, stores, chain[1].body)
        case (
            Declare(name=name, dims=(), value=start),
            Loop() as loop,
            Assign(target=At() as target, op=stores, value=Name(id=kept)),
        ):
            # The sum is in a variable that is stored after the loop.
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


def _register_tile_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
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
    vector = vector_type(kind, lanes)
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
            # A sum that is stored in the end starts at zero, one that is added in memory at what is there.
            start.append(Declare(vector, held.id, (), Braces((Number("0"),)) if found.stores else memory))
            addend = put(widened(unit, found.addend, found.columns.counter, kind, lanes, values), at)
            adds.append(Assign(held, found.sign, addend))
            stores.append(Assign(memory, found.stores or "=", held))
    inner: Stmts = tuple(adds)
    for loop in reversed(found.sums):
        inner = (replace(loop, body=inner, pragmas=()),)
    return (*start, *inner, *stores)


def _register_tile_make(unit: Unit, given: Parameters) -> Changed:
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
    # Columns that fill no vector are done row by row, with a counter of their own.
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


REGISTER_TILE = Rule(
    "register_tile",
    ("LoadPressure", "StoreTraffic", "DependencyChain", "CpuScalarFallback"),
    _register_tile_offers,
    _register_tile_make,
)
