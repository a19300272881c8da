"""Producers and their scores: versions side by side, nothing overwritten, retirement by chain."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from refork.errors import BadInput, UnknownNode
from refork.tree.codec import dumps, pack_values, unpack_values
from refork.tree.database import Database, Row, pages
from refork.tree.insert import packed, parent_rows
from refork.tree.node_reader import rows_below
from refork.tree.score import Producer, Retirement, Score
from refork.tree.seal import sealed

_PAGE: Final = 2000
_SCORE: Final = (
    "SELECT n.id, s.name, s.value, s.array, p.id, s.reason, s.row FROM scores s "
    "JOIN nodes n ON n.row = s.node JOIN producers p ON p.row = s.producer"
)


@dataclass(frozen=True, slots=True)
class Retired:
    """That a producer was retired, when (seconds since 1970) and why."""

    producer: str
    at: float
    reason: str


def _producer(row: Row) -> Producer:
    name, version, config, reads = row
    return Producer(name, version, json.loads(config), tuple(json.loads(reads)))


def add_producer(db: Database, producer: Producer, *, copying: bool = False) -> str:
    """Register a producer inside the open transaction; returns its id.

    ``copying`` admits one that reads a retired producer: its own retirement comes along.

    Raises:
        BadInput: it reads a producer that is unknown or retired.
    """
    where = f"producer {producer.name}"
    if not producer.name:
        raise BadInput("a producer needs a name")
    # Read again they would be others, and so would the producer's id.
    for field, kind in (("name", str), ("version", str), ("config", dict)):
        if not isinstance(value := getattr(producer, field), kind):
            raise BadInput(
                f"a producer's {field} is a {type(value).__name__}, not a {kind.__name__}", where=where
            )
    config = dumps(producer.config, where)
    if db.one("SELECT 1 FROM producers WHERE id = ?", (producer.id,)):
        return producer.id
    for source in producer.reads:
        found = db.one("SELECT retired_at FROM producers WHERE id = ?", (source,))
        if found is None:
            raise BadInput(f"it reads producer {source[:12]}, which is not in this tree", where=where)
        if found[0] is not None and not copying:
            raise BadInput(f"it reads producer {source[:12]}, which is retired", where=where)
    sql = (
        "INSERT INTO producers (id, name, version, config, reads, retired_at, reason, seal) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    )
    row = (producer.id, producer.name, producer.version, config, json.dumps(producer.reads), None, None)
    db.write(sql, [sealed("producers", row)])
    return producer.id


def add_scores(db: Database, scores: Sequence[Score], *, copying: bool = False) -> int:
    """Write scores inside the open transaction; returns how many are new.

    ``copying`` admits scores of retired producers, which come along when a tree is copied.

    Raises:
        UnknownNode: a node that is not in the tree.
        BadInput: unknown or retired producer, a value that is not a number, an array of another
            length than its node, or another value than the stored one.
    """
    known = parent_rows(db, {score.node for score in scores})
    sql = "SELECT id, row, retired_at FROM producers WHERE id IN ({keys})"
    producers = {id_: (row, gone) for id_, row, gone in db.lookup(sql, {s.producer for s in scores})}
    rows: list[Row] = []
    for score in scores:
        place = known.get(score.node)
        if place is None:
            raise UnknownNode(f"no node {score.node!r} to score", where=f"score {score.name}")
        if score.producer not in producers:
            raise BadInput(
                f"producer {score.producer[:12]} is not in this tree",
                where=f"score {score.name}",
                hint="add_producer comes first",
            )
        number, gone = producers[score.producer]
        if gone is not None and not copying:
            raise BadInput(f"producer {score.producer[:12]} is retired", where=f"score {score.name}")
        value, array = pack_values(score.value, place.length, f"score {score.name} of {score.node[:12]}")
        rows.append(sealed("scores", (place.row, score.name, number, value, array, score.reason)))
    added = db.write(
        'INSERT INTO scores (node, name, producer, value, "array", reason, seal) '
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (node, name, producer) DO NOTHING",
        rows,
    )
    if added < len(rows):
        _check_equal(db, rows, scores)
    return added


def _check_equal(db: Database, rows: Sequence[Row], scores: Sequence[Score]) -> None:
    sql = 'SELECT value, "array" FROM scores WHERE node = ? AND name = ? AND producer = ?'
    for row, score in zip(rows, scores, strict=True):
        old = db.one(sql, row[:3])
        if old is not None and old != row[3:5]:
            raise BadInput(
                f"this producer gave {score.name} another value before; scores are never overwritten",
                where=f"node {score.node[:12]}",
                hint="score under a producer with a new version",
            )


def _score(row: Row) -> Score:
    node, name, value, array, producer, reason, _ = row
    return Score(node.hex(), name, unpack_values(value, array), producer, reason)


def scores(
    db: Database,
    *,
    node: int | None = None,
    name: str | None = None,
    producer: str | None = None,
    under: int | None = None,
    retired: bool = False,
) -> Iterator[Score]:
    """Scores that fit every given filter; those of retired producers only where asked for."""
    parts = ["true" if retired else "p.retired_at IS NULL"]
    values: list[Any] = []
    for clause, value in (("s.node = ?", node), ("s.name = ?", name), ("p.id = ?", producer)):
        if value is not None:
            parts.append(clause)
            values.append(value)
    condition = " AND ".join(parts)
    # Not a generator itself: the tree is shown as it is at the call, not when the first item is asked for.
    top = db.now("scores")
    if under is not None:
        return _of_subtree(db, rows_below(db, under), condition, values, top)
    sql = f"{_SCORE} WHERE {condition} AND s.row > ? AND s.row <= ? ORDER BY s.row"
    return map(_score, pages(db, sql, _PAGE, values, (top,)))


def _of_subtree(
    db: Database, nodes: Iterator[int], condition: str, values: list[Any], top: Any
) -> Iterator[Score]:
    sql = (
        f"{_SCORE} WHERE {condition} AND s.node IN (SELECT value FROM json_each(?)) AND s.row <= ? "
        "ORDER BY s.row"
    )
    while page := list(islice(nodes, _PAGE)):
        yield from map(_score, db.rows(sql, (*values, str(page), top)))


def score_map(db: Database, name: str, nodes: Sequence[str], producer: str | None) -> dict[str, float]:
    """The scalar score of each node that has one, by its newest live producer."""
    sql = (
        "SELECT n.id, s.value FROM nodes n JOIN scores s ON s.node = n.row "
        "JOIN producers p ON p.row = s.producer WHERE s.name = ? AND p.id = coalesce(?, p.id) "
        "AND s.value IS NOT NULL AND p.retired_at IS NULL AND n.id IN ({keys}) ORDER BY p.row"
    )
    # Ascending producers: the newest is written into the mapping last.
    found = db.lookup(sql, packed(dict.fromkeys(nodes)), (name, producer))
    return {id_.hex(): value for id_, value in found}


def producers(db: Database, retired: bool) -> list[Producer]:
    """Producers in order of registration; the retired ones too where asked for."""
    sql = "SELECT name, version, config, reads FROM producers"
    return [
        _producer(row)
        for row in db.rows(sql + ("" if retired else " WHERE retired_at IS NULL") + " ORDER BY row")
    ]


def retirements(db: Database) -> list[Retired]:
    """All retirements, earliest first."""
    sql = "SELECT id, retired_at, reason FROM producers WHERE retired_at IS NOT NULL ORDER BY retired_at, row"
    return [Retired(*row) for row in db.rows(sql)]


def chain(reads: dict[str, tuple[str, ...]], start: str) -> list[str]:
    """``start`` and every producer that read it, directly or through others, nearest first."""
    readers: dict[str, list[str]] = {}
    for producer, sources in reads.items():
        for source in sources:
            readers.setdefault(source, []).append(producer)
    # The list grows while the loop goes over it, so readers of readers are found too.
    found = [start]
    for producer in found:
        found.extend(reader for reader in readers.get(producer, ()) if reader not in found)
    return found


def retire(db: Database, producer: str, reason: str, at: float | None = None) -> Retirement:
    """Take a producer and all that read it out of sight, inside the open transaction.

    Returns what is newly out of sight; nothing where it was retired before.

    Raises:
        BadInput: unknown producer.
    """
    reads = {id_: tuple(json.loads(r)) for id_, r in db.rows("SELECT id, reads FROM producers ORDER BY row")}
    if producer not in reads:
        raise BadInput(f"no producer {producer[:12]!r} in this tree", hint="`refork tree stats` lists them")
    # What was retired before keeps its own time and reason.
    live = {id_ for (id_,) in db.rows("SELECT id FROM producers WHERE retired_at IS NULL")}
    gone = [id_ for id_ in chain(reads, producer) if id_ in live]
    sql = (
        "SELECT s.name, count(*) FROM scores s JOIN producers p ON p.row = s.producer WHERE p.id IN ({keys}) "
    )
    lost: dict[str, int] = {}
    for name, count in db.lookup(sql + "GROUP BY s.name ORDER BY s.name", gone):
        lost[name] = lost.get(name, 0) + count
    moment = time.time() if at is None or not math.isfinite(at) else at
    restore_retirements(db, [Retired(id_, moment, reason) for id_ in gone])
    return Retirement(tuple(gone) or (producer,), lost, reason)


def restore_retirements(db: Database, items: Iterable[Retired]) -> int:
    """Retire exactly the named producers, as another tree says; returns how many are new."""
    gone = {item.producer: item for item in items}
    sql = "SELECT id, name, version, config, reads FROM producers WHERE retired_at IS NULL AND id IN ({keys})"
    rows = []
    for row in db.lookup(sql, gone):
        *_, at, reason, mark = sealed("producers", (*row, gone[row[0]].at, gone[row[0]].reason))
        rows.append((at, reason, mark, row[0]))
    return db.write("UPDATE producers SET retired_at = ?, reason = ?, seal = ? WHERE id = ?", rows)
