"""Flags of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule, refuse, text_of
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


def _make(unit: Unit, given: Parameters) -> Changed:
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


RULE = Rule("flags", ("CpuScalarFallback", "NarrowVector", "SlowOps"), _offers, _make)
