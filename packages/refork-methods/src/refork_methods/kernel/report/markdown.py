"""The report as Markdown: the same numbers, for a pull request or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from refork.report.words import DASH, flat, one_line, rate, short_time, times
from refork.visible import visible
from refork_methods.kernel.report import sentences as says
from refork_methods.kernel.report.diff import change
from refork_methods.kernel.report.figures import Figures
from refork_methods.kernel.report.folder import Search
from refork_methods.kernel.report.tree_picture import FAILED, name_of
from refork_methods.kernel.tool import Finding

#: Longest text in a cell.
_CELL = 160
#: What Markdown or HTML would act on.
_ACTS = re.compile(r"([\\`*_{}\[\]<>|~&$])")


def markdown(search: Search, report: Figures) -> str:
    """The report as Markdown; equal data give equal text, and foreign text acts on nothing."""
    parts = [
        f"# {text(says.headline(report))}",
        text(" ".join(part for part in (says.tried(report), says.standing(report)) if part)),
        *_section("Timing", table(("", "original", "best"), says.timing_rows(search, report))),
        *_section(
            "Under the roof", text(f"{says.roof_words(search, report)} {says.no_roofline(search, report)}")
        ),
        *_section("The way to the best kernel", _way(search, report)),
        *_section("The best kernel against the original", _best(search, report)),
        *_section("Findings before and after", _findings(report)),
        *_section("What the tools' advice brought", _hits(report)),
        *_section("What failed, and why", _failures(report)),
        *_section("Again", "\n\n".join(fence(command, "console") for command in says.commands(search))),
        *_section("Problem", _facts(says.problem(search))),
        *_section("Search", _facts(flat(search.settings))),
        *_section("Machine", _facts(says.machine(search)) or "The machine was not calibrated."),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def text(foreign: str, most: int = 2000) -> str:
    """Text in one line that Markdown prints as it is."""
    return _ACTS.sub(r"\\\1", one_line(foreign, most))


def code(foreign: str, most: int = _CELL) -> str:
    """A code span, also of text that has back-quotes; in a table, too."""
    line = one_line(foreign, most).replace("|", "¦")
    ticks = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if "`" in line else ""
    return f"{ticks}{pad}{line}{pad}{ticks}" if line else DASH


def fence(foreign: str, language: str) -> str:
    """A code block, fenced by more back-quotes than it has."""
    ticks = "`" * max(3, max((len(run) for run in re.findall("`+", foreign)), default=0) + 1)
    return f"{ticks}{language}\n{visible(foreign)}\n{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; empty without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines]) if lines else ""


def _section(title: str, body: str) -> list[str]:
    return [f"## {title}", body] if body else []


def _way(search: Search, told: Figures) -> str:
    nodes = [search.by_number[number] for number in told.path]
    rows = [
        (
            str(node.number),
            code(name_of(node)),
            times(node.evaluated.speedup),
            short_time(node.evaluated.seconds),
        )
        for node in nodes
    ]
    return table(("node", "move", "speed-up", "a call"), rows)


def _best(search: Search, told: Figures) -> str:
    if told.best is None or len(told.path) == 1:
        return "No kernel is right." if told.best is None else "The original is the best."
    best = search.by_number[told.best]
    found = change(search.nodes[0].source, best.source)
    flags = f"Flags: {code(' '.join(best.flags), 400)}\n\n" if best.flags else ""
    if told.granted:
        listed = "".join(f"- {text(one)}\n" for one in told.granted)
        flags += f"**It is assumed, so check it before you use this version:**\n\n{listed}\n"
    if not found.lines:
        return f"{flags}The source is the original's."
    lines = [("@@ " if line.kind == "place" else line.sign) + line.text for line in found.lines]
    return flags + fence("\n".join(lines), "diff")


def _findings(told: Figures) -> str:
    if told.compared is None:
        return "The original or the best kernel was not diagnosed."
    if not told.compared:
        return "No tool found anything, on either."
    lines = [f"- {row.state}: {_finding(row.after or row.before)}" for row in told.compared]
    return "\n".join(lines)


def _finding(finding: Finding | None) -> str:
    assert finding is not None, "a row has a finding before or after"
    return f"**{text(finding.tool)}** ({finding.severity}) {text(finding.sentence)}"


def _hits(told: Figures) -> str:
    rows = [
        (text(hit.tool), str(hit.fires), str(hit.acted), str(hit.right), rate(hit.large), times(hit.gain))
        for hit in told.hits
    ]
    head = ("tool", "fires", "acted on", "right", "gains over 1.5×", "mean gain")
    return table(head, rows) or "No kernel was diagnosed with a finding."


def _failures(told: Figures) -> str:
    rows = [
        (FAILED[kind.stage], str(kind.count), code(kind.why), ", ".join(map(str, kind.nodes)))
        for kind in told.failures
    ]
    more = f"\n\n{told.failures_left} more failed in other ways." if told.failures_left else ""
    return (table(("how", "kernels", "first reason given", "nodes"), rows) or "Nothing failed.") + more


def _facts(facts: dict[str, str]) -> str:
    return "\n".join(f"- {text(name)}: {code(value, 300)}" for name, value in facts.items())
