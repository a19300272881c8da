"""The text before and after a change, as pieces that are equal, removed or added."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

#: Longer stretches are cut in their middle: equal ones, and changed ones.
KEPT_WORDS, CHANGED = 60, 300
#: Above this many word pairs the changed middle is shown whole, not aligned.
ALIGNED = 4_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text and whether the change touched it."""

    text: str
    kind: Literal["same", "gone", "new"]


def pieces(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """The old text with what is gone, and the new text with what is new; long stretches shortened."""
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
    left: list[Piece] = []
    right: list[Piece] = []
    for op, i, j, k, m in _steps(old, new):
        was, now = "".join(old[i:j]), "".join(new[k:m])
        if op == "equal":
            left.append(Piece(_short(was, KEPT_WORDS), "same"))
            right.append(Piece(_short(now, KEPT_WORDS), "same"))
            continue
        if was:
            left.append(Piece(_short(was, CHANGED), "gone"))
        if now:
            right.append(Piece(_short(now, CHANGED), "new"))
    return tuple(left), tuple(right)


def _steps(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    """How the words differ, the equal start set aside first: contexts are long and differ at their end."""
    same = next(
        (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    start = [("equal", 0, same, 0, same)] if same else []
    rest_old, rest_new = old[same:], new[same:]
    if len(rest_old) * len(rest_new) > ALIGNED:
        return [*start, ("replace", same, len(old), same, len(new))]
    found = SequenceMatcher(None, rest_old, rest_new, autojunk=False).get_opcodes()
    return [*start, *((op, i + same, j + same, k + same, m + same) for op, i, j, k, m in found)]


def _short(text: str, most: int) -> str:
    return text if len(text) <= 2 * most + 5 else f"{text[:most]} … {text[-most:]}"
