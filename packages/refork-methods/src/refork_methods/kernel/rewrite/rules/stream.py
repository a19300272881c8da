"""Results stored past the caches, so that no line is read from memory only to be written over.

A store that misses first fetches its line. A non-temporal store of a whole line does not, which saves a third
of the traffic of a pass that reads as much as it writes; but what it wrote is then in no cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.access import values_of
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    exchange,
    innermost,
    loop_at,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.rules.unroll import JAM
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Call,
    Declare,
    Do,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Pick,
    Stmt,
    Stmts,
    Unary,
    code,
    expressions,
    inside,
    least,
    names,
    plus,
    put,
    put_in,
    root,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled
from refork_methods.kernel.rewrite.vector_helpers import LEAD, ON_LINE, SIZES, STREAM_END, with_helpers
from refork_methods.kernel.rewrite.vectors import lanes_of, streamed, unit_stride, widened

#: KiB that a run of the loops must write; less stays in a core's own caches, where stores miss nothing.
BEYOND = 1024
#: Iterations of the loop around that are made together, so that a row that several need is read once.
ROWS = (1, 2, 4)
#: Vectors of a row that are written before the next row's: memory takes longer runs of one page sooner.
VECTORS = 8


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        for rows in ROWS:
            yield {"loop": label, "rows": rows, "beyond": BEYOND, "vectors": VECTORS}


def _stores(unit: Unit, loop: Loop, above: tuple[Loop, ...]) -> list[Assign]:
    """The loop's stores, where they are all it does, in order, to arrays that nothing here reads.

    Raises:
        BadInput: it does something else, or something reads or also writes what it stores.
    """
    stores = [stmt for stmt in code(loop.body) if isinstance(stmt, Assign)]
    if not stores or len(stores) != len(code(loop.body)) or loop.step != 1:
        raise refuse("more than stores in the loop, or none", f"loop {loop.counter}")
    values = values_of(unit)
    for store in stores:
        if store.op != "=" or not isinstance(store.target, At) or not isinstance(store.target.base, Name):
            raise refuse("more than stores to arrays", f"loop {loop.counter}")
        if not unit_stride(store.target, loop.counter, values):
            raise refuse(f"{root(store.target)} is not written in order", f"loop {loop.counter}")
        known = unit.parameter(store.target.base.id)
        if known is None or known.dims is None:
            raise refuse(f"{store.target.base.id} is the function's own")
    written = {root(store.target) or "" for store in stores}
    nest = above[0] if above else loop
    for part in statements(unit.body):
        every = (one for expr in expressions(part) for one in inside(expr))
        used = [one for one in every if isinstance(one, Name) and one.id in written]
        plain = isinstance(part, Assign) and part.op == "=" and root(part.target) in written
        if len(used) > plain:
            raise refuse("what the loop writes is read again", f"loop {loop.counter}")
    others = [s for s in statements((nest,)) if isinstance(s, Assign) and names(s.target) & written]
    if len(others) > len(stores):
        raise refuse("what the loop writes is written elsewhere too", f"loop {loop.counter}")
    return stores


def _written(loop: Loop, above: tuple[Loop, ...], stores: list[Assign], size: int) -> Expr:
    """Bytes that a run of all loops writes.

    Raises:
        BadInput: how often a loop runs is not known before the first one begins.
    """
    nest = (*above, loop)
    inner = {one.counter for one in nest} | {s.name for s in statements(nest[:1]) if isinstance(s, Declare)}
    total: Expr = Number(f"{len(stores) * size}.0")
    for one in nest:
        if (names(one.lower) | names(one.upper)) & inner or _calls(one):
            raise refuse(f"how often {one.counter} runs is not known before it does")
        count = one.upper if one.lower == Number("0") else Op("-", one.upper, one.lower)
        total = Op("*", total, count if one.step == 1 else Op("/", count, Number(str(one.step))))
    return total


def _calls(loop: Loop) -> bool:
    return any(isinstance(p, Call | At) for e in (loop.lower, loop.upper) for p in inside(e))


def _rows(unit: Unit, label: str, rows: int) -> Unit:
    """A kernel whose loop around this one makes several of its iterations at once."""
    loop, above = loop_at(unit, label)
    around = [name for name, (one, _) in labelled(unit.body).items() if above and one is above[-1]]
    if not around or code(above[-1].body) != (loop,):
        raise refuse("no loop around this one alone", f"loop {loop.counter}")
    return JAM.make(unit, {"loop": around[0], "times": rows}).unit


def _make(unit: Unit, given: Parameters) -> Changed:
    label, beyond = text_of(given, "loop"), given.get("beyond")
    rows, vectors = (given.get(name, 1) for name in ("rows", "vectors"))
    if not isinstance(beyond, int) or beyond < 0:
        raise refuse("the move needs beyond, in KiB")
    if not isinstance(rows, int) or rows < 1 or not isinstance(vectors, int) or not 1 <= vectors <= 64:
        raise refuse("rows is a number from 1, vectors from 1 to 64")
    original = unit.body
    _stores(unit, *loop_at(unit, label))
    if rows > 1:
        unit = _rows(unit, label, rows)
    loop, above = loop_at(unit, label)
    stores = _stores(unit, loop, above)
    kinds = {unit.kind(root(store.target) or "") for store in stores}
    if len(kinds) != 1:
        raise refuse("arrays of several types", f"loop {loop.counter}")
    (kind,) = kinds
    for depth, one in enumerate((*above, loop)):
        parallel(unit, one, (*above, loop)[:depth], folds=False)
    lanes, size, values = lanes_of(unit, kind), SIZES[kind], values_of(unit)
    body: list[Stmt] = []
    for store in stores:
        wide = widened(unit, store.value, loop.counter, kind, lanes, values)
        if wide == store.value or not isinstance(store.target, At):
            raise refuse("nothing is read along the loop", f"loop {loop.counter}")
        body.append(Assign(streamed(store.target, kind, lanes), "=", wide))
    first, last = unit.fresh(f"{loop.counter}_first"), unit.fresh(f"{loop.counter}_main")
    written = _written(loop, above, stores, size)
    test = Op(">", written, Number(f"{beyond << 10}.0"))
    declared = _bounds(loop, stores, (first, last), test, size, lanes)
    made = replace(loop, lower=Name(first), upper=Name(last), step=lanes, body=tuple(body), pragmas=())
    ends = (replace(loop, upper=Name(first), pragmas=()), replace(loop, lower=Name(last), pragmas=()))
    changed = exchange(unit, loop, (*declared, ends[0], *_runs(unit, made, vectors), ends[1]))
    changed = replace(changed, body=_fenced(original, changed.body))
    arrays = " and ".join(sorted({root(store.target) or "" for store in stores}))
    return Changed(with_helpers(changed), False, f"{arrays} is not read again soon: it has left the caches")


def _runs(unit: Unit, loop: Loop, vectors: int) -> Stmts:
    """A loop of streamed vectors that writes several of a row at once, and after it those that are left."""
    if vectors == 1:
        return (loop,)
    width = vectors * loop.step
    name = unit.fresh(f"{loop.counter}_runs")
    whole = Op("*", Op("/", Op("-", loop.upper, loop.lower), Number(str(width))), Number(str(width)))
    several = [
        put_in((store,), {loop.counter: plus(Name(loop.counter), number * loop.step)})[0]
        for store in loop.body
        for number in range(vectors)
    ]
    return (
        Declare(loop.type, name, (), Op("+", loop.lower, whole)),
        replace(loop, upper=Name(name), step=width, body=tuple(several)),
        replace(loop, lower=Name(name)),
    )


def _bounds(
    loop: Loop, stores: list[Assign], between: tuple[str, str], test: Expr, size: int, lanes: int
) -> Stmts:
    """Where lines begin, and where the last whole vector ends: at once, where streaming cannot pay."""
    first, last = between
    start, end = Name(first), Op("-", loop.upper, Name(first))
    lead = Call(LEAD, (_at(stores[0], loop.counter, loop.lower), Number(str(size))))
    ahead = lead if loop.lower == Number("0") else Op("+", loop.lower, lead)
    full = Op("+", start, Op("*", Op("/", end, Number(str(lanes))), Number(str(lanes))))
    for store in stores:
        test = Op("&&", test, Call(ON_LINE, (_at(store, loop.counter, start),)))
    return (
        Declare(loop.type, first, (), least(ahead, loop.upper)),
        Declare(loop.type, last, (), Pick(test, full, start)),
    )


def _at(store: Assign, counter: str, value: Expr) -> Expr:
    return Unary("&", put(store.target, {counter: value}))


def _fenced(before: Stmts, after: Stmts) -> Stmts:
    """The statement of the function that changed, with the stores put in order after it."""
    end = Do(Call(STREAM_END, ()))
    same = 0
    while same < len(before) and before[same] is after[same]:
        same += 1
    following = len(before) - same - 1
    at = len(after) - following
    return after if after[at : at + 1] == (end,) else (*after[:at], end, *after[at:])


RULE = Rule("stream", ("BandwidthRoof", "StoreTraffic"), _offers, _make)
