"""A diagnosis in lines for a reader: what holds it back, findings gravest first, what was not measured."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

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


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A line, and what kind it is of."""

    text: str
    kind: Kind = "plain"


def diagnosis_lines(result: Diagnosed, *, width: int = 100) -> list[Line]:
    """The lines of a CPU kernel's diagnosis, at most ``width`` wide where words allow."""
    lines = [*_title(result), *_class(result.diagnosis.classified), *_roofline(result), Line("")]
    lines += _report(result.diagnosis, result.lines, result.signals)
    lines += [Line(f"Note: {note}", "dim") for note in result.notes]
    return [part for line in lines for part in _wrapped(line, width)]


def told_gpu(result: GpuDiagnosed, *, width: int = 100) -> list[Line]:
    """The lines of a GPU kernel's diagnosis."""
    lines = [Line(result.kernel, "head"), *(_noted(note) for note in result.notes)]
    known = result.diagnosis.classified
    if known.theory is None and known.measured is None:
        lines.append(Line("not classified: no counters of a run, so every tool was asked"))
    else:
        lines += _class(known)
    lines += [Line(""), *_report(result.diagnosis, {}, result.signals)]
    return [part for line in lines for part in _wrapped(line, width)]


def _report(found: Diagnosis, source: Mapping[int, str], signals: Signals) -> list[Line]:
    """Findings, who was asked, and what was not measured."""
    absent = [Line(f"Absent: {one}: {why}", "dim") for one, why in sorted(signals.absent.items())]
    return [*_findings(found.findings, source), *_asked(found), *absent]


def _noted(note: str) -> Line:
    """Figures that nobody measured are not whispered."""
    return Line(f"Note: {note}", "warn" if note == SYNTHETIC else "dim")


def _title(found: Diagnosed) -> list[Line]:
    sizes = ", ".join(f"{name}={size}" for name, size in found.problem.sizes.items())
    flags = " ".join(found.candidate.flags)
    return [Line(f"{found.problem.entry}({sizes})  gcc {flags}", "head")]


def _class(known: Classified) -> list[Line]:
    lines = [Line(f"{_CLASSES[known.bound]}, confidence {known.confidence}", "head")]
    parts = []
    if known.theory is not None:
        parts.append(_BY_THEORY[known.theory])
    if known.measured is not None:
        parts.append(_AS_MEASURED[known.measured])
    if parts:
        lines.append(Line("; ".join(parts)))
    return lines


def _roofline(found: Diagnosed) -> list[Line]:
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
    lines = [Line("; ".join(parts))] if parts else []
    if found.headroom is not None and found.headroom > roof.noise:
        lines.append(Line(f"These ceilings allow at most {found.headroom:.3g} times as fast."))
    elif found.headroom is not None:
        lines.append(Line("It runs at its ceiling, within the machine's noise."))
    return lines


def _findings(findings: Sequence[Finding], source: Mapping[int, str]) -> list[Line]:
    lines = []
    for number, one in enumerate(findings, 1):
        lines.append(Line(f"{number}. {one.tool}, {one.severity} ({one.category})", one.severity))
        lines.append(Line(f"   {one.cause}"))
        gain = one.expected_gain
        times = (
            ""
            if gain is None
            else f" Expected: {' to '.join(f'{g:.3g}' for g in dict.fromkeys(gain))} times as fast."
        )
        lines.append(Line(f"   Do: {one.action}{times}"))
        cited: set[int] = set()
        for evidence in one.evidence:
            lines.append(Line(f"   | {re.sub(' +', ' ', evidence)}", "dim"))
            place = re.match(r"[^\s:]+\.\w+:(\d+)", evidence)
            at = int(place[1]) if place else 0
            if at in source and at not in cited:
                cited.add(at)
                lines.append(Line(f"   |     {source[at]}", "dim"))
        lines.append(Line(""))
    return lines or [Line("No tool found a flaw."), Line("")]


def _asked(found: Diagnosis) -> list[Line]:
    fired = {one.tool for one in found.findings}
    silent = [name for name in found.ran if name not in fired]
    lines = [Line(f"Asked and silent: {', '.join(silent) or 'none'}", "dim")]
    if found.blind:
        lines.append(Line(f"Had nothing to read: {', '.join(sorted(found.blind))}", "dim"))
    lines += [Line(f"Broke, please report it: {one.rule}: {one.error}") for one in found.slips]
    return lines


def _wrapped(line: Line, width: int) -> list[Line]:
    """A line in pieces, all but the first further in."""
    if len(line.text) <= width:
        return [line]
    indent = " " * (len(line.text) - len(line.text.lstrip()))
    mark = indent + ("| " if line.text.lstrip().startswith("| ") else "  ")
    pieces = textwrap.wrap(
        line.text, width, initial_indent="", subsequent_indent=mark, drop_whitespace=True,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [Line(piece, line.kind) for piece in pieces]
