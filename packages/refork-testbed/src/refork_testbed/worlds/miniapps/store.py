"""The state of all five apps: one in-memory SQLite database, and its canonical form.

The canonical form is JSON of all rows in order of their keys, not SQLite's own file image: a page image
remembers deleted rows and the order of writes, so two equal states could have different bytes. Restoring it
gives the same answers to the same calls, for ids come from a counter that is part of the state.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json

#: Table -> its rows; every row is a mapping of all columns.
Rows: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]

#: Tables that tasks are about, and their columns; ``id`` is the key of each. Money is in cents, times UTC.
TABLES: dict[str, tuple[str, ...]] = {
    "people": ("id", "name", "email"),
    "messages": ("id", "folder", "sender", "sender_email", "recipient", "subject", "body", "amount"),
    "payments": ("id", "person_id", "kind", "cents", "note"),
    "requests": ("id", "person_id", "cents", "note", "state"),
    "notes": ("id", "title", "text"),
    "events": ("id", "title", "start", "minutes"),
    "songs": ("id", "title", "artist", "owned", "stars"),
    "playlists": ("id", "name"),
    "tracks": ("id", "playlist_id", "song_id"),
}
#: Tables that no task is about: who is logged in, the clock of calls, the next free ids.
HIDDEN: dict[str, tuple[str, ...]] = {
    "sessions": ("id", "app", "issued"),
    "counters": ("id", "value"),
}
CLOCK = "calls"


@final
class Store:
    """The database of one episode."""

    def __init__(self, rows: Rows) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        for table, columns in (TABLES | HIDDEN).items():
            self._connection.execute(f"CREATE TABLE {table} (id PRIMARY KEY, {', '.join(columns[1:])})")
            marks = ", ".join("?" * len(columns))
            values = [tuple(row[column] for column in columns) for row in rows.get(table, ())]
            self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        if not self.query("SELECT id FROM counters WHERE id = ?", CLOCK):
            self._connection.execute("INSERT INTO counters VALUES (?, 0)", (CLOCK,))
            for table in TABLES:
                top = self.query(f"SELECT COALESCE(MAX(id), 0) AS top FROM {table}")[0]["top"]
                self._connection.execute("INSERT INTO counters VALUES (?, ?)", (table, top))

    def query(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        """The rows of a SELECT."""
        return [dict(row) for row in self._connection.execute(sql, values)]

    def insert(self, table: str, **values: Any) -> int:
        """Add a row; returns its id, which was never used before."""
        new = self._count(table)
        columns = ", ".join(["id", *values])
        marks = ", ".join("?" * (len(values) + 1))
        self._connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", (new, *values.values()))
        return new

    def update(self, table: str, row: int, **values: Any) -> None:
        """Change columns of one row."""
        sets = ", ".join(f"{column} = ?" for column in values)
        self._connection.execute(f"UPDATE {table} SET {sets} WHERE id = ?", (*values.values(), row))

    def delete(self, table: str, row: int) -> None:
        """Remove one row."""
        self._connection.execute(f"DELETE FROM {table} WHERE id = ?", (row,))

    def tick(self) -> int:
        """Count one call; returns how many there were."""
        return self._count(CLOCK)

    @property
    def clock(self) -> int:
        """Calls so far."""
        return int(self.query("SELECT value FROM counters WHERE id = ?", CLOCK)[0]["value"])

    def log_in(self, app: str, token: str) -> None:
        """Remember a token and when it was given out."""
        self._connection.execute("INSERT INTO sessions VALUES (?, ?, ?)", (token, app, self.clock))

    def rows(self, *, hidden: bool = True) -> dict[str, list[dict[str, Any]]]:
        """All rows, each table in the order of its ids."""
        tables = TABLES | HIDDEN if hidden else TABLES
        return {table: self.query(f"SELECT * FROM {table} ORDER BY id") for table in tables}

    def dump(self) -> str:
        """The canonical form: equal states have equal text."""
        return json.dumps(self.rows(), sort_keys=True, separators=(",", ":"))

    def close(self) -> None:
        """Free the database."""
        self._connection.close()

    def _count(self, name: str) -> int:
        self._connection.execute("UPDATE counters SET value = value + 1 WHERE id = ?", (name,))
        return int(self.query("SELECT value FROM counters WHERE id = ?", name)[0]["value"])


def load_rows(data: Any) -> Json:
    """Rows that a dump holds, checked: all tables, all columns.

    Raises:
        BadInput: a table or column is missing or unknown.
    """
    known = TABLES | HIDDEN
    if not isinstance(data, dict) or set(data) != set(known):
        raise BadInput(f"the state must hold the tables {', '.join(known)}")
    for table, columns in known.items():
        rows = data[table]
        if not isinstance(rows, list) or any(not isinstance(r, dict) or set(r) != set(columns) for r in rows):
            raise BadInput(f"a row of {table} does not have the columns {', '.join(columns)}")
        if any(not (value is None or isinstance(value, str | int)) for row in rows for value in row.values()):
            raise BadInput(f"a row of {table} holds what is neither a text nor a whole number")
    return data
