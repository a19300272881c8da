"""What is said to the compiler of one loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.access import accesses
from refork_methods.kernel.rewrite.depend import parallel
from refork_methods.kernel.rewrite.rule import (
    Changed,
    Parameters,
    Rule,
    count_of,
    exchange,
    innermost,
    loop_at,
    refuse,
    text_of,
)  # fmt: skip
from refork_methods.kernel.rewrite.unit import Unit

#: Makes gcc read ``omp simd``, and nothing else of OpenMP.
SIMD_FLAG = "-fopenmp-simd"


def _each(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield {"loop": label}


def _ivdep(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    if any(one.startswith(("GCC ivdep", "omp")) for one in loop.pragmas):
        raise refuse("the loop says so already")
    parallel(unit, loop, above, folds=False)
    return Changed(exchange(unit, loop, (replace(loop, pragmas=(*loop.pragmas, "GCC ivdep")),)))


def _unrolls(unit: Unit) -> Iterator[dict[str, str | int]]:
    for label in innermost(unit):
        yield from ({"loop": label, "times": times} for times in (4, 8))


def _unroll(unit: Unit, given: Parameters) -> Changed:
    loop, _ = loop_at(unit, text_of(given, "loop"))
    if any(one.startswith(("GCC unroll", "omp")) for one in loop.pragmas):
        raise refuse("the loop says so already")
    pragma = f"GCC unroll {count_of(given, 'times', 64)}"
    return Changed(exchange(unit, loop, (replace(loop, pragmas=(*loop.pragmas, pragma)),)))


def _simd(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    if any(one.startswith("omp") for one in loop.pragmas):
        raise refuse("the loop says so already")
    rounds = parallel(unit, loop, above)
    folds: dict[str, list[str]] = {}
    for one in accesses(unit, loop.body, (*above, loop)):
        if one.fold and one.write:
            if one.dims or unit.kind(one.array).startswith("refork_"):
                raise refuse("the sum is held in memory or in vectors")
            known = folds.setdefault(one.fold, [])
            known.extend([] if one.array in known else [one.array])
    clauses = "".join(f" reduction({kind}: {', '.join(held)})" for kind, held in folds.items())
    made = exchange(unit, loop, (replace(loop, pragmas=(f"omp simd{clauses}",)),))
    if SIMD_FLAG not in made.flags:
        made = replace(made, flags=(*made.flags, SIMD_FLAG))
    return Changed(made, rounds)


IVDEP = Rule("ivdep", ("CpuScalarFallback",), _each, _ivdep)
UNROLL = Rule("unroll_pragma", ("PortPressure",), _unrolls, _unroll)
SIMD = Rule("simd", ("CpuScalarFallback", "DependencyChain"), _each, _simd)
