"""Two texts word by word, as pieces that are equal, removed or added."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Final, Literal, TypeAlias

#: Longer pieces are cut in their middle where they are short: equal ones, and changed ones.
KEPT_WORDS, CHANGED = 60, 300
#: Words that are aligned with words: above this many pairs a changed middle is shown whole.
ALIGNED: Final = 4_000_000

Mark: TypeAlias = Literal["same", "gone", "new"]
#: What became of words, and where they stand left and right, as difflib has it.
_Op: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a text: equal in both, only in the old one (``gone``) or only in the new one (``new``)."""

    text: str
    mark: Mark


def pieces(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """The old text with what is gone, and the new text with what is new; joined they are the texts."""
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
    left: list[Piece] = []
    right: list[Piece] = []
    for op, i, j, k, m in _steps(old, new):
        _add(left, "".join(old[i:j]), "same" if op == "equal" else "gone")
        _add(right, "".join(new[k:m]), "same" if op == "equal" else "new")
    return tuple(left), tuple(right)


def short_pieces(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """As :func:`pieces`, with the middle of long ones left out."""
    left, right = pieces(before, after)
    return tuple(map(_short, left)), tuple(map(_short, right))


def _short(piece: Piece) -> Piece:
    most = KEPT_WORDS if piece.mark == "same" else CHANGED
    if len(piece.text) <= 2 * most + 5:
        return piece
    return replace(piece, text=f"{piece.text[:most]} … {piece.text[-most:]}")


def _add(found: list[Piece], text: str, mark: Mark) -> None:
    """One more piece, joined to the last where the mark is the same."""
    if text and found and found[-1].mark == mark:
        found[-1] = Piece(found[-1].text + text, mark)
    elif text:
        found.append(Piece(text, mark))


def _steps(old: list[str], new: list[str]) -> list[_Op]:
    """How the words differ; equal ends are set aside first, and very long middles are not aligned."""
    short = min(len(old), len(new))
    begin = next((i for i in range(short) if old[i] != new[i]), short)
    # Within what the common beginning has left: the two equal ends must not overlap.
    end = next((i for i in range(short - begin) if old[-1 - i] != new[-1 - i]), short - begin)
    was, now = old[begin : len(old) - end], new[begin : len(new) - end]
    middle: list[_Op] = [("replace", 0, len(was), 0, len(now))]
    # Alignment takes the product of both lengths: a page that waits minutes shows nothing.
    if len(was) * len(now) <= ALIGNED:
        # Without difflib's guess, by which in long texts the words that come often are never matched.
        middle = list(SequenceMatcher(None, was, now, autojunk=False).get_opcodes())
    middle = [_joined(op, was, at, len(middle)) for at, op in enumerate(middle)]
    found: list[_Op] = [("equal", 0, begin, 0, begin)] if begin else []
    found += [(op, i + begin, j + begin, k + begin, m + begin) for op, i, j, k, m in middle]
    if end:
        found.append(("equal", len(old) - end, len(old), len(new) - end, len(new)))
    return found


def _joined(op: _Op, words: list[str], at: int, count: int) -> _Op:
    """White space alone between two changes belongs to them."""
    inner = 0 < at < count - 1
    return ("replace", *op[1:]) if inner and not "".join(words[op[1] : op[2]]).strip() else op
