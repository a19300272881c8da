"""A sum held in a variable put back to memory, so that its loops become a perfect nest; and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork.errors import BadInput
from refork_methods.kernel.rewrite.access import accesses, fold_of
from refork_methods.kernel.rewrite.depend import in_order, may_alias
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    exchange,
    guarded,
    inner_of,
    innermost,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Stmts,
    bare,
    code,
    inside,
    map_expr,
    map_exprs,
    names,
    root,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled

ZEROS = ("0", "0.0", "0.0f", "0.f", "0.", "0.0F")


def is_zero(expr: Expr | None) -> bool:
    """Whether an expression is a literal zero."""
    return isinstance(expr, Number) and expr.text in ZEROS


def expose(unit: Unit, label: str) -> tuple[Unit, bool]:
    """``s = 0; for (k) s += e; t = s;`` as ``t = 0`` in a nest of its own and ``t += e`` in a perfect one.

    The loop has the same label afterwards but for a count. Returns whether rounding may change.

    Raises:
        BadInput: the loop is not of this form, or the order of the parts matters.
    """
    loop, above = loop_at(unit, label)
    if not above:
        raise refuse(f"no loop around {label}")
    parent = above[-1]
    match code(parent.body):
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


def _labels(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in labelled(unit.body):
        yield {"loop": label}


def _to_memory(unit: Unit, given: Parameters) -> Changed:
    return Changed(*expose(unit, text_of(given, "loop")))


def _inner(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield {"loop": label}


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
        trial = exchange(
            unit, loop, (held, replace(loop, body=changed, pragmas=()), Assign(target, "=", own))
        )
        if not unit.kind(array) or any(
            one.array != own.id and may_alias(unit, one.array, array)
            for one in accesses(trial, changed, nest)
        ):
            continue
        made = (held, replace(loop, body=changed, pragmas=()), Assign(target, "=", own))
        return Changed(exchange(unit, loop, guarded(unit, loop, above, made)))
    raise refuse("no sum of the loop is held in memory")


TO_MEMORY = Rule("memory_sum", ("StridedAccess", "CapacityMiss"), _labels, _to_memory)
TO_SCALAR = Rule("scalar_sum", ("StoreTraffic", "DependencyChain", "CpuScalarFallback"), _inner, _to_scalar)
