"""What a viewer asks of a tree that may grow: structure made once per state, texts a window at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from refork.errors import BadInput
from refork.tree import browse, versions, window
from refork.tree.browse import Filter, Order, TaskPage
from refork.tree.node import Node
from refork.tree.node_reader import row_number
from refork.tree.outline import TreeShape, score_names, shape_of
from refork.tree.tree import Tree
from refork.tree.versions import NodeScore, SideBySide
from refork.tree.window import Lines, NodeExcerpt, SearchHits

#: Structures that are kept; the oldest goes first.
KEPT_LINES: Final = 8
#: Branches of one node that are listed.
BRANCHES: Final = 200


@dataclass(frozen=True, slots=True)
class LineView:
    """One line with what it shows; see :class:`Lines` for the counts. ``last`` is the id of its last node."""

    line: int
    last: str
    span: int
    below: int
    leaves: int
    simulated: int
    mean: float | None
    scored: int
    parts: tuple[NodeExcerpt, ...]


@dataclass(frozen=True, slots=True)
class Subtree:
    """A child of a node with what grows from it; ``leaf`` is its first ending in reading order."""

    child: NodeExcerpt
    leaf: str
    leaves: int
    mean: float | None
    scored: int


@final
class TreeView:
    """Reads of a tree for people; an object may be used from several threads."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self._db = tree._db
        self._lock = threading.Lock()
        self._made: OrderedDict[Hashable, Any] = OrderedDict()

    def version(self) -> str:
        """Differs whenever what the tree shows does."""
        return ".".join(map(str, window.version(self._db)))

    def score_names(self) -> list[str]:
        """Live scalar scores, the usual ones first."""
        return score_names(self._db)

    def array_names(self) -> list[str]:
        """Live scores with one value per token."""
        return versions.array_names(self._db)

    def all_score_names(self) -> list[str]:
        """Every score, those of retired producers too."""
        return versions.names(self._db)

    def policies(self) -> list[str]:
        """Names of the policies that acted, as far as they are written."""
        sql = "SELECT DISTINCT policy FROM nodes WHERE policy IS NOT NULL ORDER BY policy"
        return list(
            self._once(("policies", self.version()), lambda: [name for (name,) in self._db.rows(sql)])
        )

    def worlds(self) -> list[str]:
        """Worlds that tasks name."""
        return list(self._once(("worlds", self.version()), lambda: browse.worlds(self._db)))

    def tasks(
        self, wanted: Filter, order: Order = "written", start: int = 0, count: int = 100,
        score: str | None = None,
    ) -> TaskPage:  # fmt: skip
        """One page of the tasks that fit a filter, with their means of a score.

        Raises:
            BadInput: no such score or order, or a negative start or count.
        """
        return browse.tasks(self._db, self._shape(score), wanted, order, start, count)

    def lines(self, task: str, score: str | None = None, *, joined: bool = True) -> Lines:
        """The lines of a task; see :class:`Lines`.

        Raises:
            UnknownNode: no such node.
            BadInput: the node is no task, or there is no such score.
        """
        known = score or self._usual()

        def make() -> Lines:
            return window.lines(self._db, self._shape(known), task, known, joined=joined)

        made: Lines = self._once(("lines", self.version(), task, known, joined), make)
        return made

    def window(self, lines: Lines, wanted: Sequence[int]) -> list[LineView]:
        """What some lines show; those that do not exist are left out.

        Raises:
            BadInput: more lines than one window gives.
        """
        if len(wanted) > window.WINDOW:
            raise BadInput(f"{len(wanted)} lines in one window", hint=f"at most {window.WINDOW}")
        inside = [line for line in wanted if 0 <= line < len(lines)]
        rows = {line: lines.parts(line) for line in inside}
        tails = {int(lines.tails[line]) for line in inside}
        known = window.parts(self._db, [*tails, *(r for part in rows.values() for r in part)], lines.score)
        return [self._line_view(lines, line, [known[row] for row in rows[line]], known) for line in inside]

    @staticmethod
    def _line_view(
        lines: Lines, line: int, parts: list[NodeExcerpt], known: dict[int, NodeExcerpt]
    ) -> LineView:
        mean = float(lines.means[line])
        return LineView(
            line=line,
            last=known[int(lines.tails[line])].id,
            span=int(lines.spans[line]),
            below=int(lines.below[line]),
            leaves=int(lines.leaves[line]),
            simulated=int(lines.simulated[line]),
            mean=None if np.isnan(mean) else mean,
            scored=int(lines.scored[line]),
            parts=tuple(parts),
        )

    def search(
        self, lines: Lines, text: str = "", *, kind: str | None = None, errors: bool = False
    ) -> SearchHits:
        """Lines with a node whose text holds ``text`` (the case of A to Z aside), of a kind, or that failed.

        Raises:
            BadInput: nothing to look for.
        """
        return window.search(self._db, lines, text, kind=kind, errors=errors)

    def line_of(self, lines: Lines, node: str) -> int | None:
        """The line that holds a node; None where the node is of another task. Raises UnknownNode."""
        found = lines.lines_of([row_number(self._db, node)])
        return int(found[0]) if len(found) else None

    def branches(self, node: str, score: str | None = None, most: int = BRANCHES) -> list[Subtree]:
        """What grows from a node, in order of writing, ``most`` at most. Raises UnknownNode."""
        shape = self._shape(score)
        name = score or self._usual()
        row = row_number(self._db, node)
        at = int(np.searchsorted(shape.rows, row))
        # A node that came after the shape was made: another one may stand where it would.
        known = at < len(shape.rows) and shape.rows[at] == row
        children = shape.children(at)[:most] if known else np.zeros(0, dtype=np.int64)
        leaves = [_first_leaf(shape, int(child)) for child in children]
        rows = [int(shape.rows[index]) for index in (*children, *leaves)]
        excerpts = window.parts(self._db, rows, name)
        found = []
        for child, leaf, mean, scored in zip(children.tolist(), leaves, *shape.means(children), strict=True):
            part, end = excerpts[int(shape.rows[child])], excerpts[int(shape.rows[leaf])].id
            known_mean = None if np.isnan(mean) else float(mean)
            found.append(Subtree(part, end, int(shape.leaves[child]), known_mean, int(scored)))
        return found

    def branch_counts(self, nodes: Iterable[str]) -> dict[str, dict[int | None, int]]:
        """How many children keep how many tokens of each node (None: all)."""
        sql = (
            "SELECT p.id, c.keep, count(*) FROM nodes p JOIN nodes c ON c.parent = p.row "
            "WHERE p.id IN ({keys}) GROUP BY p.row, c.keep"
        )
        found: dict[str, dict[int | None, int]] = {}
        for id_, keep, count in self._db.lookup(sql, [bytes.fromhex(node) for node in dict.fromkeys(nodes)]):
            found.setdefault(id_.hex(), {})[keep] = count
        return found

    def side_by_side(self, name: str, start: int = 0, count: int = 100) -> SideBySide:
        """The versions of a score and where the live ones disagree. Raises BadInput: no such score."""
        return versions.side_by_side(self._db, name, start, count)

    def node_scores(self, node: Node | str) -> list[NodeScore]:
        """All that was ever said of a node, retired producers included. Raises UnknownNode."""
        return versions.node_scores(
            self._db, row_number(self._db, node if isinstance(node, str) else node.id)
        )

    def _shape(self, score: str | None) -> TreeShape:
        name = score or self._usual()
        # The version is read first. The other way round, what is written in between would be missing from a
        # shape that counts as the newest.
        made: TreeShape = self._once(("shape", self.version(), name), lambda: shape_of(self._db, name)[0])
        return made

    def _usual(self) -> str | None:
        return next(iter(self.score_names()), None)

    def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made for a key before, or is made now. Two threads may make the same; one is kept."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > KEPT_LINES:
                self._made.popitem(last=False)
        return made


def _first_leaf(shape: TreeShape, index: int) -> int:
    while len(children := shape.children(index)):
        index = int(children[0])
    return index
