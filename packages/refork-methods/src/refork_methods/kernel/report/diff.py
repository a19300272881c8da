"""What changed between two sources, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import Literal, final

from refork.report.words import counted
from refork.visible import visible

#: Sources above this many characters are not compared: no kernel that a person reads is as long.
LONGEST = 200_000
#: Longer lines are cut.
WIDEST = 200


@final
@dataclass(frozen=True, slots=True)
class Line:
    """A line of a comparison; ``place`` is where a stretch begins, and ``cut`` what was left out."""

    text: str
    kind: Literal["same", "gone", "new", "place", "cut"]

    @property
    def sign(self) -> str:
        """The mark in front, so that colour is not the only one."""
        return {"same": " ", "gone": "-", "new": "+", "place": "@", "cut": "…"}[self.kind]


@final
@dataclass(frozen=True, slots=True)
class Change:
    """The lines that show a change, and how many came and went in all."""

    lines: tuple[Line, ...]
    added: int
    removed: int


def change(before: str, after: str, most: int = 400, context: int = 3) -> Change:
    """The difference of two sources in at most ``most`` lines."""
    if max(len(before), len(after)) > LONGEST:
        return Change((Line("the sources are too long to be compared here", "cut"),), 0, 0)
    found = unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=context)
    lines = [_line(text) for number, text in enumerate(found) if number >= 2]
    added, removed = (sum(line.kind == kind for line in lines) for kind in ("new", "gone"))
    if len(lines) > most:
        left = Line(f"{counted(len(lines) - most, 'more line')}", "cut")
        lines = [*lines[:most], left]
    return Change(tuple(lines), added, removed)


def _line(text: str) -> Line:
    shown = visible(text[1:] if len(text) <= WIDEST else text[1:WIDEST] + "…")
    if text.startswith("@@"):
        return Line(shown.strip("@ "), "place")
    return Line(shown, {"-": "gone", "+": "new"}.get(text[:1], "same"))  # type: ignore[arg-type]
