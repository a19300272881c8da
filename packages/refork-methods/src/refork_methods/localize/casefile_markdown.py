"""A case file as Markdown, ready to paste before a repair agent's task."""

from __future__ import annotations

import re
from collections.abc import Iterable

from refork_methods.localize.casefile import CaseFile, Location
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.validate import Problem

_HEADS = {
    "final": "Likely places to change, most likely first. Check each before you edit.",
    "forced": "The search ran out of turns; these places are from what it saw. Check each before you edit.",
    "empty": "No place was found. Localize the fault yourself.",
}
#: Longer spans are shown by their first lines.
_SHOWN = 40


def case_markdown(
    case: CaseFile,
    snapshot: Snapshot | None = None,
    problems: Iterable[Problem] = (),
    *,
    title: str = "Case file",
) -> str:
    """The case as Markdown; with a snapshot, each place with its numbered lines; problems as warnings."""
    told = [f"# {title}", "", _HEADS[case.status], ""]
    flagged: dict[int, list[str]] = {}
    for problem in problems:
        flagged.setdefault(problem.location, []).append(problem.words)
    for number, one in enumerate(case.locations):
        told += _location(number, one, snapshot, flagged.get(number, []))
    notes = [str(note) for note in case.meta.get("notes", [])]
    if notes:
        told += ["## Notes", "", *(f"- {_line(note)}" for note in notes), ""]
    return "\n".join(told).rstrip() + "\n"


def _location(number: int, one: Location, snapshot: Snapshot | None, flags: list[str]) -> list[str]:
    name = f", `{_line(one.symbol)}`" if one.symbol else ""
    sure = "not calibrated" if one.confidence is None else f"{one.confidence:.2f}"
    told = [f"## {number + 1}. `{one.place()}`{name}", ""]
    told += [f"> Warning: {_line(flag)}" for flag in flags]
    told += [""] if flags else []
    told += [
        f"- **Why here:** {_line(one.explanation)}",
        f"- **Root cause:** {_line(one.root_cause)}",
        f"- **Solution idea:** {_line(one.solution_idea)}",
    ]
    if one.dependencies:
        told.append("- **Depends on this:**")
        for other in one.dependencies:
            what = f"`{other.path}`" + (f" `{_line(other.symbol)}`" if other.symbol else "")
            told.append(f"    - {what}: {_line(other.why)}")
    if one.testing_impact:
        told += ["- **Tests:**", *(f"    - {_line(text)}" for text in one.testing_impact)]
    told += [f"- **Chance of being right:** {sure}", ""]
    if snapshot is not None and one.path in snapshot:
        told += [*_code(one, snapshot), ""]
    return told


def _code(one: Location, snapshot: Snapshot) -> list[str]:
    lines = snapshot.lines(one.path)[one.start - 1 : one.end]
    shown = lines[:_SHOWN]
    body = [f"{n:>5}  {text}" for n, text in enumerate(shown, one.start)]
    if len(lines) > len(shown):
        body.append(f"       ... {len(lines) - len(shown)} more lines")
    ticks = [len(run) for run in re.findall(r"`{3,}", "\n".join(body))]
    fence = "`" * max(3, max(ticks, default=2) + 1)  # text of the file cannot end the block
    return [f"{fence}text", *body, fence]


def _line(text: str) -> str:
    """One line: a text of the case cannot begin a heading or a block of its own."""
    return " ".join(text.split())
