"""Whether a database is one of ours and nothing else, asked before any of its tables is."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, TypeAlias

from refork.errors import NotATree, TreeVersion
from refork.foreign_sqlite import bounded
from refork.tree.schema import APPLICATION_ID, MIGRATIONS, VERSION, ddl

#: What a database lists of itself: kind and name, then the table it belongs to and its definition.
Contents: TypeAlias = dict[tuple[Any, Any], tuple[Any, Any]]

_LIST: Final = "SELECT type, name, tbl_name, sql, rootpage FROM sqlite_master"
_HINT: Final = "it may be a stranger's: import an export of it, and ask who made the file"


def check(connection: sqlite3.Connection, where: str) -> int:
    """The version of a tree's database, once it is known to hold our tables and nothing else.

    SQLite parses the definitions to list them, and runs none.

    Raises:
        NotATree: another program's database, or one with more, less or other than a tree has; it is named.
        TreeVersion: a tree of a version that is not known here.
    """
    with bounded(connection, where), _moment(connection):
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if mark != APPLICATION_ID:
            raise NotATree(
                "this is a database, but not a Refork tree",
                where=where,
                hint="check the path; `refork tree import` reads other formats",
            )
        if not 1 <= version <= VERSION:
            raise TreeVersion(
                f"the tree has schema version {version}; this build reads 1 to {VERSION}",
                where=where,
                hint="read it with the newer version that wrote it",
            )
        encoding = connection.execute("PRAGMA encoding").fetchone()[0]
        if encoding != "UTF-8":
            raise NotATree(f"its texts are in {encoding}, those of a tree in UTF-8", where=where, hint=_HINT)
        what = _difference(connection, version)
    if what is not None:
        raise NotATree(f"this is not a tree as any version makes it: {what}", where=where, hint=_HINT)
    return version


@contextlib.contextmanager
def _moment(connection: sqlite3.Connection) -> Iterator[None]:
    """One state of the file for several queries, whatever another process does to it meanwhile."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _difference(connection: sqlite3.Connection, version: int) -> str | None:
    """The first thing in which a database differs from a tree of a version."""
    raw = _rows(connection)
    found = _contents(raw)
    ours = _trees(version)
    if found not in ours:
        near = min(ours, key=lambda tree: len(tree.items() ^ found.items()))
        for (kind, name), definition in found.items():
            if (kind, name) not in near:
                return f"it has {_name_text(kind)} {_name_text(name)}, which no tree has"
            if near[kind, name] != definition:
                return f"{_name_text(kind)} {_name_text(name)} is not defined as in a tree"
        return "it lacks " + ", ".join(f"{kind} {name}" for kind, name in near if (kind, name) not in found)
    pages = [page for *_, page in raw]
    # With one root page for two entries a write to one table would change another; page 1 is the list itself.
    if len(raw) != len(found) or len(set(pages)) != len(pages) or 1 in pages:
        return "two of its tables or indexes are kept in one place"
    return None


def _rows(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    # A stranger's name may be no UTF-8, and is still to be named in the message.
    factory, connection.text_factory = connection.text_factory, _text
    try:
        return connection.execute(_LIST).fetchall()
    finally:
        connection.text_factory = factory


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _contents(rows: list[tuple[Any, ...]]) -> Contents:
    return {(kind, name): (table, _plain(sql)) for kind, name, table, sql, _ in rows}


def _plain(sql: Any) -> Any:
    """A definition with one space wherever it has white space; ours have none inside quotes."""
    return re.sub(r"\s+", " ", sql) if isinstance(sql, str) else sql


def _name_text(name: Any) -> str:
    return repr(name if isinstance(name, str) else type(name).__name__)[:80] if name != "table" else "table"


@cache
def _trees(version: int) -> tuple[Contents, ...]:
    """What a tree of a version lists, for each version in which it may have been made."""
    made = []
    # SQLite lists an added column otherwise than one that its table was made with: each way counts.
    for first in range(1, version + 1):
        with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
            steps = (change for step in range(first, version) for change in MIGRATIONS[step])
            for statement in (*ddl(first), *steps):
                scratch.execute(statement)
            made.append(_contents(_rows(scratch)))
    return tuple(made)
