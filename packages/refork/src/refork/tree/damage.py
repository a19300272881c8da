"""What a tree file holds that no writing of ours puts there: values of other kinds, JSON of other shapes.

Reading trusts what it reads. Where reading fails in a way that nobody meant, this says whether the file is to
blame, and where; ``refork tree verify`` lists all of it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from refork.errors import ReforkError, TreeDamaged
from refork.tree.codec import KINDS, misread
from refork.tree.database import RESTORE, Database
from refork.tree.schema import FIELDS
from refork.tree.sqlite import SQLiteDatabase

_KINDS: Final = {"INTEGER": ("integer",), "TEXT": ("text",), "BLOB": ("blob",), "REAL": ("real", "integer")}
#: Columns that hold JSON, and the kind of the value.
_JSON: Final[Mapping[str, tuple[tuple[str, type], ...]]] = {
    "nodes": (("message", dict), ("settings", dict), ("cost", dict), ("extra", dict)),
    "producers": (("config", dict), ("reads", list)),
    "forks": (("change", dict), ("policy", dict), ("settings", dict), ("extra", dict)),
}
_PAGE: Final = 500


def blamed(error: Exception, db: Database) -> TreeDamaged | None:
    """The damage of a store that explains an error nobody raised on purpose; None where there is none."""
    if isinstance(error, ReforkError):
        return None
    try:
        what, where = next(iter(misfits(db)))
    except StopIteration:
        try:
            what, where = next((found, "the file") for found, _ in db.damage())
        except (StopIteration, ReforkError):
            return None
    except ReforkError as met:
        what, where = getattr(met, "what", str(met)), "the file"
    except (sqlite3.Error, ValueError, TypeError) as met:
        what, where = f"it cannot be read: {met}", "the file"
    return TreeDamaged(f"this tree is damaged: {what}", where=f"{db.where}, {where}", hint=RESTORE)


def misfits(db: Database) -> Iterator[tuple[str, str]]:
    """What is of another kind than its column, or JSON of another shape: what, and where.

    A server keeps the kinds of its columns itself, and is not looked at.
    """
    if not isinstance(db, SQLiteDatabase):
        return
    for table in dict.fromkeys(field.table for field in FIELDS):
        yield from _kinds(db, table)
    for table, columns in _JSON.items():
        yield from _shapes(db, table, columns)
    yield from _bad_parents(db)


def _kinds(db: Database, table: str) -> Iterator[tuple[str, str]]:  # noqa: C901  # a list of checks
    key = "rowid" if table == "meta" else "row"
    for field in (field for field in FIELDS if field.table == table):
        kinds = _KINDS[field.sql.split()[0]]
        allowed = ", ".join(f"'{kind}'" for kind in kinds)
        must = "NOT NULL" in field.sql or "PRIMARY KEY" in field.sql
        null = "" if must else f'"{field.name}" IS NOT NULL AND '
        found = db.rows(
            f'SELECT {key}, typeof("{field.name}") FROM {table} '
            f'WHERE {null}typeof("{field.name}") NOT IN ({allowed}) ORDER BY {key} LIMIT 20'
        )
        for row, kind in found:
            yield f"{table}.{field.name} holds {kind}, not {kinds[0]}", f"row {row} of {table}"
    arrays = {"nodes": ("tokens", "offsets", "logprobs", "logprobs_t1", "ref_logprobs", "entropy")}.get(
        table, ()
    )
    for name in arrays:
        for (row,) in db.rows(f'SELECT row FROM nodes WHERE length("{name}") % 4 != 0 ORDER BY row LIMIT 20'):
            yield f"nodes.{name} has no whole number of entries", f"row {row} of nodes"
    if table == "nodes":
        for (row,) in db.rows("SELECT row FROM nodes WHERE length(id) != 16 ORDER BY row LIMIT 20"):
            yield "nodes.id is no id", f"row {row} of nodes"
    time = {"nodes": "created", "producers": "retired_at"}.get(table)
    if time is not None:
        for (row,) in db.rows(f"SELECT row FROM {table} WHERE abs({time}) > 1e11 ORDER BY row LIMIT 20"):
            yield f"{table}.{time} is no time", f"row {row} of {table}"
    if table == "forks":
        for row, *told in db.rows("SELECT row, CAST(seed AS BLOB), CAST(stream AS BLOB) FROM forks"):
            if not all(_whole(bytes(one or b"")) for one in told):
                yield "forks has a seed or stream that is no number", f"row {row} of forks"


def _shapes(db: Database, table: str, columns: tuple[tuple[str, type], ...]) -> Iterator[tuple[str, str]]:
    # As bytes: sqlite3 raises on the first text that is not UTF-8, before its row can be named.
    names = ", ".join(f'CAST("{name}" AS BLOB)' for name, _ in columns)
    root = "parent IS NULL" if table == "nodes" else "NULL"
    # The row numbers of a damaged file may be below 1.
    last = -(2**63)
    while page := db.rows(
        f"SELECT row, {names}, {root} FROM {table} WHERE row > ? ORDER BY row LIMIT {_PAGE}", (last,)
    ):
        for row in page:
            values: dict[str, Any] = {}
            for (name, kind), raw in zip(columns, row[1:-1], strict=True):
                what, values[name] = _value(raw, kind)
                if what is not None:
                    yield f"{table}.{name} {what}", f"row {row[0]} of {table}"
            if table == "nodes":
                for what in misread(row[-1], **values):
                    yield f"nodes.{what}", f"row {row[0]} of nodes"
        last = page[-1][0]
    if table == "nodes":
        yield from _words(db)


def _words(db: Database) -> Iterator[tuple[str, str]]:
    for row, id_, kind, noise in db.rows("SELECT row, hex(id), kind, CAST(noise AS BLOB) FROM nodes"):
        if kind not in KINDS:
            yield f"nodes.kind is {str(kind)[:20]!r}", f"row {row} of nodes, node {id_.lower()[:12]}"
        parts = b"" if noise is None else bytes(noise)
        if noise is not None and not (parts.count(b" ") == 3 and all(_whole(p) for p in parts.split(b" "))):
            yield "nodes.noise is no address of noise", f"row {row} of nodes, node {id_.lower()[:12]}"


def _whole(digits: bytes) -> bool:
    return digits.removeprefix(b"-").isdigit() and len(digits) < 100


def _value(raw: Any, kind: type) -> tuple[str | None, Any]:
    """What is wrong with a JSON text, and its value."""
    if raw is None:
        return None, None
    try:
        value = json.loads(bytes(raw).decode("utf-8"))
    except UnicodeDecodeError:
        return "is not UTF-8", None
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"[:100], None
    if not isinstance(value, kind):
        return f"is JSON of another kind: {type(value).__name__}", None
    return None, value


def _bad_parents(db: Database) -> Iterator[tuple[str, str]]:
    """Parents that are no earlier row: a parent is always written before what follows it."""
    bad = (
        "SELECT row, parent FROM nodes WHERE parent >= row OR parent NOT IN (SELECT row FROM nodes) LIMIT 20"
    )
    for row, parent in db.rows(bad):
        yield f"the parent, row {parent}, is none before it", f"row {row} of nodes"
    for table, column, other in (
        ("scores", "node", "nodes"), ("scores", "producer", "producers"), ("forks", "node", "nodes"),
        ("draws", "fork", "forks"), ("draws", "leaf", "nodes"),
    ):  # fmt: skip
        sql = f"SELECT row FROM {table} WHERE {column} NOT IN (SELECT row FROM {other}) LIMIT 20"
        for (row,) in db.rows(sql):
            yield f"{table}.{column} refers to nothing", f"row {row} of {table}"
