"""Forks and their draws: records that may be written twice but never changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import itemgetter
from typing import Any, Final

import numpy as np

from refork.errors import BadInput, BadPoint, DrawConflict, UnknownNode
from refork.tree.codec import dumps
from refork.tree.database import Database, Row, pages
from refork.tree.insert import parent_rows
from refork.tree.score import DrawRecord, ForkRecord
from refork.tree.seal import sealed

_FORK: Final = (
    'SELECT f.id, n.id, f.token, f.change, f.policy, f.settings, f.world, f.seed, f.stream, f.extra, f."row" '
    "FROM forks f JOIN nodes n ON n.row = f.node"
)
_DRAW: Final = (
    'SELECT f.id, d.draw, n.id, d."end", d.error, d.row FROM draws d '
    "JOIN forks f ON f.row = d.fork JOIN nodes n ON n.row = d.leaf"
)
_ENDS: Final = frozenset({"done", "limit", "error"})
_PAGE: Final = 2000


def _fork(row: Row) -> ForkRecord:
    id_, node, token, change, policy, settings, world, seed, stream, extra, _ = row
    return ForkRecord(
        id=id_,
        node=node.hex(),
        token=token,
        change=None if change is None else json.loads(change),
        policy=json.loads(policy),
        settings=json.loads(settings),
        world=world,
        seed=int(seed),
        stream=int(stream),
        extra=json.loads(extra),
    )


def _draw(row: Row) -> DrawRecord:
    fork, draw, leaf, end, error, _ = row
    return DrawRecord(fork, draw, leaf.hex(), end, error)


def _plain(record: ForkRecord, name: str) -> Any:
    value = getattr(record, name)
    # Stored JSON comes back with lists for tuples and texts for other keys: so is the given value compared.
    return json.loads(json.dumps(value)) if isinstance(value, dict) else value


def _check(record: ForkRecord, where: str) -> None:
    """Refuse what would count as damage once it is stored."""
    for name in ("change", "policy", "settings", "extra"):
        if not isinstance(value := getattr(record, name), dict) and (name, value) != ("change", None):
            raise BadInput(f"{name} is a {type(value).__name__}, not an object", where=where)
    for name in ("token", "seed", "stream"):
        whole = isinstance(value := getattr(record, name), (int, np.integer)) and not isinstance(value, bool)
        if not whole and (name, value) != ("token", None):
            raise (BadPoint if name == "token" else BadInput)(
                f"{name} is {value!r}, not a whole number", where=where
            )


def begin_fork(db: Database, record: ForkRecord) -> ForkRecord:
    """Record an arm inside the open transaction, or find it again; returns what is stored.

    Raises:
        UnknownNode: its node is not in the tree.
        BadPoint: its token is beyond the node.
        DrawConflict: an arm of this id says something else.
    """
    where = f"fork {record.id[:12]}"
    if not record.id:
        raise BadInput("a fork needs an id")
    place = parent_rows(db, [record.node]).get(record.node)
    if place is None:
        raise UnknownNode(f"no node {record.node!r} to fork", where=where)
    _check(record, where)
    if record.token is not None and not 0 <= record.token <= (place.length or 0):
        raise BadPoint(f"token {record.token} of a step of {place.length or 0} tokens", where=where)
    parts = [record.policy, record.settings, record.extra]
    policy, settings, extra = (dumps(part, where) for part in parts)
    change = None if record.change is None else dumps(record.change, where)
    row = (record.id, place.row, record.token, change, policy, settings, record.world)
    added = db.write(
        "INSERT INTO forks (id, node, token, change, policy, settings, world, seed, stream, extra, seal) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        [sealed("forks", (*row, str(record.seed), str(record.stream), extra))],
    )
    stored = fork_record(db, record.id)
    if not added:
        for field in fields(ForkRecord):
            if getattr(stored, field.name) != _plain(record, field.name):
                raise DrawConflict(
                    f"this fork is recorded already, with another {field.name}",
                    where=where,
                    hint="give the other arm another id, or ask for what is recorded",
                )
    return stored


def fork_record(db: Database, fork: str) -> ForkRecord:
    """The arm of an id.

    Raises:
        BadInput: there is none.
    """
    row = db.one(f"{_FORK} WHERE f.id = ?", (fork,))
    if row is None:
        raise BadInput(f"no fork {fork!r} in this tree")
    return _fork(row)


def forks(db: Database, node: int | None) -> Iterator[ForkRecord]:
    """Arms in order of recording: all, or those that start in one node."""
    # All numbers at once: on a server one below the largest may be committed later.
    condition, values = ("true", ()) if node is None else ("node = ?", (node,))
    found = db.rows(f"SELECT row FROM forks WHERE {condition} ORDER BY row", values)
    return _of_rows(db, [row for (row,) in found])


def _of_rows(db: Database, rows: Sequence[int]) -> Iterator[ForkRecord]:
    for start in range(0, len(rows), _PAGE):
        page = db.lookup(f"{_FORK} WHERE f.row IN ({{keys}})", rows[start : start + _PAGE])
        yield from map(_fork, sorted(page, key=itemgetter(-1)))


def finish_draws(db: Database, records: Sequence[DrawRecord]) -> int:
    """Record finished draws inside the open transaction; returns how many are new.

    Raises:
        BadInput: unknown fork, or an ``end`` that is not done, limit or error.
        UnknownNode: a leaf that is not in the tree.
        DrawConflict: the same draw ended otherwise before.
    """
    known = parent_rows(db, {record.leaf for record in records})
    arms: dict[str, int] = dict(
        db.lookup("SELECT id, row FROM forks WHERE id IN ({keys})", {record.fork for record in records})
    )
    rows: list[Row] = []
    for record in records:
        where = f"draw {record.draw} of fork {record.fork[:12]}"
        if record.fork not in arms:
            raise BadInput("this fork is not recorded", where=where, hint="begin_fork comes first")
        if record.leaf not in known:
            raise UnknownNode(f"no node {record.leaf!r}", where=where)
        if record.end not in _ENDS:
            raise BadInput(f"end is {record.end!r}; it must be one of {sorted(_ENDS)}", where=where)
        if isinstance(record.draw, bool) or not isinstance(record.draw, int) or record.draw < 0:
            raise BadInput(f"draw is {record.draw!r}; it must be 0 or more", where=where)
        row = (arms[record.fork], record.draw, known[record.leaf].row, record.end, record.error)
        rows.append(sealed("draws", row))
    added = db.write(
        'INSERT INTO draws (fork, draw, leaf, "end", error, seal) VALUES (?, ?, ?, ?, ?, ?) '
        "ON CONFLICT (fork, draw) DO NOTHING",
        rows,
    )
    # A worker may repeat a draw after a crash: one that is there already is no error where it says the same.
    if added < len(rows):
        sql = 'SELECT leaf, "end", error FROM draws WHERE fork = ? AND draw = ?'
        for row, record in zip(rows, records, strict=True):
            if db.one(sql, row[:2]) != row[2:5]:
                raise DrawConflict(
                    "this draw is finished already, with another result",
                    where=f"draw {record.draw} of fork {record.fork[:12]}",
                    hint="the same draw must give the same result; has the policy or the machine changed?",
                )
    return added


def draws(db: Database, fork: str) -> list[DrawRecord]:
    """Finished draws of an arm, by number."""
    return [_draw(row) for row in db.rows(f"{_DRAW} WHERE f.id = ? ORDER BY d.draw", (fork,))]


def all_draws(db: Database) -> Iterator[DrawRecord]:
    """Finished draws of every arm, in order of recording."""
    yield from map(_draw, pages(db, f"{_DRAW} WHERE d.row > ? ORDER BY d.row", _PAGE))
