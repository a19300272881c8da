"""The rows of one episode: a SQLite database in memory, with its constraints."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, final

from refork_worlds.tools.schema import MOST, Column, Database, Row, Rows, Table, Value


def _sql(column: Column) -> str:
    if column.kind == "text":
        return f'"{column.name}" TEXT NOT NULL UNIQUE'
    if column.kind == "ref":
        return f'"{column.name}" INTEGER NOT NULL REFERENCES "{column.to}"(id)'
    if column.kind == "choice":
        allowed = ", ".join(f"'{choice}'" for choice in column.choices)
        return f'"{column.name}" TEXT NOT NULL CHECK ("{column.name}" IN ({allowed}))'
    limits = f'"{column.name}" BETWEEN {column.low} AND {MOST}'
    return f'"{column.name}" INTEGER NOT NULL CHECK ({limits})'


@final
class Store:
    """Rows in SQLite. Names of tables and columns come from the schema; values are always bound.

    A new row's id is the largest plus one, as SQLite gives it.
    """

    def __init__(self, database: Database, rows: Rows) -> None:
        self.database = database
        # Every statement is a transaction of its own: what a constraint refuses leaves nothing behind.
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA foreign_keys = ON")
        for table in database.tables:
            columns = ", ".join(["id INTEGER PRIMARY KEY", *map(_sql, table.columns)])
            self._db.execute(f'CREATE TABLE "{table.name}" ({columns}) STRICT')
            for row in rows[table.name]:
                self.create(table, row)

    def rows(self) -> Rows:
        """All rows, by table, in the order of their ids."""
        return {table.name: self.find(table) for table in self.database.tables}

    def find(
        self, table: Table, where: Mapping[str, Value] | None = None, text: str | None = None
    ) -> list[Row]:
        """Rows with these values, or with this text in their key column; in the order of their ids."""
        terms = [f'"{name}" = ?' for name in where or {}]
        values: list[Any] = list((where or {}).values())
        if text is not None and table.key is not None:
            terms.append(f'instr(lower("{table.key.name}"), lower(?)) > 0')
            values.append(text)
        clause = f" WHERE {' AND '.join(terms)}" if terms else ""
        found = self._db.execute(f'SELECT * FROM "{table.name}"{clause} ORDER BY id', values)
        return [dict(row) for row in found]

    def get(self, table: Table, number: int) -> Row | None:
        """The row of an id, if there is one."""
        return next(iter(self.find(table, {"id": number})), None)

    def create(self, table: Table, values: Mapping[str, Value]) -> Row:
        """Insert a row; raises sqlite3.IntegrityError where a constraint forbids it."""
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" for _ in values)
        done = self._db.execute(
            f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', list(values.values())
        )
        made = self.get(table, int(done.lastrowid or 0))
        return made or {}

    def update(self, table: Table, number: int, values: Mapping[str, Value]) -> Row:
        """Change a row; raises sqlite3.IntegrityError where a constraint forbids it."""
        terms = ", ".join(f'"{name}" = ?' for name in values)
        self._db.execute(f'UPDATE "{table.name}" SET {terms} WHERE id = ?', [*values.values(), number])
        return self.get(table, number) or {}

    def delete(self, table: Table, number: int) -> None:
        """Delete a row; raises sqlite3.IntegrityError where another refers to it."""
        self._db.execute(f'DELETE FROM "{table.name}" WHERE id = ?', [number])

    def total(self, table: Table, column: str, where: Mapping[str, Value]) -> int:
        """The sum of a column over the rows with these values; 0 where there are none."""
        terms = " AND ".join(f'"{name}" = ?' for name in where)
        clause = f" WHERE {terms}" if terms else ""
        found = self._db.execute(
            f'SELECT coalesce(sum("{column}"), 0) FROM "{table.name}"{clause}', list(where.values())
        )
        return int(found.fetchone()[0])

    def close(self) -> None:
        """Free the database."""
        self._db.close()
