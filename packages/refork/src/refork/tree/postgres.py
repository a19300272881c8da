"""The shared store: a tree in a schema of a PostgreSQL database, for several writers at once."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from refork.errors import BadInput, MissingExtra, TreeError
from refork.tree.address import FORMER_PREFIX, Address
from refork.tree.database import Mode, Row, T
from refork.tree.dialect import orphans, statement, types
from refork.tree.schema import columns
from refork.tree.server_errors import Gone, Raced, translated, unreachable

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Row]

#: A lookup of more keys than this is several queries.
CHUNK: Final = 10_000
#: How often a write is tried while other writers are first.
TRIES: Final = 20
_CONNECT_SECONDS: Final = "10"
#: Where a row's place in one order of all writers is: depth, then id.
_DEPTH, _ID = columns("nodes").index("depth"), columns("nodes").index("id")
_OLDEST_SERVER: Final = 130000
#: Without its name in the path the server's own catalog comes first, and with it the temporary tables last.
#: Dead peers are noticed within a minute, or what they had begun would hold others up. Plans are not kept:
#: one that was made for a small table reads all of it when it has grown.
_SESSION: Final = """
SET search_path TO "{schema}", pg_temp;
SET default_transaction_isolation TO 'read committed';
SET default_transaction_read_only TO {reads};
SET lock_timeout TO {wait};
SET idle_in_transaction_session_timeout TO 0;
SET plan_cache_mode TO force_custom_plan;
SET tcp_keepalives_idle TO 30;
SET tcp_keepalives_interval TO 10;
SET tcp_keepalives_count TO 3;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
#: Writers share the tree's lock; whoever needs it alone waits for them, and they wait for it.
ALONE: Final = "BEGIN; SELECT pg_advisory_xact_lock({key})"
#: A writer that was stopped within a transaction loses it, as others may wait for the same draws.
BESIDE_OTHERS: Final = """
BEGIN;
SET LOCAL idle_in_transaction_session_timeout TO 60000;
SELECT pg_advisory_xact_lock_shared({key})
"""


@final
class PostgresDatabase:
    """One connection to a tree on a server, usable from several threads.

    Writers work at the same time. What each row is called (a node's id, a fork's, a draw's number) is
    unique, so a second writing of it waits for the first to commit, and is then found to be there: the
    transaction is taken back and runs again, and reads what the other wrote. ``_held`` is true while
    something would be lost with the connection; at other times a broken one is made anew.
    """

    def __init__(self, address: Address, mode: Mode, wait: float) -> None:
        self.path: Path | None = None
        self.mode: Mode = mode
        self.uri: str | None = address.safe_text
        self.where = address.safe_text
        self._wait = wait
        self._lock = threading.RLock()
        self._held = False
        self._closed = False
        self._connection, self.address = connect(address, mode, wait)

    def run(self, sql: bytes, parameters: Sequence[Any] | None = None) -> psycopg.Cursor[Row]:
        """A statement's cursor; a read that met a broken connection is done again on a new one."""
        if self._closed:
            raise TreeError("this tree has been closed", where=self.where, hint="open it again")
        try:
            with translated(self.where):
                return self._connection.execute(sql, parameters, binary=parameters is not None)
        except Gone:
            if self._held:
                raise
        self._connection.close()
        self._connection, self.address = connect(self.address, self.mode, self._wait)
        with translated(self.where):
            return self._connection.execute(sql, parameters, binary=parameters is not None)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        with self._lock:
            return self.run(statement(sql), parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a query, or None."""
        with self._lock:
            return self.run(statement(sql), parameters).fetchone()

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, parameters)
        return None if row is None else row[0]

    def lookup(self, sql: str, keys: Iterable[Any], before: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows of a query over many keys; ``IN ({keys})`` stands for them, after other parameters."""
        wanted = list(keys)
        for start in range(0, len(wanted), CHUNK):
            yield from self.rows(sql, [*before, wanted[start : start + CHUNK]])

    def now(self, table: str = "nodes") -> str:
        """The transactions whose rows are there now; one snapshot serves all tables."""
        return str(self.scalar("SELECT pg_current_snapshot()::text"))

    def numbers(self, count: int) -> list[int]:
        """The next numbers of the nodes' sequence; those of a write that is taken back are never used."""
        return [
            n for (n,) in self.rows("SELECT nextval('nodes_row_seq') FROM generate_series(1, ?)", [count])
        ]

    def write(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement for each row, inside a transaction; returns the number of rows it changed."""
        with self._lock, translated(self.where), self._connection.cursor() as cursor:
            cursor.executemany(statement(sql), list(rows))
            return max(cursor.rowcount, 0)

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert nodes, in one order whoever writes, so that no two writers wait for each other.

        Raises:
            Raced: another writer has stored one of them since this transaction looked.
        """
        names = ", ".join(f'"{name}"' for name in columns(table))
        sql = f"COPY {table} ({names}) FROM STDIN (FORMAT BINARY)".encode()
        with (
            self._lock,
            translated(self.where),
            self._connection.cursor() as cursor,
            cursor.copy(sql) as copy,
        ):
            copy.set_types(types(table))
            for row in sorted(rows, key=lambda row: (row[_DEPTH], row[_ID])):
                copy.write_row(row)

    def commit(self, body: Callable[[], T]) -> T:
        """What a body returns whose writes are one transaction; it runs again where another writer was first.

        Raises:
            TreeError: the tree is open for reading only, or the server went away.
            TreeBusy: another writer held the tree too long, or was first too often.
            DiskFull: the server's storage refused; nothing was written.
        """
        for attempt in range(TRIES):
            try:
                with self._begun(BESIDE_OTHERS):
                    return body()
            except Raced:
                if attempt == TRIES - 1:
                    raise
            # By chance, so that two writers who met do not meet again at the same moment.
            time.sleep(random.uniform(0, 0.002 * 2 ** min(attempt, 8)))
        raise AssertionError("unreachable")

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, durable once it ends, and no other writer meanwhile; raises as :meth:`commit`."""
        with self._begun(ALONE):
            yield

    @contextlib.contextmanager
    def _begun(self, begin: str) -> Iterator[None]:
        if self.mode == "r":
            raise TreeError(
                "this tree is open for reading only",
                where=self.where,
                hint="open it with mode 'a' to write",
            )
        with self._lock:
            try:
                self.run(begin.format(key=_lock_key(self.address)).encode())
                self._held = True
                yield
                self._end()
            except BaseException:
                # Held, so that a broken connection is not made anew only to take back what is lost anyway.
                self._held = True
                with contextlib.suppress(TreeError):
                    self.run(b"ROLLBACK")
                raise
            finally:
                self._held = False

    def _end(self) -> None:
        try:
            self.run(b"COMMIT")
        except Gone as error:
            what = "the server went away during a commit: that write is stored whole or not at all"
            raise Gone(what, where=self.where, hint=error.hint) from error

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[PostgresDatabase]:
        """The tree as it is now, whatever is written meanwhile, on a connection of its own."""
        frozen = PostgresDatabase(self.address, "r", self._wait)
        with contextlib.closing(frozen):
            frozen.run(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            frozen._held = True
            # Repeatable read takes its snapshot at the first query, not at BEGIN.
            frozen.now()
            yield frozen

    def version(self) -> int:
        """The tree's schema version."""
        return int(self.scalar("SELECT value FROM meta WHERE key = 'version'") or 0)

    def size(self) -> int:
        """Bytes that the tree's tables and indexes take on the server."""
        sql = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = ? AND c.relkind = 'r'"
        )
        return int(self.scalar(sql, (self.address.schema,)))

    def damage(self) -> Iterator[tuple[str, str]]:
        """Rows that refer to rows which do not exist; the server itself checks its storage."""
        for table, other, query in orphans():
            for (row,) in self.rows(query):
                what = f"row {row} of {table} refers to a row of {other} that does not exist"
                yield what, "written by another program"

    def close(self) -> None:
        """Give the connection back; further use is refused."""
        with self._lock:
            self._closed = True
            self._connection.close()


def _lock_key(address: Address) -> int:
    """The tree's number among the advisory locks of its database."""
    digest = hashlib.sha256(address.schema.encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def connect(address: Address, mode: Mode, wait: float) -> tuple[Connection, Address]:
    """A connection that sees the tree's tables, and the address with the prefix of the schema they are in.

    Raises:
        MissingExtra: psycopg is not installed.
        TreeError: no connection, or a server that cannot hold a tree.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo
    except ImportError as error:
        raise MissingExtra("psycopg", "postgres") from error
    try:
        given = conninfo_to_dict(address.server)
    except psycopg.Error as error:
        raise BadInput(f"this address is not one: {error}", where=address.safe_text) from error
    usual = {"connect_timeout": _CONNECT_SECONDS, "application_name": "refork"}
    known = usual | {name: str(value) for name, value in given.items() if value is not None}
    # Texts are UTF-8, whatever the address or PGCLIENTENCODING says.
    asked = make_conninfo(**known | {"client_encoding": "utf8"})
    try:
        connection: Connection = psycopg.connect(asked, autocommit=True)
    except psycopg.OperationalError as error:
        raise unreachable(error, address.safe_text) from error
    reads = "on" if mode == "r" else "off"
    try:
        _suits(connection, address)
        with translated(address.safe_text):
            address = _where(connection, address)
            session = _SESSION.format(schema=address.schema, reads=reads, wait=max(1, round(1000 * wait)))
            connection.execute(session.encode())
    except BaseException:
        connection.close()
        raise
    return connection, address


def _where(connection: Connection, address: Address) -> Address:
    """The address with the former prefix where only the schema of that name is there."""
    former = replace(address, prefix=FORMER_PREFIX)
    sql = "SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname = ANY (%s)"
    found = connection.execute(sql, [[address.schema, former.schema]]).fetchall()
    return former if found == [(former.schema,)] else address


def _suits(connection: Connection, address: Address) -> None:
    version = connection.info.server_version
    if version < _OLDEST_SERVER:
        raise TreeError(
            f"the server is PostgreSQL {version // 10000}; a tree needs 13 or newer", where=address.safe_text
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise TreeError(
            f"the database stores {encoding}; a tree needs UTF8",
            where=address.safe_text,
            hint="createdb --encoding=UTF8 --template=template0 NAME",
        )
