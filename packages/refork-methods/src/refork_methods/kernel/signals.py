"""Measurements of one kernel, by the program that took them; what was not measured is absent, never 0."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json

#: Who measures. On CPUs: simulated caches, disassembly, the compiler's records, a model of the ports,
#: sampling, hardware counters, our clock. On GPUs: counters, a time line, disassembly, the assembler's
#: report.
Source: TypeAlias = Literal[
    "cachegrind", "objdump", "optinfo", "mca", "perf", "counters", "timing", "ncu", "nsys", "sass", "ptxas"
]


@final
@dataclass(frozen=True, slots=True)
class Signals:
    """``values[source][metric]``; ``lines[source]`` are to be cited; ``absent[source]`` says why.

    Metrics are named with their unit (``d1_read_misses``, ``seconds``, ``packed_fp_instructions``).
    """

    values: Mapping[Source, Mapping[str, float]] = field(default_factory=dict)
    lines: Mapping[Source, tuple[str, ...]] = field(default_factory=dict)
    absent: Mapping[Source, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source, metrics in self.values.items():
            if source in self.absent:
                raise BadInput(f"{source} is both measured and absent", where="signals")
            bad = [name for name, value in metrics.items() if not math.isfinite(value)]
            if bad:
                raise BadInput(f"{bad[0]} is not finite", where=f"signals of {source}", hint="leave it out")

    def get(self, source: Source, metric: str) -> float | None:
        """A value; None where it was not measured."""
        return self.values.get(source, {}).get(metric)

    def all(self, source: Source, *metrics: str) -> tuple[float, ...] | None:
        """Several values of one source; None unless each was measured."""
        found = self.values.get(source, {})
        return tuple(found[name] for name in metrics) if all(name in found for name in metrics) else None

    def has(self, source: Source) -> bool:
        """Whether a source measured anything."""
        return bool(self.values.get(source))

    def __or__(self, other: Signals) -> Signals:
        """Both; raises BadInput where both measured the same metric."""
        for source in self.values.keys() & other.values.keys():
            twice = self.values[source].keys() & other.values[source].keys()
            if twice:
                raise BadInput(f"{source} measured {min(twice)} twice", where="signals")
        sources = self.values.keys() | other.values.keys()
        values = {one: {**self.values.get(one, {}), **other.values.get(one, {})} for one in sources}
        cited = self.lines.keys() | other.lines.keys()
        lines = {one: (*self.lines.get(one, ()), *other.lines.get(one, ())) for one in cited}
        absent = {one: why for one, why in {**self.absent, **other.absent}.items() if one not in values}
        return Signals(values, lines, absent)

    def to_json(self) -> Json:
        """Plain JSON, sources and metrics sorted."""
        return {
            "values": {source: dict(sorted(self.values[source].items())) for source in sorted(self.values)},
            "lines": {source: list(self.lines[source]) for source in sorted(self.lines)},
            "absent": dict(sorted(self.absent.items())),
        }
