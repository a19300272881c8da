"""A loop cut into tiles, the loop over tiles moved outwards as far as order allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork.errors import BadInput
from refork_methods.kernel.rewrite.depend import exchangeable
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    exchange,
    inner_of,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.rules.memory_sum import with_exposed
from refork_methods.kernel.rewrite.syntax import Loop, Name, bare, least, names, plus
from refork_methods.kernel.rewrite.unit import Unit, is_unsigned, labelled

SIZES = (16, 32, 64, 128, 256)


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in labelled(unit.body):
        for size in SIZES:
            yield {"loop": label, "size": size}


def _make(unit: Unit, given: Parameters) -> Changed:
    label, size = text_of(given, "loop"), count_of(given, "size")
    loop, above = loop_at(unit, label)
    if above and inner_of(above[-1]) is not loop:
        unit, _ = with_exposed(unit, label)
        loop, above = loop_at(unit, label)
    if loop.step != 1 or any(loop.lower == Name(one.counter) for one in above):
        raise refuse(f"{label} is tiled already")
    rounds, level = False, len(above)
    while level > 0 and inner_of(above[level - 1]) is (above[level] if level < len(above) else loop):
        outer = above[level - 1]
        if outer.counter in names(loop.lower) | names(loop.upper):
            break
        try:
            rounds = exchangeable(unit, outer, loop, above[: level - 1], above[level:]) or rounds
        except BadInput:
            break
        level -= 1
    nested = inner_of(loop) is not None
    if level == len(above) and not (nested and not above):
        raise refuse(f"no loop around {label} that its tiles could move over")
    base = unit.fresh(f"{loop.counter}0")
    within = replace(
        loop,
        lower=Name(base),
        upper=least(plus(Name(base), size), loop.upper),
        body=bare(loop.body),
        pragmas=(),
    )
    top = above[level] if level < len(above) else loop
    inner: Loop = within
    for outer in reversed(above[level:]):
        inner = replace(outer, body=(inner,), pragmas=())
    tiles = Loop(base, loop.type, loop.lower, loop.upper, size, (inner,))
    if is_unsigned(loop.type) and loop.type.strip() in ("unsigned char", "uint8_t", "uint16_t"):
        raise refuse(f"{label} counts in too small a type")
    return Changed(exchange(unit, top, (tiles,)), rounds)


RULE = Rule("tile", ("CapacityMiss", "StridedAccess", "ConflictMiss"), _offers, _make)
