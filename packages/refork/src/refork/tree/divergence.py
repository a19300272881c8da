"""Two trajectories of one tree: what they share, where they part, and how the turns behind that differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from refork.errors import BadInput
from refork.report.diff import Piece, pieces
from refork.tree.node import Node, Step, Trajectory


@dataclass(frozen=True, slots=True)
class DiffRow:
    """The left and the right event at one distance from the fork; None where one trajectory is over.

    ``before`` and ``after`` are their texts behind the fork, piece by piece.
    """

    left: Node | None
    right: Node | None
    before: tuple[Piece, ...]
    after: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two paths part: after ``keep`` tokens of ``node`` (None: all); ``shared`` steps lead there."""

    node: Node
    keep: int | None
    shared: int
    rows: tuple[DiffRow, ...]


def divergence(left: Trajectory, right: Trajectory) -> Divergence:
    """How two trajectories from one root differ behind the point at which they part.

    What remains of a node that only one of them cuts is the first event of the trajectory that goes on in it.
    Where a trajectory is a beginning of the other, it parts at its end.

    Raises:
        BadInput: the trajectories begin in different tasks.
    """
    if left.root.id != right.root.id:
        raise BadInput("these trajectories begin in different tasks", hint="compare two branches of one task")
    shared = sum(1 for _ in _together(left, right))
    last = shared - 1
    keeps = (left.steps[last].keep, right.steps[last].keep)
    node = left.steps[last].node
    keep = _earlier(node, *keeps)
    before = list(_behind(left, last, keep))
    after = list(_behind(right, last, keep))
    rows = tuple(_diff_row(one, other) for one, other in zip_longest(before, after))
    return Divergence(node, keep, shared, rows)


def _together(left: Trajectory, right: Trajectory) -> Iterator[Step]:
    """Steps that both trajectories take: the last of them may keep less of its node in one of the two."""
    for one, other in zip(left, right, strict=False):
        if one.node.id != other.node.id:
            return
        yield one
        if one.keep != other.keep:
            return


def _earlier(node: Node, left: int | None, right: int | None) -> int | None:
    known = [keep for keep in (left, right) if keep is not None]
    keep = min(known, default=None)
    # A keep of the whole length is the same as None; a node without tokens can still be cut at 0.
    return None if keep is None or keep >= max(node.length, 1) else keep


def _behind(trajectory: Trajectory, last: int, keep: int | None) -> Iterator[tuple[Node, str]]:
    """Events behind the fork with the text that the trajectory keeps of them."""
    step = trajectory.steps[last]
    rest = step.text[len(step.node.text_upto(keep)) :] if keep is not None else ""
    if rest:
        yield step.node, rest
    for later in trajectory.steps[last + 1 :]:
        yield later.node, later.text


def _diff_row(left: tuple[Node, str] | None, right: tuple[Node, str] | None) -> DiffRow:
    one, before = left or (None, "")
    other, after = right or (None, "")
    return DiffRow(one, other, *pieces(before, after))
