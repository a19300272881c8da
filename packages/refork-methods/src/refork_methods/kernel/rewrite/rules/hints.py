"""What is said to the compiler: its flags, pointers that do not overlap, pragmas of one loop."""

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
    offer,
    refuse,
    text_of,
)
from refork_methods.kernel.rewrite.unit import Unit

#: By short name: flags, and what they take the place of.
SETS: dict[str, tuple[tuple[str, ...], str]] = {
    "O2": (("-O2",), "-O"),
    "O3": (("-O3",), "-O"),
    "native": (("-march=native",), "-march="),
    "width512": (("-mprefer-vector-width=512",), "-mprefer-vector-width="),
    "width256": (("-mprefer-vector-width=256",), "-mprefer-vector-width="),
    "unroll": (("-funroll-loops",), ""),
    "no-errno": (("-fno-math-errno",), ""),
    "no-trap": (("-fno-trapping-math",), ""),
    "associative": (("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math"), ""),
    "reciprocal": (("-freciprocal-math",), ""),
    "fast": (("-ffast-math",), ""),
    "prefetch": (("-fprefetch-loop-arrays",), ""),
}
_ROUNDS = ("associative", "reciprocal", "fast")


def _offers(unit: Unit) -> Iterator[dict[str, str | int]]:
    for name in SETS:
        yield {"flags": name}


def _flags_make(unit: Unit, given: Parameters) -> Changed:
    name = text_of(given, "flags")
    if name not in SETS:
        raise refuse(f"no set of flags {name}")
    flags, family = SETS[name]
    kept = tuple(one for one in unit.flags if not (family and one.startswith(family)))
    made = (*kept, *(one for one in flags if one not in kept))
    if family and kept != unit.flags and set(made) != set(unit.flags):
        made = tuple(flags[0] if one.startswith(family) else one for one in unit.flags)
    if set(made) == set(unit.flags):
        raise refuse(f"the flags of {name} are set")
    assumes = "no infinities and no NaN" if name == "fast" else ""
    return Changed(replace(unit, flags=made), name in _ROUNDS, assumes)


FLAGS = Rule("flags", ("CpuScalarFallback", "NarrowVector", "SlowOps"), _offers, _flags_make)


def _restrict_make(unit: Unit, given: Parameters) -> Changed:
    arrays = [one for one in unit.parameters if one.dims is not None and one.spot >= 0]
    open_ones = [one for one in arrays if not one.restrict]
    if len(arrays) < 2 or not open_ones or all(one.const for one in arrays):
        raise refuse("no pointers that would gain by it")
    before = unit.before
    # From the end, so that earlier spots stay true.
    for one in sorted(open_ones, key=lambda each: -each.spot):
        following = before[one.spot : one.spot + 1]
        gap = "" if following in (" ", "]") else " "
        before = f"{before[: one.spot]}__restrict__{gap}{before[one.spot :]}"
    return Changed(replace(unit, before=before), assumes="arrays of a call do not overlap")


RESTRICT = Rule("restrict", ("CpuScalarFallback", "StoreTraffic"), lambda unit: [{}], _restrict_make)


#: Makes gcc read ``omp simd``, and nothing else of OpenMP.
SIMD_FLAG = "-fopenmp-simd"


def _ivdep(unit: Unit, given: Parameters) -> Changed:
    loop, above = loop_at(unit, text_of(given, "loop"))
    if any(one.startswith(("GCC ivdep", "omp")) for one in loop.pragmas):
        raise refuse("the loop says so already")
    parallel(unit, loop, above, folds=False)
    return Changed(exchange(unit, loop, (replace(loop, pragmas=(*loop.pragmas, "GCC ivdep")),)))


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


IVDEP = Rule("ivdep", ("CpuScalarFallback",), offer(innermost), _ivdep)
UNROLL = Rule("unroll_pragma", ("PortPressure",), offer(innermost, times=(4, 8)), _unroll)
SIMD = Rule("simd", ("CpuScalarFallback", "DependencyChain"), offer(innermost), _simd)
