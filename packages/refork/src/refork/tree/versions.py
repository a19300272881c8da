"""The versions of a score side by side: who gave it, to how many nodes, and where they disagree."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.tree.codec import unpack_values
from refork.tree.database import Database
from refork.types import Json

_ROW: Final = (
    "SELECT p.id, p.name, p.version, p.config, p.retired_at, p.reason, {what} "
    "FROM scores s JOIN producers p ON p.row = s.producer WHERE {where} "
)


@dataclass(frozen=True, slots=True)
class Version:
    """One producer of a score: its mean over the ``count`` scalar scores that it gave (None: it has none).

    ``retired``: why it is out of every reader's sight; None while it is live.
    """

    producer: str
    label: str
    config: Json
    retired: str | None
    count: int
    arrays: int
    mean: float | None


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A node that versions value differently: the value of each, None where one gave none; and the spread."""

    node: str
    kind: str
    text: str
    values: tuple[float | None, ...]
    spread: float


@dataclass(frozen=True, slots=True)
class SideBySide:
    """All versions of one score, oldest first, and a page of the nodes on which live ones differ, most first.

    ``compared`` nodes have a value of at least two live versions; ``differing`` of them have unequal ones.
    """

    name: str
    versions: tuple[Version, ...]
    compared: int
    differing: int
    nodes: tuple[Disagreement, ...]


@dataclass(frozen=True, slots=True)
class NodeScore:
    """What one producer said of one node, retired producers included."""

    name: str
    producer: str
    label: str
    value: float | None
    array: NDArray[np.float64] | None
    reason: str | None
    retired: str | None


def names(db: Database) -> list[str]:
    """Names of all scores, arrays and those of retired producers too."""
    return [name for (name,) in db.rows("SELECT DISTINCT name FROM scores ORDER BY name")]


def array_names(db: Database) -> list[str]:
    """Names of live scores with one value per token."""
    sql = (
        "SELECT DISTINCT s.name FROM scores s JOIN producers p ON p.row = s.producer "
        "WHERE s.array IS NOT NULL AND p.retired_at IS NULL ORDER BY s.name"
    )
    return [name for (name,) in db.rows(sql)]


def versions(db: Database, name: str) -> tuple[Version, ...]:
    """Every producer of a score, oldest first. Raises BadInput where the tree has no such score."""
    sql = _ROW.format(what="count(s.value), count(s.array), avg(s.value)", where="s.name = ?")
    found = db.rows(sql + "GROUP BY p.row ORDER BY p.row", (name,))
    if not found:
        raise BadInput(
            f"no score {name!r} in this tree", hint=f"scores here: {', '.join(names(db)) or 'none'}"
        )
    return tuple(
        Version(id_, f"{who} {version}", json.loads(config), _retired(at, reason), count, arrays, _mean(mean))
        for id_, who, version, config, at, reason, count, arrays, mean in found
    )


def _mean(value: float | None) -> float | None:
    # Infinite scores of both signs have no mean: in one store that is NULL, in the other NaN.
    return None if value is None or math.isnan(value) else value


def side_by_side(db: Database, name: str, start: int = 0, count: int = 100) -> SideBySide:
    """The versions of a score, and the nodes on which the live ones disagree, largest spread first.

    Raises:
        BadInput: the tree has no such score, or a negative start or count.
    """
    if start < 0 or count < 0:
        raise BadInput(f"a page from {start} of {count} nodes", where=f"score {name}")
    known = versions(db, name)
    spread = (
        "SELECT s.node, max(s.value) AS high, min(s.value) AS low FROM scores s JOIN producers p ON "
        "p.row = s.producer WHERE s.name = ? AND s.value IS NOT NULL AND p.retired_at IS NULL "
        "GROUP BY s.node HAVING count(*) > 1"
    )
    compared, differing = db.rows(
        f"SELECT count(*), coalesce(sum(CASE WHEN high > low THEN 1 ELSE 0 END), 0) FROM ({spread}) d",
        (name,),
    )[0]
    page = db.rows(
        f"SELECT d.node, n.id, n.kind, substr(n.text, 1, 160), d.high - d.low AS spread FROM ({spread}) d "
        "JOIN nodes n ON n.row = d.node WHERE d.high > d.low ORDER BY spread DESC, d.node LIMIT ? OFFSET ?",
        (name, count, start),
    )
    values = _values(db, name, [row[0] for row in page])
    nodes = tuple(
        Disagreement(id_.hex(), kind, text, tuple(values.get((row, v.producer)) for v in known), by)
        for row, id_, kind, text, by in page
    )
    return SideBySide(name, known, compared, differing, nodes)


def _values(db: Database, name: str, rows: list[int]) -> dict[tuple[int, str], float | None]:
    sql = (
        "SELECT s.node, p.id, s.value FROM scores s JOIN producers p ON p.row = s.producer "
        "WHERE s.name = ? AND s.node IN ({keys})"
    )
    return {(node, producer): value for node, producer, value in db.lookup(sql, rows, (name,))}


def node_scores(db: Database, row: int) -> list[NodeScore]:
    """All that was ever said of a node, by name, oldest producer first; retired ones are marked."""
    sql = _ROW.format(what="s.name, s.value, s.array, s.reason", where="s.node = ?")
    found = []
    for id_, who, version, _, at, why, name, value, array, reason in db.rows(
        sql + "ORDER BY s.name, p.row", (row,)
    ):
        many = None if array is None else np.asarray(unpack_values(value, array))
        found.append(NodeScore(name, id_, f"{who} {version}", value, many, reason, _retired(at, why)))
    return found


def _retired(at: float | None, reason: str | None) -> str | None:
    return None if at is None else reason or "retired"
