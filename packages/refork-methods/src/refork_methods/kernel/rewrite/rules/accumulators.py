"""Several partial sums, so that additions do not wait for each other."""

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
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Pick,
    Stmt,
    code,
    plus,
    put_in,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield from ({"loop": label, "count": count} for count in (2, 4, 8))


def folded(unit: Unit, loop: Loop) -> dict[str, str]:
    """The variables that a loop sums up, multiplies, or takes a maximum or minimum of, with which of them."""
    found: dict[str, str] = {}
    local = {s.name for s in statements(loop.body) if isinstance(s, Declare)}
    for stmt in statements(loop.body):
        if isinstance(stmt, Assign) and isinstance(stmt.target, Name) and stmt.target.id not in local:
            kind = fold_of(stmt)
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
    return Number("0") if kind == "+" else Number("1") if kind == "*" else Name(held)


def merge(kind: str, held: str, partial: Expr) -> Stmt:
    """A partial result taken into the whole."""
    if kind in "+*":
        return Assign(Name(held), f"{kind}=", partial)
    sign = ">" if kind == "max" else "<"
    return Assign(Name(held), "=", Pick(Op(sign, partial, Name(held)), partial, Name(held)))


def _make(unit: Unit, given: Parameters) -> Changed:
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
    merged = [merge(kind, name, Name(copy[name])) for name, kind in sums.items() for copy in copies]
    main = replace(loop, upper=end, step=count * loop.step, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    return Changed(exchange(unit, loop, (*before, *declared, main, *merged, rest)), rounds)


RULE = Rule("accumulators", ("DependencyChain", "CpuScalarFallback"), _offers, _make)
