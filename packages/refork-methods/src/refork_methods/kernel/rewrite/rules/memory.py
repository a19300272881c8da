"""How data moves: stored past the caches, packed, fetched ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import values_of
from refork_methods.kernel.rewrite.affine import Poly, add, poly
from refork_methods.kernel.rewrite.canonical import loops
from refork_methods.kernel.rewrite.depend import assigned, may_alias, parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    exchange,
    innermost,
    loop_at,
    offer,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.rules.loops import JAM
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Call,
    Declare,
    Do,
    Expr,
    If,
    Loop,
    Name,
    Number,
    Op,
    Pick,
    Stmt,
    Stmts,
    Unary,
    bare,
    code,
    expressions,
    inside,
    least,
    map_expr,
    map_exprs,
    names,
    plus,
    put,
    put_in,
    root,
    statements,
    within,
)
from refork_methods.kernel.rewrite.unit import Unit, labelled
from refork_methods.kernel.rewrite.vectors import (
    LEAD,
    LINE,
    ON_LINE,
    SIZES,
    STREAM_END,
    lanes_of,
    streamed,
    unit_stride,
    widened,
    with_helpers,
)

#: KiB that a run of the loops must write; less stays in a core's own caches, where stores miss nothing.
BEYOND = 1024
#: Iterations of the loop around that are made together, so that a row that several need is read once.
ROWS = (1, 2, 4)
#: Vectors of a row that are written before the next row's: memory takes longer runs of one page sooner.
VECTORS = 8


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
        # A store names its array once, as its target: one more is a read of it.
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


def _stream_make(unit: Unit, given: Parameters) -> Changed:
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


STREAM = Rule(
    "stream",
    ("BandwidthRoof", "StoreTraffic"),
    offer(innermost, rows=ROWS, beyond=(BEYOND,), vectors=(VECTORS,)),
    _stream_make,
)


MOST = 65536


def _pack_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label, (loop, _) in labelled(unit.body).items():
        if loop.step >= 16:
            reads = {root(p) or "" for p in within(loop.body) if isinstance(p, At)}
            for array in sorted(reads):
                yield {"array": array, "loop": label}


def _extent(loop: Loop, nest: tuple[Loop, ...]) -> int | None:
    """How many values a loop within a tile takes at most."""
    base = next((one for one in nest if loop.lower == Name(one.counter)), None)
    if base is None or loop.step != 1:
        return None
    match loop.upper:
        # The bound that tiling writes: the smaller of a whole tile's end and the loop's own.
        case Pick(test=Op(op="<"), yes=yes) if yes == plus(Name(base.counter), base.step):
            return base.step
        case _:
            return None


def _pack_make(unit: Unit, given: Parameters) -> Changed:
    array, label = text_of(given, "array"), text_of(given, "loop")
    loop, above = loop_at(unit, label)
    if unit.parameter(array) is None or any(may_alias(unit, array, one) for one in assigned(loop.body)):
        raise refuse(f"{array} may be written in loop {label}")
    nested = [one for one, _ in loops(loop.body)]
    if any(isinstance(s, If) for s in statements(loop.body)) or len({one.counter for one in nested}) != len(
        nested
    ):
        raise refuse(f"loop {label} does not read a whole tile")
    found = {p for p in within(loop.body) if isinstance(p, At) and root(p) == array}
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
    # Last what lies along memory: the last one is the fastest in the buffer.
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


PACK = Rule("pack", ("ConflictMiss", "CapacityMiss", "StridedAccess"), _pack_offers, _pack_make)


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


def _prefetch_offers(unit: Unit) -> Iterator[dict[str, str | int]]:
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


def _prefetch_make(unit: Unit, given: Parameters) -> Changed:
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


PREFETCH = Rule("prefetch", ("CapacityMiss", "StridedAccess"), _prefetch_offers, _prefetch_make)
