"""One task's tree as lines in reading order, and windows on them: what a viewer of large trees asks.

The shape of all lines is arrays, made once per state of the tree; texts are read for the lines in sight only.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.tree.database import Database
from refork.tree.node_reader import row_number
from refork.tree.outline import TreeShape
from refork.tree.sqlite import SQLiteDatabase

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

#: Characters of a node's text that a line shows, and nodes of a joined run whose texts it shows.
SNIPPET: Final = 160
PARTS: Final = 4
#: Lines that one window gives at most.
WINDOW: Final = 500
#: Whether a node's text holds what a :func:`pattern` was made of.
HOLDS: Final = "lower(n.text) LIKE ? ESCAPE '\\'"
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The lines of one task, depth-first, siblings in order of writing.

    A line is a node, or (``joined``) a run of nodes without a fork between them. Per line [lines]: ``rows``
    and ``tails`` are the rows of its first and last node, ``levels`` how far it is indented (only a fork
    indents), ``sizes`` the lines at and under it, ``spans`` its own nodes, ``below`` the nodes under its
    first, ``leaves`` the endings at or under it and ``simulated`` those of them that come after a
    simulator's answer, ``means`` the mean of the ``scored`` scores at and under it (NaN: none). Where no
    real score is there, mean and count are those of simulated ones. ``order`` [nodes] are the rows of the
    task's nodes in reading order and ``starts`` [lines] where each line begins in it.
    """

    task: str
    score: str | None
    joined: bool
    rows: Int64
    tails: Int64
    levels: Int64
    sizes: Int64
    spans: Int64
    below: Int64
    leaves: Int64
    simulated: Int64
    means: Float64
    scored: Int64
    order: Int64
    starts: Int64

    def __len__(self) -> int:
        return len(self.rows)

    def lines_of(self, rows: Sequence[int] | Int64) -> Int64:
        """The line of each row that belongs to the task, in reading order, each once."""
        places = np.flatnonzero(np.isin(self.order, np.asarray(rows, dtype=np.int64)))
        return np.unique(np.searchsorted(self.starts, places, side="right") - 1)

    def parts(self, line: int) -> list[int]:
        """Rows of the nodes whose texts a line shows: its first ones, and the last."""
        start, span = int(self.starts[line]), int(self.spans[line])
        shown = self.order[start : start + min(span, PARTS)].tolist()
        return shown if span <= PARTS else [*shown[:-1], int(self.tails[line])]


@dataclass(frozen=True, slots=True)
class NodeExcerpt:
    """A node of a line in short: the first :data:`SNIPPET` of its ``length`` characters, up to a NUL.

    ``edited``: put there by a change, not sampled. ``value`` is its own score.
    """

    row: int
    id: str
    kind: str
    keep: int | None
    text: str
    length: int
    origin: str | None
    error: str | None
    edited: bool
    value: float | None


@dataclass(frozen=True, slots=True)
class SearchHits:
    """Lines in which something was found, and whether more nodes match than were looked up."""

    lines: list[int]
    rows: list[int]
    more: bool


def lines(db: Database, shape: TreeShape, task: str, score: str | None, *, joined: bool = True) -> Lines:
    """The lines of the task with an id, of what ``shape`` knows of it.

    Raises:
        UnknownNode: no such node.
        BadInput: the node is no task.
    """
    row = row_number(db, task)
    top = int(np.searchsorted(shape.rows, row))
    if top >= len(shape.rows) or shape.rows[top] != row:
        raise BadInput("this task is newer than what was read of the tree", where=f"node {task[:12]}")
    if shape.parents[top] >= 0:
        raise BadInput("this node is no task", where=f"node {task[:12]}")
    order = _reading_order(shape, top)
    parent = shape.parents[order]
    forks = np.bincount(shape.parents[shape.parents >= 0], minlength=len(shape.rows)) > 1
    begins_fork = (parent >= 0) & forks[parent]
    begins_fork[0] = False
    heads = begins_fork.copy() if joined else np.ones(len(order), dtype=bool)
    heads[0] = True
    starts = np.flatnonzero(heads)
    spans = np.diff(np.append(starts, len(order)))
    first, last = order[starts], order[starts + spans - 1]
    means, scored = shape.means(first)
    # In reading order a subtree is a run of nodes, so the lines under one are those that begin in its run.
    ends = np.searchsorted(starts, starts + shape.sizes[first])
    return Lines(
        task=task,
        score=score,
        joined=joined,
        rows=shape.rows[first],
        tails=shape.rows[last],
        levels=_levels(begins_fork, shape.sizes[order])[starts],
        sizes=ends - np.arange(len(starts)),
        spans=spans,
        below=shape.sizes[first] - 1,
        leaves=shape.leaves[first],
        simulated=shape.simulated[first],
        means=means,
        scored=scored,
        order=shape.rows[order],
        starts=starts,
    )


def _reading_order(shape: TreeShape, top: int) -> Int64:
    """Indices of a subtree's nodes, depth-first, siblings in order of writing."""
    # A child's place is its parent's, plus one, plus the sizes of the siblings before it: so each level is
    # placed at once, without a loop over nodes.
    by_parent = np.argsort(shape.parents, kind="stable")
    keys = shape.parents[by_parent]
    sizes = shape.sizes[by_parent]
    before = np.cumsum(sizes) - sizes
    # The first of each group of siblings: what was counted before it belongs to other parents.
    group = np.searchsorted(keys, keys)
    offsets = np.zeros(len(keys), dtype=np.int64)
    offsets[by_parent] = before - before[group]
    order = np.empty(int(shape.sizes[top]), dtype=np.int64)
    places = np.zeros(len(keys), dtype=np.int64)
    order[0] = top
    front = np.array([top], dtype=np.int64)
    while len(front):
        low, high = np.searchsorted(keys, front), np.searchsorted(keys, front + 1)
        counts = high - low
        inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        children = by_parent[np.repeat(low, counts) + inside]
        places[children] = np.repeat(places[front], counts) + 1 + offsets[children]
        order[places[children]] = children
        front = children
    return order


def _levels(begins_fork: NDArray[np.bool_], sizes: Int64) -> Int64:
    """How many forks lie above each node, in reading order: a branch of a fork indents all of its subtree."""
    begins = np.flatnonzero(begins_fork)
    # One more than there are nodes, since a branch may end with the last of them.
    steps = np.zeros(len(sizes) + 1, dtype=np.int64)
    steps[begins] += 1
    # Several branches may end at one place, and each is to be taken off.
    np.subtract.at(steps, begins + sizes[begins], 1)
    return np.cumsum(steps[:-1])


def parts(db: Database, rows: Sequence[int], score: str | None) -> dict[int, NodeExcerpt]:
    """The nodes of some rows in short, with their own score of the newest live producer."""
    sql = (
        f"SELECT n.row, n.id, n.kind, n.keep, substr(n.text, 1, {SNIPPET}), length(n.text), n.origin, "
        "n.error, n.key, (SELECT s.value FROM scores s JOIN producers p ON "
        "p.row = s.producer WHERE s.node = n.row AND s.name = ? AND s.value IS NOT NULL "
        "AND p.retired_at IS NULL ORDER BY p.row DESC LIMIT 1) FROM nodes n WHERE n.row IN ({keys})"
    )
    found = db.lookup(sql, dict.fromkeys(rows), (score,))
    return {
        row: NodeExcerpt(
            row, id_.hex(), kind, keep, text, length, origin, error, key.startswith("edit/"), value
        )
        for row, id_, kind, keep, text, length, origin, error, key, value in found
    }


def search(
    db: Database,
    visible: Lines,
    text: str = "",
    *,
    kind: str | None = None,
    errors: bool = False,
    most: int = 2000,
) -> SearchHits:
    """Lines with a node whose text holds ``text`` (the case of A to Z aside), of a kind, or that failed.

    Raises:
        BadInput: nothing to look for.
    """
    conditions, values = [], list[object]()
    if text:
        conditions.append(HOLDS)
        values.append(pattern(text))
    if kind is not None:
        conditions.append("n.kind = ?")
        values.append(kind)
    if errors:
        conditions.append("n.error IS NOT NULL")
    if not conditions:
        raise BadInput("there is nothing to look for", where="search", hint="give a text, a kind or errors")
    low, high = int(visible.order.min()), int(visible.order.max())
    sql = f"SELECT n.row FROM nodes n WHERE n.row BETWEEN ? AND ? AND {' AND '.join(conditions)}"
    rows = np.array([row for (row,) in db.rows(sql, (low, high, *values))], dtype=np.int64)
    rows = visible.order[np.isin(visible.order, rows)]
    return SearchHits(visible.lines_of(rows[:most]).tolist(), rows[:most].tolist(), len(rows) > most)


def pattern(text: str) -> str:
    """A text as :data:`HOLDS` takes it: wildcards stand for themselves, A to Z are small."""
    # The backslash first, or those that are put before the wildcards would be doubled.
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    # Not by the database: it makes other letters of a parameter small that it leaves alone in a column.
    return f"%{escaped.translate(_LOWER)}%"


def version(db: Database) -> tuple[int, ...]:
    """Numbers that differ whenever what the tree shows does: nodes, scores, forks, draws, retirements."""
    # A server gives numbers out before the commit: a row below the largest may come late, so it counts.
    tell = "coalesce(max(row), 0)" if isinstance(db, SQLiteDatabase) else "count(row)"
    parts = [f"(SELECT {tell} FROM {table})" for table in ("nodes", "scores", "forks", "draws")]
    parts.append("(SELECT count(*) FROM producers WHERE retired_at IS NOT NULL)")
    found = db.one(f"SELECT {', '.join(parts)}")
    assert found is not None
    return found
