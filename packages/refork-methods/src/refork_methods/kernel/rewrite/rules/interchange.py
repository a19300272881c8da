"""Two loops exchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.depend import exchangeable
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    exchange,
    inner_of,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.rules.memory_sum import with_exposed
from refork_methods.kernel.rewrite.syntax import bare, names
from refork_methods.kernel.rewrite.unit import Unit, labelled


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    known = labelled(unit.body)
    by_loop = {id(loop): label for label, (loop, _) in known.items()}
    for label, (_, above) in known.items():
        if above:
            yield {"outer": by_loop[id(above[-1])], "inner": label}


def _make(unit: Unit, given: Parameters) -> Changed:
    label = text_of(given, "inner")
    loop, above = loop_at(unit, label)
    if not above or labelled(unit.body).get(text_of(given, "outer"), (None,))[0] is not above[-1]:
        raise refuse(f"{label} is not right inside of {given['outer']}")
    if inner_of(above[-1]) is not loop:
        unit, _ = with_exposed(unit, label)
        loop, above = loop_at(unit, label)
    outer = above[-1]
    loop_at(unit, next(name for name, (one, _) in labelled(unit.body).items() if one is outer))
    if inner_of(outer) is not loop:
        raise refuse(f"{outer.counter} and {label} are not perfectly nested")
    if outer.counter in names(loop.lower) | names(loop.upper):
        raise refuse(f"the bounds of {label} depend on {outer.counter}")
    rounds = exchangeable(unit, outer, loop, above[:-1])
    within = replace(outer, body=bare(loop.body), pragmas=())
    return Changed(exchange(unit, outer, (replace(loop, body=(within,), pragmas=()),)), rounds)


RULE = Rule("interchange", ("StridedAccess", "CpuScalarFallback", "CapacityMiss"), _offers, _make)
