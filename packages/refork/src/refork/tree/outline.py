"""A tree as lines to draw: runs without a fork stay flat, forks indent, many siblings are counted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.tree.database import Database
from refork.tree.node import Node
from refork.tree.node_reader import by_rows, row_number

_PAGE: Final = 50_000
#: Guide and node index of a line, or the siblings that are not drawn.
_Place: TypeAlias = tuple[str, int, NDArray[np.int64] | None]
_USUAL: Final = ("success", "reward", "value")


@dataclass(frozen=True, slots=True)
class Options:
    """What to draw: below ``under``, at most ``siblings`` of a fork and ``lines`` in all.

    ``score`` names the score that is shown; None takes the usual one.
    """

    under: str | None = None
    score: str | None = None
    siblings: int = 6
    lines: int = 200

    def __post_init__(self) -> None:
        for name in ("siblings", "lines"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1", where="outline")


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One line: a node, or ``more`` siblings that are not drawn (``node`` is None then).

    ``below`` counts nodes under it, ``leaves`` endings at or under it, ``mean`` is the mean of the
    ``scored`` scores at and under it (None: no score, or infinite ones of both signs, which have no
    mean), ``own`` is its own score. What comes after a simulator's answer is
    kept apart: ``simulated`` of the leaves are, and ``simulated_mean`` is of their ``simulated_scored``.
    """

    guide: str
    node: Node | None
    more: int
    below: int
    leaves: int
    mean: float | None
    scored: int
    own: float | None
    simulated: int = 0
    simulated_mean: float | None = None
    simulated_scored: int = 0


@dataclass(frozen=True, slots=True)
class Outline:
    """Lines in order; ``hidden`` of ``total`` nodes are not drawn, ``score`` is what was shown.

    Of all ``leaves``, drawn or not, ``simulated`` come after a simulator's answer.
    """

    lines: tuple[OutlineLine, ...]
    score: str | None
    total: int
    hidden: int
    leaves: int
    simulated: int


@final
class TreeShape:
    """Children, sizes and score sums of every node, as arrays over all nodes in order of writing."""

    def __init__(self, db: Database, score: str | None) -> None:
        self.rows, parents, depths, simulated = _columns(db)
        count = len(self.rows)
        # Row numbers begin at 1; the parent of a root was read as 0.
        at = np.searchsorted(self.rows, parents)
        self.parents: NDArray[np.int64] = np.where(parents > 0, at, -1)
        self.own = _scores(db, score, self.rows)
        known = ~np.isnan(self.own)
        levels = _levels(depths)
        self._mark(simulated, levels)
        # One column for what is real, one for what is simulated.
        kinds = np.stack([~simulated, simulated], axis=1)
        counted = known[:, None] & kinds
        self.sums: NDArray[np.float64] = np.where(counted, self.own[:, None], 0.0)
        self.scored: NDArray[np.int64] = counted.astype(np.int64)
        self.sizes: NDArray[np.int64] = np.ones(count, dtype=np.int64)
        self.leaves: NDArray[np.int64] = np.ones(count, dtype=np.int64)
        self.leaves[self.parents[self.parents >= 0]] = 0
        self.simulated: NDArray[np.int64] = self.leaves * simulated
        self._gather(levels)
        order = np.argsort(self.parents, kind="stable")
        self._sorted: NDArray[np.int64] = order.astype(np.int64)
        self._keys: NDArray[np.int64] = self.parents[order]

    def _mark(self, simulated: NDArray[np.bool_], levels: list[NDArray[np.int64]]) -> None:
        """What follows a simulated node is simulated too, whoever said it."""
        for nodes in levels[1:]:
            simulated[nodes] |= simulated[self.parents[nodes]]

    def _gather(self, levels: list[NDArray[np.int64]]) -> None:
        # Infinite scores of both signs have no sum: it is NaN.
        with np.errstate(invalid="ignore"):
            # Deepest first: a node's totals are whole before they are added to its parent's.
            for nodes in reversed(levels[1:]):
                for totals in (self.sums, self.scored, self.sizes, self.leaves, self.simulated):
                    # Siblings have one parent: plain indexing would add only one of them.
                    np.add.at(totals, self.parents[nodes], totals[nodes])

    def children(self, index: int) -> NDArray[np.int64]:
        """Indices of a node's children (-1: of the roots), in order of writing."""
        low, high = np.searchsorted(self._keys, [index, index + 1])
        return self._sorted[low:high]

    def means(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Mean score at and under each of some nodes, NaN where it has none, and of how many [n].

        Simulated scores count only where no real one is there: the two are never mixed.
        """
        kind = np.where(self.scored[indices, 0] > 0, 0, 1)
        scored = self.scored[indices, kind]
        unknown = np.full(len(indices), np.nan)
        return np.divide(self.sums[indices, kind], scored, out=unknown, where=scored > 0), scored

    def mean(self, indices: NDArray[np.int64], kind: int = 0) -> tuple[float | None, int]:
        """Mean score at and under some nodes, and of how many; kind 0 is the real ones, 1 the simulated."""
        count = int(self.scored[indices, kind].sum())
        with np.errstate(invalid="ignore"):
            total = float(self.sums[indices, kind].sum())
        return (total / count if count and not np.isnan(total) else None), count


def _levels(depths: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Indices of the nodes of each depth, roots first."""
    order = np.argsort(depths, kind="stable")
    starts = np.searchsorted(depths[order], np.arange(int(depths.max(initial=0)) + 2))
    return [order[low:high] for low, high in pairwise(starts)]


def _columns(
    db: Database,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Row, parent's row, depth and whether a simulator answered, of every node."""
    pages: list[NDArray[np.int64]] = [np.zeros((0, 4), dtype=np.int64)]
    top, last = db.now(), 0
    sql = (
        "SELECT row, coalesce(parent, 0), depth, origin IS 'simulated' FROM nodes WHERE row > ? AND row <= ? "
        "ORDER BY row LIMIT ?"
    )
    while page := db.rows(sql, (last, top, _PAGE)):
        pages.append(np.array(page, dtype=np.int64))
        last = page[-1][0]
    table = np.concatenate(pages)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy(), table[:, 3] > 0


def _scores(db: Database, name: str | None, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    own = np.full(len(rows), np.nan)
    if name is not None:
        found = db.rows(
            "SELECT s.node, s.value FROM scores s JOIN producers p ON p.row = s.producer WHERE s.name = ? "
            "AND s.value IS NOT NULL AND p.retired_at IS NULL AND s.node <= ? ORDER BY p.row",
            (name, int(rows.max(initial=0))),
        )
        if found:
            nodes, values = (np.array(column) for column in zip(*found, strict=True))
            at = np.searchsorted(rows, nodes)
            # Nodes may have come between the two queries, and to a server in no order.
            known = rows[at] == nodes
            # In order of producers: of several values for one node numpy keeps the last, the newest one's.
            own[at[known]] = values[known]
    return own


def score_names(db: Database) -> list[str]:
    """Names of live scalar scores, the usual ones first."""
    sql = (
        "SELECT DISTINCT s.name FROM scores s JOIN producers p ON p.row = s.producer "
        "WHERE s.value IS NOT NULL AND p.retired_at IS NULL ORDER BY s.name"
    )
    names = [name for (name,) in db.rows(sql)]
    return sorted(names, key=lambda name: (_USUAL.index(name) if name in _USUAL else len(_USUAL), name))


def outline(db: Database, options: Options) -> Outline:
    """Lines of a tree or of what grows from one node.

    Raises:
        UnknownNode: ``under`` names no node.
        BadInput: no live score has the name asked for.
    """
    start = None if options.under is None else row_number(db, options.under)
    shape, score = shape_of(db, options.score)
    first = -1 if start is None else int(np.searchsorted(shape.rows, start))
    places = _placed_lines(shape, first, options)
    whole = shape.children(-1) if first < 0 else np.array([first])
    return _drawn(db, shape, places, score, int(shape.sizes[whole].sum()), whole)


def roots(db: Database, options: Options) -> Outline:
    """A line for each task, with what grows from it; ``lines`` of them at most."""
    shape, score = shape_of(db, options.score)
    places: list[_Place] = [("", int(index), None) for index in shape.children(-1)[: options.lines]]
    whole = shape.children(-1)
    return _drawn(db, shape, places, score, len(whole), whole)


def shape_of(db: Database, score: str | None) -> tuple[TreeShape, str | None]:
    """The shape of a tree with the sums of a score (None: the usual one), and the score's name.

    Raises:
        BadInput: no live score of that name.
    """
    names = score_names(db)
    if score is not None and score not in names:
        known = ", ".join(names) or "none"
        raise BadInput(f"no score {score!r} in this tree", hint=f"scores here: {known}")
    score = score or next(iter(names), None)
    return TreeShape(db, score), score


def _drawn(
    db: Database, shape: TreeShape, places: list[_Place], score: str | None, total: int,
    whole: NDArray[np.int64],
) -> Outline:  # fmt: skip
    drawn = [index for _, index, rest in places if rest is None]
    nodes = dict(by_rows(db, [int(shape.rows[index]) for index in drawn]))
    lines = tuple(_line(shape, nodes, *place) for place in places)
    leaves, simulated = int(shape.leaves[whole].sum()), int(shape.simulated[whole].sum())
    return Outline(lines, score, total, total - len(drawn), leaves, simulated)


def _placed_lines(shape: TreeShape, first: int, options: Options) -> list[_Place]:
    """Guide and node index of each line, or the undrawn siblings; depth-first without recursion."""
    places: list[_Place] = []
    # Entries: guide of the line itself, guide of what follows it, node or undrawn siblings.
    stack: list[tuple[str, str, int, NDArray[np.int64] | None]] = []

    def push(kids: NDArray[np.int64], guide: str, root: bool) -> None:
        # One more than asked for may be drawn: a line that hides one takes as much room as that one.
        shown = kids[: options.siblings] if len(kids) > options.siblings + 1 else kids
        rest = kids[len(shown) :]
        flat = root or len(kids) == 1
        entries: list[tuple[str, str, int, NDArray[np.int64] | None]] = []
        for number, kid in enumerate(shown):
            last = number == len(shown) - 1 and not len(rest)
            own, after = ("", "") if flat else (("└─ ", "   ") if last else ("├─ ", "│  "))
            entries.append((guide + own, guide + after, int(kid), None))
        if len(rest):
            entries.append((guide + ("" if flat else "└─ "), guide, -1, rest))
        stack.extend(reversed(entries))

    push(shape.children(-1) if first < 0 else np.array([first]), "", root=True)
    while stack and len(places) < options.lines:
        own, after, index, rest = stack.pop()
        places.append((own, index, rest))
        if rest is None:
            kids = shape.children(index)
            if len(kids):
                push(kids, after, root=False)
    return places


def _line(
    shape: TreeShape, nodes: dict[int, Node], guide: str, index: int, rest: NDArray[np.int64] | None
) -> OutlineLine:
    at = np.array([index]) if rest is None else rest
    size, leaves = int(shape.sizes[at].sum()), int(shape.leaves[at].sum())
    mean, scored = shape.mean(at)
    apart = int(shape.simulated[at].sum()), *shape.mean(at, 1)
    if rest is not None:
        return OutlineLine(guide, None, len(rest), size - len(rest), leaves, mean, scored, None, *apart)
    own = None if np.isnan(shape.own[index]) else float(shape.own[index])
    node = nodes[int(shape.rows[index])]
    return OutlineLine(guide, node, 0, size - 1, leaves, mean, scored, own, *apart)
