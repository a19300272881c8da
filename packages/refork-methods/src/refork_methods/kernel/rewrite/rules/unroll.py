"""Several iterations written out: of an innermost loop, and of an outer one with the loops in it joined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from refork_methods.kernel.rewrite.syntax import (
    Block,
    Declare,
    Expr,
    Loop,
    Name,
    Note,
    Stmt,
    Stmts,
    bare,
    code,
    names,
    plus,
    put_in,
    statements,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit, labelled


def scoped(body: Stmts) -> Stmts:
    """Statements that may stand beside copies of themselves."""
    return (Block(body),) if any(isinstance(stmt, Declare) for stmt in body) else body


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield from ({"loop": label, "times": times} for times in (2, 4, 8))


def _unroll(unit: Unit, given: Parameters) -> Changed:
    loop, _ = loop_at(unit, text_of(given, "loop"))
    times = count_of(given, "times", 64)
    if any(isinstance(stmt, Loop) for stmt in statements(loop.body)):
        raise refuse("only innermost loops are unrolled", f"loop {loop.counter}")
    if loop.step > 16:
        raise refuse("the loop takes large steps already", f"loop {loop.counter}")
    before, end = cut(unit, loop, times * loop.step)
    body: list[Stmt] = []
    for number in range(times):
        body.extend(
            scoped(put_in(code(loop.body), {loop.counter: plus(Name(loop.counter), number * loop.step)}))
        )
    main = replace(loop, upper=end, step=times * loop.step, body=tuple(body), pragmas=())
    rest = replace(loop, lower=end, pragmas=())
    return Changed(exchange(unit, loop, (*before, main, rest)))


def _outer(unit: Unit) -> Iterator[dict[str, str | int]]:
    inner = set(innermost(unit))
    for label in labelled(unit.body):
        if label not in inner:
            yield from ({"loop": label, "times": times} for times in (2, 4, 6, 8))


def join(unit: Unit, body: Stmts, counter: str, offsets: list[int]) -> Stmts:
    """Iterations at several offsets of a counter, loops inside joined into one each.

    Raises:
        BadInput: the bounds of a loop inside differ from iteration to iteration.
    """
    local = [s.name for s in statements(body) if isinstance(s, Declare)]
    maps: list[dict[str, Expr]] = []
    for number, offset in enumerate(offsets):
        renamed: dict[str, Expr] = {name: Name(unit.fresh(f"{name}_{number}")) for name in local if number}
        maps.append(renamed | {counter: plus(Name(counter), offset)})
    return _joined(body, counter, set(local), maps)


def _joined(body: Stmts, counter: str, local: set[str], maps: list[dict[str, Expr]]) -> Stmts:
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            if (names(stmt.lower) | names(stmt.upper)) & ({counter} | local):
                raise refuse(f"the bounds of {stmt.counter} change with {counter}")
            made.append(replace(stmt, body=_joined(stmt.body, counter, local, maps)))
        elif isinstance(stmt, Note):
            made.append(stmt)
        else:
            for values in maps:
                made.extend(put_in((stmt,), values))
    return tuple(made)


def _jam(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    times = count_of(given, "times", 16)
    if not any(isinstance(stmt, Loop) for stmt in code(loop.body)):
        raise refuse("no loop inside to join", f"loop {loop.counter}")
    if loop.step > 1:
        raise refuse("the loop takes larger steps already", f"loop {loop.counter}")
    rounds = parallel(unit, loop, above)
    before, end = cut(unit, loop, times)
    body = join(unit, bare(loop.body), loop.counter, list(range(times)))
    main = replace(loop, upper=end, step=times, body=body, pragmas=())
    rest = replace(loop, lower=end, body=loop.body, pragmas=())
    return Changed(exchange(unit, loop, (*before, main, rest)), rounds)


# Sums keep their order: no chain is broken.
UNROLL = Rule("unroll", ("PortPressure", "BranchMiss"), _offers, _unroll)
JAM = Rule("jam", ("LoadPressure", "StoreTraffic", "DependencyChain"), _outer, _jam)
