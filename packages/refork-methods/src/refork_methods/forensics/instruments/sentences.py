"""Where sentences and paragraphs end, as exact token positions of a recorded trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from refork.errors import BadInput, CannotDo
from refork.stats.results import Array
from refork.tree.node import Point, Step, Trajectory
from refork.tree.tree import Tree

Unit = Literal["sentence", "paragraph", "turn"]

# Only before white space: the point of 3.14 or of a file's name ends nothing.
_SENTENCE = re.compile(r"[.!?…。！？]+[\"'”’)\]]*(?=\s)|\n")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
#: A full stop behind these ends no sentence: common abbreviations, single letters, list numbers.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|etc|Mr|Mrs|Ms|Dr|Prof|Fig|Eq|No|St|[A-HJ-Z])\.$|(?:^|\n)\s*\d+\.$"
)


def sentence_ends(text: str) -> list[int]:
    """Character offsets at which the sentences of a text end, white space after them left out.

    A sentence ends at a mark (with the quotes and brackets that close behind it) before white space, and at a
    line break. The last offset is the end of what is not white space.
    """
    return _ends(text, _SENTENCE)


def paragraph_ends(text: str) -> list[int]:
    """Character offsets at which the paragraphs of a text end: before an empty line, and at the end."""
    return _ends(text, _PARAGRAPH)


def _ends(text: str, pattern: re.Pattern[str]) -> list[int]:
    found: list[int] = []
    for mark in pattern.finditer(text):
        upto = text[: mark.end()].rstrip()
        # Marks with only white space between them end one sentence, not two.
        if len(upto) > (found[-1] if found else 0) and not _ABBREVIATION.search(upto[-12:]):
            found.append(len(upto))
    whole = len(text.rstrip())
    if whole > (found[-1] if found else 0):
        found.append(whole)
    return found


def token_cuts(ends: Sequence[int], offsets: Int[Array, "tokens"]) -> list[int]:
    """How many tokens stand before each cut: the fewest whose text holds the sentence.

    ``offsets`` is the end of each token in the text (characters). Sentences that end inside one token share
    its cut; the last cut takes all tokens, those that add no text included.
    """
    total = len(offsets)
    if not total:
        return []
    # The first token that reaches the end of the sentence, which may carry the start of the next one.
    cuts = {int(np.searchsorted(offsets, end, side="left")) + 1 for end in ends}
    inner = sorted(cut for cut in cuts if cut < total and int(offsets[cut - 1]) < int(offsets[-1]))
    return [*inner, total]


@dataclass(frozen=True, slots=True)
class Piece:
    """One sentence (paragraph, turn) of a trace: its text, the points before and behind it.

    ``turn`` counts the policy's turns from 0. ``after`` of the last piece of a turn lies behind what the
    world answered, so "behind this one" and "before the next one" are the same prefix.
    """

    text: str
    turn: int
    before: Point
    after: Point


def _positions(step: Step, kept: int) -> NDArray[np.int64]:
    """End of every kept token in the step's text; inserted text is never cut inside."""
    node = step.node
    if node.tokens is None or (node.offsets is None and "edit" not in node.extra):
        raise CannotDo(
            "this turn was recorded without token ids and their places in the text",
            where=f"node {node.id[:12]}",
            hint='use unit="turn", or import the trace with --policy to tokenise it',
        )
    if node.offsets is not None:
        return node.offsets[:kept].astype(np.int64)
    whole = np.zeros(kept, dtype=np.int64)
    whole[-1:] = len(step.text)
    return whole


@dataclass(frozen=True, slots=True)
class _Turn:
    """Consecutive kept action steps: one turn of the policy, maybe recorded in several nodes."""

    steps: tuple[Step, ...]
    first: int

    def lengths(self) -> list[int]:
        return [s.node.length if s.keep is None else s.keep for s in self.steps]

    def offsets(self) -> NDArray[np.int64]:
        """End of every kept token in the turn's text."""
        parts, base = [], 0
        for step, kept in zip(self.steps, self.lengths(), strict=True):
            parts.append(_positions(step, kept) + base)
            base += len(step.text)
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def point(self, cut: int, tree: Tree | None) -> Point:
        """The point behind ``cut`` tokens of the turn; between two nodes it is the end of the first."""
        left = cut
        for step, kept in zip(self.steps, self.lengths(), strict=True):
            if left <= kept:
                return Point(step.node, left, tree)
            left -= kept
        raise BadInput(f"the turn has no cut at token {cut}")

    def tokens_before(self, index: int, keep: int) -> int | None:
        """Tokens of the turn that stand before ``keep`` tokens of the context's step; None where all do."""
        here = index - self.first
        if here >= len(self.steps):
            return None
        return 0 if here < 0 else sum(self.lengths()[:here]) + keep


def _turns(trajectory: Trajectory) -> list[tuple[_Turn, Step | None]]:
    """Turns of the context and, for each, the last step that followed it before the next turn."""
    turns: list[tuple[list[Step], int]] = []
    answers: list[Step | None] = []
    speaking = False
    for index, step in enumerate(trajectory.context):
        if step.node.kind != "action":
            if answers:
                answers[-1] = step
        # A fork inside a turn leaves it in two nodes, one behind the other.
        elif speaking:
            turns[-1][0].append(step)
        else:
            turns.append(([step], index))
            answers.append(None)
        speaking = step.node.kind == "action"
    return [(_Turn(tuple(steps), at), a) for (steps, at), a in zip(turns, answers, strict=True)]


def pieces(end: Point, unit: Unit = "sentence", behind: Point | None = None) -> list[Piece]:
    """The sentences (paragraphs, turns) that the policy generated on the trajectory that ends at a point.

    The cuts lie on whole tokens, so a piece's text is what its tokens add. ``behind``: only those behind a
    point of the trajectory, the first of which begins there; then there may be none.

    Raises:
        BadInput: the trajectory holds no turn of the policy, or not the point.
        CannotDo: token ids or their places in the text are not recorded (``turn`` needs none).
    """
    if unit not in ("sentence", "paragraph", "turn"):
        raise BadInput(f"unknown unit {unit!r}", hint="sentence, paragraph or turn")
    if end.tree is None:
        raise BadInput("this point belongs to no tree; take it with tree.at(node)")
    trajectory = end.tree.path(end)
    turns = _turns(trajectory)
    if not turns:
        raise BadInput("this trajectory holds no turn of the policy", where=f"node {end.node.id[:12]}")
    index = -1
    if behind is not None:
        index = next((i for i, s in enumerate(trajectory.context) if s.node == behind.node), -1)
        if index < 0:
            raise BadInput("the trajectory does not pass this point", where=behind.address)
    found: list[Piece] = []
    for number, (turn, answer) in enumerate(turns):
        skipped = turn.tokens_before(index, behind.keep) if behind is not None else 0
        if skipped is None:
            continue
        last = turn.steps[-1]
        # Behind a turn that was answered stands the answer: what comes next sees it.
        after = (
            Point(last.node, last.keep, end.tree)
            if answer is None
            else Point(answer.node, answer.keep, end.tree)
        )
        found += _pieces_of(turn, number, after, end.tree, unit, skipped)
    return found


def _pieces_of(turn: _Turn, number: int, after: Point, tree: Tree, unit: Unit, skipped: int) -> list[Piece]:
    """Pieces of one turn behind its first ``skipped`` tokens."""
    first = turn.steps[0]
    text = "".join(step.text for step in turn.steps)
    if unit == "turn" and skipped:
        return []
    if unit == "turn":
        whole = first.node.tokens is None and first.node.parent is not None
        # A policy that takes messages only is forked where its turn begins: at the parent's end.
        begin = tree.at(first.node.parent) if whole and first.node.parent else Point(first.node, 0, tree)
        return [Piece(text, number, begin, after)]
    offsets = turn.offsets()
    if skipped >= len(offsets):
        return []
    base = int(offsets[skipped - 1]) if skipped else 0
    rest = text[base:]
    ends = sentence_ends(rest) if unit == "sentence" else paragraph_ends(rest)
    cuts = [cut + skipped for cut in token_cuts(ends, offsets[skipped:] - base)]
    points = [turn.point(skipped, tree), *(turn.point(cut, tree) for cut in cuts[:-1]), after]
    spans = [base, *(int(offsets[cut - 1]) for cut in cuts)]
    return [Piece(text[spans[i] : spans[i + 1]], number, points[i], points[i + 1]) for i in range(len(cuts))]
