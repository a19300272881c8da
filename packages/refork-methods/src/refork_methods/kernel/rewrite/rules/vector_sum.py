"""Sums held in vectors, on request with what they read asked for ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.access import fold_of, values_of
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Given,
    Parameters,
    Rule,
    cut,
    exchange,
    innermost,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.rules import prefetch
from refork_methods.kernel.rewrite.rules.accumulators import folded
from refork_methods.kernel.rewrite.syntax import (
    Assign,
    At,
    Braces,
    Declare,
    Expr,
    Loop,
    Name,
    Number,
    Op,
    Stmt,
    Stmts,
    code,
    plus,
    put,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled
from refork_methods.kernel.rewrite.vector_helpers import with_helpers
from refork_methods.kernel.rewrite.vectors import lanes_of, vector_type, widened


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        for count in (1, 2, 4):
            yield {"loop": label, "vectors": count}
            yield {"loop": label, "vectors": count, "ahead": prefetch.AHEAD[-1]}


def _make(unit: Unit, given: Parameters) -> Changed:
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
    vector = vector_type(kind, lanes)[0]
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
    merge = Loop(lane, "int", Number("0"), Number(str(lanes)), 1, gathered)
    main = replace(loop, upper=end, step=lanes * count, body=tuple(body), pragmas=())
    changed = exchange(unit, loop, (*before, *declared, main, merge, replace(loop, lower=end, pragmas=())))
    if "ahead" in given:
        (name,) = (one for one, (found, _) in labelled(changed.body).items() if found is main)
        asked: Given = {"array": prefetch.ALL, "loop": name, "ahead": given["ahead"]}
        changed = prefetch.RULE.make(changed, asked).unit
    return Changed(with_helpers(changed), rounds)


def _total(vectors: list[Name], lane: str) -> Expr:
    total: Expr = At(vectors[0], Name(lane))
    for one in vectors[1:]:
        total = Op("+", total, At(one, Name(lane)))
    return total


RULE = Rule("vector_sum", ("DependencyChain", "CpuScalarFallback", "LoadPressure"), _offers, _make)
