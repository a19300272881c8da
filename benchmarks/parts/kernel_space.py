"""216 versions of one matrix product, as real C: what the advice benchmark searches.

Six loop orders, restrict or not, three tiles of K, three numbers of rows at once, two sets of flags. A step
changes one of them. ``PYTHONPATH=benchmarks python -m parts.kernel_space`` times and diagnoses all of them
and writes the table (half an hour on one core); it goes on where it was stopped.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

from refork.errors import CannotDo
from refork.plain import from_json
from refork_methods.kernel.bench import Bench, Calibration, Candidate, Evaluated, calibrate
from refork_methods.kernel.diagnose import diagnose
from refork_methods.kernel.problem import Argument, Problem
from refork_methods.kernel.rewrite import Move
from refork_methods.kernel.rewrite.moves import RULES
from refork_methods.kernel.tool import Finding, Slip

SIZE = 256
TABLE = Path(__file__).with_name("kernel_space_256.json")
ORDERS = tuple("".join(one) for one in permutations("ijk"))
TILES, ROWS = (0, 16, 64), (1, 2, 4)
FLAGS = (("-O2",), ("-O3", "-march=native"))


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One version; the first is the start."""

    order: str = "ijk"
    restrict: bool = False
    tile: int = 0
    rows: int = 1
    fast: bool = False

    @property
    def name(self) -> str:
        """Such as ``ikj restrict tile=64 rows=4 -O3``."""
        return (
            f"{self.order}{' restrict' * self.restrict} tile={self.tile} rows={self.rows} "
            f"{'-O3' if self.fast else '-O2'}"
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler's."""
        return FLAGS[self.fast]

    @property
    def source(self) -> str:
        """Its C: results added up in memory, as the loops run; the compiler may do what it can prove."""
        word = "restrict " * self.restrict
        n = SIZE
        lines = [
            f"void matmul(const float *{word}a, const float *{word}b, float *{word}c) {{",
            f"    for (int x = 0; x < {n * n}; x++) c[x] = 0.0f;",
        ]
        if self.tile:
            lines.append(f"    for (int kk = 0; kk < {n}; kk += {self.tile})")
        for name in self.order:
            first, last = ("kk", f"kk + {self.tile}") if name == "k" and self.tile else ("0", str(n))
            step = f"{name} += {self.rows}" if name == "i" and self.rows > 1 else f"{name}++"
            lines.append(f"    for (int {name} = {first}; {name} < {last}; {step})")
        rows = [f"(i + {row})" if row else "i" for row in range(self.rows)]
        body = [f"c[{row} * {n} + j] += a[{row} * {n} + k] * b[k * {n} + j];" for row in rows]
        return "\n".join([*lines, "    {", *(f"        {line}" for line in body), "    }", "}", ""])

    @property
    def candidate(self) -> Candidate:
        """What the bench takes."""
        return Candidate(self.source, self.flags)


POINTS = tuple(Point(*one) for one in product(ORDERS, (False, True), TILES, ROWS, (False, True)))
START = Point()
PROBLEM = Problem(
    name="matmul-256",
    entry="matmul",
    source=START.source,
    suffix=".c",
    arguments=(
        Argument(name="a", ctype="float", length="n*n", role="in"),
        Argument(name="b", ctype="float", length="n*n", role="in"),
        Argument(name="c", ctype="float", length="n*n", role="out"),
    ),
    sizes={"n": SIZE},
    flops=2.0 * SIZE**3,
    bytes=12.0 * SIZE**2,
    rtol=1e-4,
    atol=1e-5,
    flags=START.flags,
)  # fmt: skip


#: Kind of change -> the tools that ask for it: those of the shipped rewrite of the same name.
ANSWERS: Mapping[str, tuple[str, ...]] = {rule.name: rule.answers for rule in RULES}


def answers(name: str, value: Any) -> tuple[str, ...]:
    """The tools whose action asks for this change in this direction; the rewrites only go in these.

    None asks for a loop order whose innermost loop strides (any but j), for less than -O3, for pointers
    that may overlap, or for no tile. Only spilled registers ask for fewer rows at once.
    """
    if name == "jam" and value == 1:
        return ("CpuRegisterSpill",)
    along = value.endswith("j") if name == "interchange" else bool(value)
    return ANSWERS[name] if along else ()


ALIAS = "arrays of a call do not overlap"
_FIELDS: Mapping[str, tuple[str, Sequence[Any]]] = {
    "interchange": ("order", ORDERS), "restrict": ("restrict", (False, True)), "tile": ("tile", TILES),
    "jam": ("rows", ROWS), "flags": ("fast", (False, True)),
}  # fmt: skip


class Space:
    """The space as a library of rewrites: every change of one choice is a move."""

    def __init__(self) -> None:
        self.at = {point.candidate.digest: point for point in POINTS}

    def moves(
        self, source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> list[Move]:
        """All points that differ in one choice."""
        here = self.at[Candidate(source, flags).digest]
        return [
            Move(
                name,
                {"to": value},
                answers(name, value),
                assumes=ALIAS if name == "restrict" and value else "",
            )
            for name, (field, values) in _FIELDS.items()
            for value in values
            if value != getattr(here, field)
        ]

    def apply(
        self, source: str, entry: str, flags: tuple[str, ...], move: Move
    ) -> tuple[str, tuple[str, ...]]:
        """The other point."""
        there = replace(
            self.at[Candidate(source, flags).digest], **{_FIELDS[move.name][0]: move.parameters["to"]}
        )
        return there.source, there.flags


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of a point."""

    evaluated: Evaluated
    findings: tuple[Finding, ...]


def read_table(file: Path = TABLE) -> tuple[dict[str, Any], dict[Point, Row]]:
    """The stored facts of the machine, and the measurements of all points."""
    told = json.loads(file.read_text())
    rows = {
        Point(**row["point"]): Row(
            Evaluated.from_json(row["evaluated"]), tuple(from_json(Finding, one) for one in row["findings"])
        )
        for row in told["rows"]
    }
    return told["machine"], rows


def fill(most: float = float("inf")) -> None:
    """Measure what the table lacks, at most so many seconds: first the findings, then the times.

    Findings come from the code and from simulated caches, so they do not depend on what else the machine
    does; times do. The table is written after every point.
    """
    known = calibrate()
    machine = {**known.machine, "noise": known.noise, "flops": known.flops, "bandwidth": known.bandwidth,
               "made": known.made}  # fmt: skip
    told = json.loads(TABLE.read_text())["rows"] if TABLE.exists() else []
    rows: dict[Point, dict[str, Any]] = {Point(**row["point"]): row for row in told}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, Bench(PROBLEM, Path(scratch), calibration=known) as bench:
        for kind, act in (("findings", _findings), ("evaluated", _evaluated)):
            for number, point in enumerate(POINTS, 1):
                row = rows.setdefault(point, {"point": asdict(point), "findings": None, "evaluated": None})
                if row[kind] is not None or time.monotonic() - started > most:
                    continue
                row[kind] = act(bench, known, point)
                body = ",\n".join(json.dumps(one) for one in rows.values())
                TABLE.write_text(f'{{"machine": {json.dumps(machine)}, "rows": [\n{body}\n]}}\n')
                print(f"{kind} {number}/{len(POINTS)} {time.monotonic() - started:.0f} s", flush=True)


def _findings(bench: Bench, known: Calibration, point: Point) -> list[dict[str, Any]]:
    """What all tools find that need no clock."""
    found = diagnose(
        PROBLEM, point.candidate, bench=bench, calibration=known, quick=True, parts=("code", "cachegrind")
    )
    return [one.to_json() | {"evidence": []} for one in found.diagnosis.findings]


def _evaluated(bench: Bench, known: Calibration, point: Point) -> dict[str, Any]:
    """Checked, and timed against the start."""
    done = bench.evaluate(point.candidate)
    if not done.ok:
        raise CannotDo(f"{point.name} fails: {done.why}", where="kernel space")
    return done.to_json() | {"samples": []}


if __name__ == "__main__":
    fill(float(sys.argv[1]) if len(sys.argv) > 1 else float("inf"))
