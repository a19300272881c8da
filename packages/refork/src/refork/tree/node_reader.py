"""Reading nodes: by id, along trajectories, among siblings, below a node."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Final

from refork.errors import BadInput, BadPoint, TreeDamaged, UnknownNode
from refork.tree.codec import SELECT, decode
from refork.tree.database import RESTORE, Database, Row
from refork.tree.node import Node, Point, Step, Trajectory

_FIRST_PAGE: Final = 20
"""Rows read first: who wants the first few does not wait for a whole page."""
_PAGE: Final = 500
_AHEAD, _DEEP = 255, 50_000
_DIGITS: Final = frozenset("0123456789abcdef")

_ONE: Final = f"SELECT {SELECT} FROM nodes n WHERE n.id = ?"
# A parent's row is the smaller one: the condition ends the recursion where a damaged file has a circle.
_UP: Final = f"""
WITH RECURSIVE up(row, parent, keep) AS (
    SELECT row, parent, keep FROM nodes WHERE row = ?
    UNION ALL
    SELECT n.row, n.parent, n.keep FROM up JOIN nodes n ON n.row = up.parent AND n.row < up.row
)
SELECT {SELECT} FROM up JOIN nodes n ON n.row = up.row
"""
# UNION without ALL: a node on several trajectories is visited once.
_UP_MANY: Final = """
WITH RECURSIVE up(row, parent, keep) AS (
    SELECT row, parent, keep FROM nodes WHERE row IN (SELECT value FROM json_each(?))
    UNION
    SELECT n.row, n.parent, n.keep FROM up JOIN nodes n ON n.row = up.parent AND n.row < up.row
)
SELECT row, parent, keep FROM up
"""
# Largest first: children go on a stack, from which the one that was written first is taken first.
_BELOW: Final = (
    "SELECT parent, row FROM nodes WHERE row <= ? AND parent < row AND parent IN ({keys}) ORDER BY row DESC"
)
_LEAF: Final = "NOT EXISTS (SELECT 1 FROM nodes c WHERE c.parent = n.row AND c.row <= ?)"


def by_id(db: Database, name: str) -> Node:
    """The node of an id or of a prefix that fits one node only.

    Raises:
        UnknownNode: none or several fit, or the text is no id.
    """
    return decode(_row_by_id(db, name))


def _row_by_id(db: Database, name: str) -> Row:
    where = db.where
    if not isinstance(name, str):
        raise BadInput(f"a node's id is text, not {type(name).__name__}", where=where)
    digits = name.strip().lower()
    if not 0 < len(digits) <= 32 or set(digits) - _DIGITS:
        raise UnknownNode(
            f"{name!r} is not a node's id",
            where=where,
            hint="an id is 32 hexadecimal digits, or their beginning",
        )
    if len(digits) == 32:
        row = db.one(_ONE, (bytes.fromhex(digits),))
        found = [] if row is None else [row]
    else:
        low, high = bytes.fromhex(digits.ljust(32, "0")), bytes.fromhex(digits.ljust(32, "f"))
        found = db.rows(f"SELECT {SELECT} FROM nodes n WHERE n.id BETWEEN ? AND ? LIMIT 3", (low, high))
    if not found:
        raise UnknownNode(f"no node {name!r} in this tree", where=where, hint="`refork tree show` prints ids")
    if len(found) > 1:
        some = ", ".join(row[1].hex()[: len(digits) + 6] for row in found)
        raise UnknownNode(f"several nodes begin with {name!r}: {some}", where=where, hint="give more digits")
    return found[0]


def many(db: Database, names: Iterable[str]) -> list[Node]:
    """Nodes of several ids, in their order, each fetched once."""
    order = list(names)
    found: dict[str, Node] = {}
    keys = [bytes.fromhex(name) for name in dict.fromkeys(order) if _whole(name)]
    for row in db.lookup(f"SELECT {SELECT} FROM nodes n WHERE n.id IN ({{keys}})", keys):
        found[row[1].hex()] = decode(row)
    for name in order:
        if name not in found:
            found[name] = by_id(db, name)
    return [found[name] for name in order]


def row_number(db: Database, name: str) -> int:
    """The row of a node's full id or unique prefix; raises UnknownNode."""
    row = db.scalar("SELECT row FROM nodes WHERE id = ?", (bytes.fromhex(name),)) if _whole(name) else None
    return int(_row_by_id(db, name)[0] if row is None else row)


def _whole(name: str) -> bool:
    return isinstance(name, str) and len(name) == 32 and not set(name) - _DIGITS


def point(db: Database, where: Node | str | Point, token: int | None = None) -> Point:
    """The point after ``token`` tokens of a node (None: all); text may be ``id`` or ``id:token``.

    Raises:
        BadPoint: negative, beyond the step, or the step records no tokens.
    """
    if isinstance(where, Point):
        node, token = where.node, where.token if token is None else token
    elif isinstance(where, str):
        name, _, tail = where.partition(":")
        if tail and token is None and tail != "end":
            # More digits than Python makes a number of are none either.
            if not re.fullmatch(r"-?[0-9]{1,18}", tail):
                raise BadPoint(f"{tail!r} is not a token's number", where=f"node {name[:12]}")
            token = int(tail)
        node = by_id(db, name)
    else:
        node = where
    if token is None:
        return Point(node)
    place = f"node {node.id[:12]}"
    if isinstance(token, bool) or not isinstance(token, int):
        raise BadPoint(f"token is {token!r}, not a whole number", where=place)
    if node.tokens is None:
        raise BadPoint(
            f"token {token} of a step that records no token ids",
            where=place,
            hint=_without_ids(node),
        )
    if not 0 <= token <= node.length:
        raise BadPoint(f"token {token} is beyond this step, which has {node.length} tokens", where=place)
    return Point(node, None if token == node.length else token)


def _without_ids(node: Node) -> str:
    """Where a step without token ids can be forked: behind a turn somebody else speaks, or nobody does."""
    if node.kind != "action":
        return "fork after the whole step"
    where = f", --node {node.parent[:12]}" if node.parent else ""
    return f"fork where the turn begins{where}; or import the log with --policy, for token ids"


def path(db: Database, end: Point) -> Trajectory:
    """The path from the root to a point."""
    row = row_number(db, end.node.id)
    nodes = [decode(found) for found in db.rows(_UP, (row,))]
    # The rows come leaf first in practice, which SQL does not promise.
    nodes.sort(key=lambda node: node.depth)
    if not nodes or nodes[0].parent is not None:
        raise _broken(db, end.node.id)
    keeps = [*(node.keep for node in nodes[1:]), end.token]
    return Trajectory(tuple(map(Step, nodes, keeps)))


def paths(db: Database, ids: Sequence[str], tokens: Sequence[int | None]) -> list[Trajectory]:
    """Paths to many nodes, cut after ``tokens`` of the last; a node that they share is read once."""
    rows = row_numbers(db, ids)
    tree: dict[int, tuple[int | None, int | None]] = {
        row: (parent, keep) for row, parent, keep in db.rows(_UP_MANY, (str(sorted(set(rows))),))
    }
    nodes = dict(by_rows(db, sorted(tree)))
    trajectories: list[Trajectory] = []
    for row, token in zip(rows, tokens, strict=True):
        steps: list[Step] = []
        current: int | None = row
        keep = token
        while current is not None:
            if current not in nodes:
                raise _broken(db, steps[0].node.id if steps else "")
            steps.append(Step(nodes[current], keep))
            current, keep = tree[current]
        trajectories.append(Trajectory(tuple(reversed(steps))))
    return trajectories


def _broken(db: Database, node: str) -> TreeDamaged:
    return TreeDamaged(
        "this tree is damaged: a trajectory does not lead to a task",
        where=f"{db.where}, node {node[:12]}",
        hint=RESTORE,
    )


def present(db: Database, ids: Iterable[str]) -> set[str]:
    """Those of many full ids that are stored."""
    keys = {id_: bytes.fromhex(id_) for id_ in ids if _whole(id_)}
    return {id_.hex() for (id_,) in db.lookup("SELECT id FROM nodes WHERE id IN ({keys})", keys.values())}


def row_numbers(db: Database, ids: Sequence[str]) -> list[int]:
    """Rows of many full ids or prefixes, in order."""
    whole = [bytes.fromhex(id_) for id_ in set(ids) if _whole(id_)]
    found = {
        id_.hex(): row for id_, row in db.lookup("SELECT id, row FROM nodes WHERE id IN ({keys})", whole)
    }
    return [found[id_] if id_ in found else row_number(db, id_) for id_ in ids]


def by_rows(db: Database, rows: Iterable[int]) -> Iterator[tuple[int, Node]]:
    """Nodes of row numbers, in no order."""
    for row in db.lookup(f"SELECT {SELECT} FROM nodes n WHERE n.row IN ({{keys}})", rows):
        yield row[0], decode(row)


def stream(
    db: Database, condition: str = "true", parameters: Sequence[Any] = (), top: Any = None
) -> Iterator[Node]:
    """Nodes that fit an SQL condition on ``n``, in order of writing, of the tree as it is now."""
    # Not a generator itself: the tree is shown as it is at the call, not when the first item is asked for.
    return _stream(db, condition, parameters, db.now() if top is None else top)


def _stream(db: Database, condition: str, parameters: Sequence[Any], top: Any) -> Iterator[Node]:
    last, size = 0, _FIRST_PAGE
    while True:
        page = db.rows(
            f"SELECT {SELECT} FROM nodes n WHERE ({condition}) AND n.row > ? AND n.row <= ? "
            f"ORDER BY n.row LIMIT {size}",
            (*parameters, last, top),
        )
        yield from map(decode, page)
        if len(page) < size:
            return
        last, size = page[-1][0], _PAGE


def children(db: Database, node: Node, keep: int | EllipsisType | None) -> Iterator[Node]:
    """Children of a node, all or those that keep so many of its tokens (None: the whole)."""
    row = row_number(db, node.id)
    if keep is ...:
        return stream(db, "n.parent = ?", (row,))
    at = point(db, node, keep)
    return stream(db, "n.parent = ? AND n.keep IS ?", (row, at.token))


def rows_below(db: Database, start: int | None, leaves: bool = False) -> Iterator[int]:
    """Row numbers of a subtree (None: of all), parents first, depth-first, siblings in order of writing."""
    return _rows_below(db, start, leaves, db.now())


def _rows_below(db: Database, start: int | None, leaves: bool, top: Any) -> Iterator[int]:
    stack = [start] if start is not None else []
    if start is None:
        roots = "SELECT row FROM nodes WHERE parent IS NULL AND row <= ? ORDER BY row DESC"
        stack = [row for (row,) in db.rows(roots, (top,))]
    known: dict[int, list[int]] = {}
    while stack:
        row = stack.pop()
        if row not in known:
            _look_ahead(db, [row, *(later for later in stack[-_AHEAD:] if later not in known)], known, top)
        inner = known.pop(row)
        if not (leaves and inner):
            yield row
        stack.extend(inner)


def _look_ahead(db: Database, rows: list[int], known: dict[int, list[int]], top: Any) -> None:
    """Note the children of some rows, and of theirs: on a server every query is a round trip."""
    before = len(known)
    while rows and len(known) - before < _DEEP:
        known |= {row: [] for row in rows}
        for parent, child in db.lookup(_BELOW, rows, (top,)):
            known[parent].append(child)
        # Those that a trajectory depth-first comes to soonest.
        rows = [child for row in rows for child in known[row][-1:]][:_AHEAD]


def walk(db: Database, start: int | None, leaves: bool = False) -> Iterator[Node]:
    """Nodes of a subtree, depth-first; only those without children where ``leaves``."""
    return _fetched(db, rows_below(db, start, leaves))


def _fetched(db: Database, rows: Iterable[int]) -> Iterator[Node]:
    page: list[int] = []
    for row in rows:
        page.append(row)
        if len(page) == _PAGE:
            yield from _in_order(db, page)
            page = []
    yield from _in_order(db, page)


def _in_order(db: Database, rows: list[int]) -> Iterator[Node]:
    found = dict(by_rows(db, rows))
    return (found[row] for row in rows)


def leaves(db: Database, start: int | None) -> Iterator[Node]:
    """Nodes without children."""
    if start is not None:
        return walk(db, start, leaves=True)
    top = db.now()
    return stream(db, _LEAF, (top,), top)


def descendants(db: Database, start: int) -> int:
    """How many nodes lie below one."""
    below = """
    WITH RECURSIVE down(row) AS (
        SELECT row FROM nodes WHERE parent = ? AND row > parent
        UNION ALL SELECT n.row FROM down JOIN nodes n ON n.parent = down.row AND n.row > down.row
    ) SELECT count(*) FROM down
    """
    return int(db.scalar(below, (start,)))
