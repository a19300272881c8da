"""A table of few entries counted by comparing: increments of one entry no longer wait for each other."""

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
from refork_methods.kernel.rewrite.rules.pragma import SIMD_FLAG
from refork_methods.kernel.rewrite.rules.private_table import length_of, table_of
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
    Stmt,
    Stmts,
    code,
    plus,
    put_in,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, is_integer

#: Items that are compared with one entry after the other: they stay in the first cache meanwhile.
BLOCK = 1024


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield from ({"loop": label, "most": most} for most in (8, 4))


def _make(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    most = count_of(given, "most", 64)
    *before, last = code(loop.body)
    if loop.step != 1 or not all(isinstance(one, Declare) for one in before) or not isinstance(last, Assign):
        raise refuse("more than a count into a table", f"loop {loop.counter}")
    array = table_of(unit, loop)
    length, assumes = length_of(unit, array)
    kind, folded = unit.kind(array), fold_of(last)
    if not is_integer(kind) or folded is None or not isinstance(last.target, At):
        raise refuse(f"{array} does not hold integers")
    parallel(unit, loop, above)
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


RULE = Rule("few_bins", ("DependencyChain", "StoreTraffic", "BranchMiss"), _offers, _make)
