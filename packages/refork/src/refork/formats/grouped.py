"""Parts of a file that belong together, wherever in it they lie; on the disk where they are many."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from typing import final

from refork.types import Json


@final
class Grouped:
    """JSON objects by the name of their group, each under an id of its own."""

    def __init__(self) -> None:
        # The empty name is a database of its own, in memory up to the cache's size and removed when closed.
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("PRAGMA cache_size = -16384")
        # Nothing is taken back here, and the file goes with the connection.
        self._db.execute("PRAGMA journal_mode = OFF")
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute(
            "CREATE TABLE parts (row INTEGER PRIMARY KEY, name TEXT, id TEXT, body TEXT, UNIQUE (name, id))"
        )
        self._db.execute("CREATE TABLE notes (row INTEGER PRIMARY KEY, name TEXT, id TEXT, body TEXT)")
        self._db.execute("CREATE INDEX of_part ON notes (name, id)")

    def add(self, name: str, id_: str, body: Json) -> bool:
        """Keep a part; whether it is new, or the same as before. Another one under its id is not kept."""
        text = json.dumps(body)
        sql = "INSERT INTO parts (name, id, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        if self._db.execute(sql, (name, id_, text)).rowcount:
            return True
        sql = "SELECT body FROM parts WHERE name = ? AND id = ?"
        return bool(self._db.execute(sql, (name, id_)).fetchone()[0] == text)

    def note(self, name: str, id_: str, body: Json) -> None:
        """Keep something that is said of a part, which may come later or never; of a group, or of any (``""``)."""
        sql = "INSERT INTO notes (name, id, body) VALUES (?, ?, ?)"
        self._db.execute(sql, (name, id_, json.dumps(body)))

    def names(self) -> Iterator[str]:
        """The groups in the order of their first parts."""
        sql = "SELECT name FROM parts GROUP BY name ORDER BY min(row)"
        yield from (row[0] for row in self._db.execute(sql).fetchall())

    def members(self, name: str) -> Iterator[Json]:
        """The parts of a group in the order in which they came."""
        rows = self._db.execute("SELECT body FROM parts WHERE name = ? ORDER BY row", (name,))
        yield from (json.loads(row[0]) for row in rows)

    def notes(self, name: str) -> Iterator[tuple[str, Json]]:
        """What is said of the parts of a group, each with the part's id."""
        own = "SELECT id FROM parts WHERE name = ?"
        sql = f"SELECT id, body FROM notes WHERE name = ? OR (name = '' AND id IN ({own})) ORDER BY row"
        rows = self._db.execute(sql, (name, name))
        yield from ((row[0], json.loads(row[1])) for row in rows)

    def unplaced(self) -> int:
        """How much is said of parts whose group has none."""
        known = "name IN (SELECT name FROM parts) OR (name = '' AND id IN (SELECT id FROM parts))"
        sql = f"SELECT count(*) FROM notes WHERE NOT ({known})"
        return int(self._db.execute(sql).fetchone()[0])

    def close(self) -> None:
        """Give the storage back."""
        self._db.close()
