"""A diagnosis in lines for a reader: what holds it back, findings gravest first, what was not measured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from refork.report.words import short_time
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.diagnose import Diagnosed
from refork_methods.kernel.gpu.diagnose import SYNTHETIC, GpuDiagnosed
from refork_methods.kernel.roofline import Classified
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import Diagnosis, Finding, Severity

Kind: TypeAlias = Literal["head", "plain", "dim"] | Severity
_CLASSES = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "latency": "latency-bound",
    "mixed": "between compute- and memory-bound",
}
_BY_THEORY = {
    "compute": "by its work, arithmetic is the ceiling",
    "memory": "by its work, memory is the ceiling",
    "latency": "each step waits for the last one",
    "mixed": "by its work, both ceilings are near",
}
_AS_MEASURED = {
    "compute": "the present code is nearer to the arithmetic's",
    "memory": "the present code is nearer to the memory's",
    "latency": "the present code is far below both",
    "mixed": "the present code is as near to one as to the other",
}


class Line(NamedTuple):
    """A line, and what kind it is of."""

    text: str
    kind: Kind = "plain"


def told_lines(result: Diagnosed | GpuDiagnosed, *, width: int = 100) -> list[Line]:
    """The lines of a diagnosis, at most ``width`` wide where words allow."""
    lines = _gpu(result) if isinstance(result, GpuDiagnosed) else _cpu(result)
    return [part for line in lines for part in _wrapped(line, width)]


def _cpu(result: Diagnosed) -> Iterator[Line]:
    sizes = ", ".join(f"{name}={size}" for name, size in result.problem.sizes.items())
    yield Line(f"{result.problem.entry}({sizes})  gcc {' '.join(result.candidate.flags)}", "head")
    yield from _class(result.diagnosis.classified)
    yield from _roofline(result)
    yield from _report(result.diagnosis, result.lines, result.signals)
    for note in result.notes:
        yield Line(f"Note: {note}", "dim")


def _gpu(result: GpuDiagnosed) -> Iterator[Line]:
    yield Line(result.kernel, "head")
    for note in result.notes:
        # Figures that nobody measured are not whispered.
        yield Line(f"Note: {note}", "warn" if note == SYNTHETIC else "dim")
    known = result.diagnosis.classified
    if known.theory is None and known.measured is None:
        yield Line("not classified: no counters of a run, so every tool was asked")
    else:
        yield from _class(known)
    yield from _report(result.diagnosis, {}, result.signals)


def _class(known: Classified) -> Iterator[Line]:
    yield Line(f"{_CLASSES[known.bound]}, confidence {known.confidence}", "head")
    parts = [] if known.theory is None else [_BY_THEORY[known.theory]]
    parts += [] if known.measured is None else [_AS_MEASURED[known.measured]]
    if parts:
        yield Line("; ".join(parts))


def _roofline(found: Diagnosed) -> Iterator[Line]:
    parts, work, roof = [], found.work, found.ceilings
    if found.seconds is not None:
        parts.append(f"{short_time(found.seconds)} a call")
    if work is not None and found.seconds:
        parts.append(f"{work.flops / found.seconds / 1e9:.3g} of {roof.flops / 1e9:.3g} Gflop/s")
        share = m.BYTES_SHARE.of(found.signals)
        if share is not None:
            parts.append(f"{share * roof.bandwidth / 1e9:.3g} of {roof.bandwidth / 1e9:.3g} GB/s")
    if work is not None:
        parts.append(f"{work.intensity:.3g} flop per byte where both ceilings meet at {roof.ridge:.3g}")
    if parts:
        yield Line("; ".join(parts))
    if found.headroom is not None and found.headroom > roof.noise:
        yield Line(f"These ceilings allow at most {found.headroom:.3g} times as fast.")
    elif found.headroom is not None:
        yield Line("It runs at its ceiling, within the machine's noise.")


def _report(found: Diagnosis, source: Mapping[int, str], signals: Signals) -> Iterator[Line]:
    """Findings, who was asked, and what was not measured."""
    yield Line("")
    for number, one in enumerate(found.findings, 1):
        yield from _finding(number, one, source)
    if not found.findings:
        yield Line("No tool found a flaw.")
    yield Line("")
    fired = {one.tool for one in found.findings}
    silent = [name for name in found.ran if name not in fired]
    yield Line(f"Asked and silent: {', '.join(silent) or 'none'}", "dim")
    if found.blind:
        yield Line(f"Had nothing to read: {', '.join(sorted(found.blind))}", "dim")
    for slip in found.slips:
        yield Line(f"Broke, please report it: {slip.rule}: {slip.error}")
    for missing, why in sorted(signals.absent.items()):
        yield Line(f"Absent: {missing}: {why}", "dim")


def _finding(number: int, one: Finding, source: Mapping[int, str]) -> Iterator[Line]:
    yield Line(f"{number}. {one.tool}, {one.severity} ({one.category})", one.severity)
    yield Line(f"   {one.cause}")
    yield Line(f"   Do: {one.action}{one.gain}")
    cited: set[int] = set()
    for evidence in one.evidence:
        yield Line(f"   | {re.sub(' +', ' ', evidence)}", "dim")
        place = re.match(r"[^\s:]+\.\w+:(\d+)", evidence)
        at = int(place[1]) if place else 0
        if at in source and at not in cited:
            cited.add(at)
            yield Line(f"   |     {source[at]}", "dim")


def _wrapped(line: Line, width: int) -> list[Line]:
    """A line in pieces, all but the first further in."""
    if len(line.text) <= width:
        return [line]
    indent = " " * (len(line.text) - len(line.text.lstrip()))
    mark = indent + ("| " if line.text.lstrip().startswith("| ") else "  ")
    pieces = textwrap.wrap(
        line.text, width, subsequent_indent=mark, break_long_words=False, break_on_hyphens=False
    )
    return [Line(piece, line.kind) for piece in pieces]
