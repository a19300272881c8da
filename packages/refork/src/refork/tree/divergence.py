"""Two walks of one tree: what they share, where they part, and how the turns behind that differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, Literal, TypeAlias

from refork.errors import BadInput
from refork.tree.node import Node, Step, Trajectory

#: Words that are aligned with words: above this many pairs a changed middle is shown whole.
ALIGNED: Final = 4_000_000

Mark: TypeAlias = Literal["same", "gone", "new"]
#: What became of words, and where they stand left and right, as difflib has it.
_Op: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text: equal in both, only left (``gone``) or only right (``new``)."""

    text: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class DiffRow:
    """The left and the right event at one distance from the fork; None where one walk is over.

    ``before`` and ``after`` are their texts behind the fork, as stretches.
    """

    left: Node | None
    right: Node | None
    before: tuple[Segment, ...]
    after: tuple[Segment, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two walks part: after ``keep`` tokens of ``node`` (None: all); ``shared`` steps lead there."""

    node: Node
    keep: int | None
    shared: int
    rows: tuple[DiffRow, ...]


def divergence(left: Trajectory, right: Trajectory) -> Divergence:
    """How two walks from one root differ behind the point at which they part.

    What remains of a node that only one of them cuts is the first event of the walk that goes on in it.
    Where a walk is a beginning of the other, it parts at its end.

    Raises:
        BadInput: the walks begin in different tasks.
    """
    if left.root.id != right.root.id:
        raise BadInput("these walks begin in different tasks", hint="compare two branches of one task")
    shared = sum(1 for _ in _together(left, right))
    last = shared - 1
    keeps = (left.steps[last].keep, right.steps[last].keep)
    node = left.steps[last].node
    keep = _earlier(node, *keeps)
    before = list(_behind(left, last, keep))
    after = list(_behind(right, last, keep))
    rungs = tuple(_diff_row(one, other) for one, other in zip_longest(before, after))
    return Divergence(node, keep, shared, rungs)


def _together(left: Trajectory, right: Trajectory) -> Iterator[Step]:
    """Steps that both walks take: the last of them may keep less of its node in one of the two."""
    for one, other in zip(left, right, strict=False):
        if one.node.id != other.node.id:
            return
        yield one
        if one.keep != other.keep:
            return


def _earlier(node: Node, left: int | None, right: int | None) -> int | None:
    known = [keep for keep in (left, right) if keep is not None]
    keep = min(known, default=None)
    return None if keep is None or keep >= max(node.length, 1) else keep


def _behind(walk: Trajectory, last: int, keep: int | None) -> Iterator[tuple[Node, str]]:
    """Events behind the fork with the text that the walk keeps of them."""
    step = walk.steps[last]
    rest = step.text[len(step.node.text_upto(keep)) :] if keep is not None else ""
    if rest:
        yield step.node, rest
    for later in walk.steps[last + 1 :]:
        yield later.node, later.text


def _diff_row(left: tuple[Node, str] | None, right: tuple[Node, str] | None) -> DiffRow:
    one, before = left or (None, "")
    other, after = right or (None, "")
    return DiffRow(one, other, *stretches(before, after))


def stretches(before: str, after: str) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """Two texts, word by word: the left one with what is gone, the right one with what is new."""
    old, new = (re.findall(r"\s+|\w+|[^\w\s]", text) for text in (before, after))
    left: list[Segment] = []
    right: list[Segment] = []
    for op, i, j, k, m in _steps(old, new):
        _add(left, "".join(old[i:j]), "same" if op == "equal" else "gone")
        _add(right, "".join(new[k:m]), "same" if op == "equal" else "new")
    return tuple(left), tuple(right)


def _add(found: list[Segment], text: str, mark: Mark) -> None:
    """One more stretch, joined to the last where the mark is the same."""
    if text and found and found[-1].mark == mark:
        found[-1] = Segment(found[-1].text + text, mark)
    elif text:
        found.append(Segment(text, mark))


def _steps(old: list[str], new: list[str]) -> list[_Op]:
    """How the words differ; equal ends are set aside first, and very long middles are not aligned."""
    short = min(len(old), len(new))
    begin = next((i for i in range(short) if old[i] != new[i]), short)
    end = next((i for i in range(short - begin) if old[-1 - i] != new[-1 - i]), short - begin)
    was, now = old[begin : len(old) - end], new[begin : len(new) - end]
    middle: list[_Op] = [("replace", 0, len(was), 0, len(now))]
    # Alignment takes the product of both lengths: a page that waits minutes shows nothing.
    if len(was) * len(now) <= ALIGNED:
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
