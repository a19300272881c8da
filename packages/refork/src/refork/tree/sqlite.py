"""The embedded store: connections, transactions, and the translation of SQLite's errors."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import quote

from refork.errors import BadInput, DiskFull, NotATree, TreeBusy, TreeDamaged, TreeError, TreeVersion
from refork.foreign_sqlite import bounded, check_place, harden, was_interrupted
from refork.tree.address import is_address
from refork.tree.database import BUSY_SECONDS, RESTORE, Mode, Row, T
from refork.tree.fresh import make, sweep
from refork.tree.guard import check
from refork.tree.schema import MIGRATIONS, VERSION, ddl, insert_sql
from refork.tree.seal import reseal, sealed

#: SQLite takes at least this many parameters in one statement, in every build.
CHUNK: Final = 500

#: How long SQLite itself waits for another writer, seconds: Ctrl-C is heard between two such waits.
_SLICE: Final = 0.5
_MAGIC: Final = b"SQLite format 3\x00"

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT})
_REFUSED = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
        sqlite3.SQLITE_IOERR_SHMOPEN,
    }
)


def translate(error: sqlite3.Error, path: Path | None) -> TreeError:
    """The user's error for one of SQLite's."""
    where = str(path) if path else "in memory"
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & 0xFF
    if primary == sqlite3.SQLITE_TOOBIG:
        return TreeError(
            "a text or array is larger than a tree holds in one place (1 GB); nothing was recorded",
            where=where,
            hint="split it into several nodes, or keep it in a file of its own and record its path",
        )
    # A text that is not UTF-8 has no code, only these words of Python's; the text behind them is not shown.
    if str(error).startswith("Could not decode"):
        return TreeDamaged(
            f"this tree is damaged: {str(error).partition(' with text')[0].lower()}",
            where=where,
            hint=RESTORE,
        )
    if primary in _BUSY:
        return TreeBusy(
            f"another process has been writing to this tree for {BUSY_SECONDS:g} s",
            where=where,
            hint="wait for it to end, or write to another file and `refork tree merge` them",
        )
    if code in _REFUSED or primary == sqlite3.SQLITE_FULL:
        return DiskFull(
            "the storage refused a write; nothing of this write was recorded, all before it is safe",
            where=where,
            hint="free some space, then run the same command again",
        )
    if primary in _DAMAGED:
        return NotATree(
            f"the file is not a Refork tree, or it is damaged: {error}",
            where=where,
            hint="check the path; restore a copy, or import its last export",
        )
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return TreeError("this tree has been closed", where=where, hint="open it again")
    return TreeError(
        f"the tree file cannot be used: {error}",
        where=where,
        hint="check that the file and its folder exist and may be written",
    )


@contextlib.contextmanager
def translated(path: Path | None) -> Iterator[None]:
    """Raise SQLite's errors as the user's."""
    try:
        yield
    except sqlite3.Error as error:
        if was_interrupted(error):
            # What the signal's handler raised is lost inside SQLite; it is Ctrl-C's.
            raise KeyboardInterrupt from error
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite's own words, such as a column's name in a damaged schema.
        raise TreeDamaged(
            f"this tree is damaged: what it says of itself is not UTF-8: {error.reason}",
            where=str(path) if path else "in memory",
            hint="restore a copy, or import its last export",
        ) from error
    except UnicodeEncodeError as error:
        raise BadInput(f"a text is not valid Unicode: {error}") from error
    except OverflowError as error:
        # What Python cannot even hand over: more than 2 GB, or a whole number beyond 64 bits.
        raise BadInput(f"a value is larger than a tree holds in one place: {error}") from error


@final
class SQLiteDatabase:
    """One connection to a tree file, usable from several threads.

    One process writes at a time, so row numbers are in order of commit and rows up to a bound are a
    snapshot. As no cursor stays open, no writer is ever held up, and the journal can always be folded in.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, mode: Mode, wait: float = BUSY_SECONDS
    ) -> None:
        self.path = path
        self.mode = mode
        self.uri = str(path) if path else None
        self.where = self.uri or "in memory"
        self._connection = connection
        self._lock = threading.RLock()
        self._wait = wait
        #: Device and inode, which tell a file from another that took its name.
        self._file = _identity(path) if path else None
        self._checked = self._schema()

    def _schema(self) -> int:
        """A number that changes whenever the definitions of the tables do."""
        return int(self._connection.execute("PRAGMA schema_version").fetchone()[0])

    def _run(self, sql: str, parameters: Sequence[Any] = ()) -> sqlite3.Cursor:
        """A statement's cursor; one that meets another writer is tried again, and Ctrl-C heard in between."""
        until = time.monotonic() + self._wait
        while True:
            try:
                return self._connection.execute(sql, parameters)
            except sqlite3.OperationalError as error:
                busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY
                if not busy or self._connection.in_transaction or time.monotonic() >= until:
                    raise

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        with self._lock, translated(self.path):
            return self._run(sql, parameters).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a query, or None."""
        with self._lock, translated(self.path):
            row: Row | None = self._run(sql, parameters).fetchone()
            return row

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        row = self.one(sql, parameters)
        return None if row is None else row[0]

    def lookup(self, sql: str, keys: Iterable[Any], before: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows of a query over many keys; ``IN ({keys})`` stands for them, after other parameters."""
        wanted = list(keys)
        for start in range(0, len(wanted), CHUNK):
            part = wanted[start : start + CHUNK]
            # One statement for every full chunk, and one per power of two, so that they stay prepared.
            size = min(CHUNK, 1 << (len(part) - 1).bit_length())
            marks = ",".join("?" * size)
            # NULL equals nothing, so what is filled up finds no row.
            padded = part + [None] * (size - len(part))
            yield from self.rows(sql.replace("{keys}", marks), [*before, *padded])

    def now(self, table: str = "nodes") -> int:
        """The newest row: what is read up to it is the table as it is now."""
        return int(self.scalar(f"SELECT max(row) FROM {table}") or 0)

    def numbers(self, count: int) -> range:
        """The row numbers after the newest node's."""
        first = self.now() + 1
        return range(first, first + count)

    def write(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement for each row, inside a transaction; returns the number of rows it changed."""
        with self._lock:
            before = self._connection.total_changes
            self._connection.executemany(sql, rows)
            return self._connection.total_changes - before

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert whole rows, inside a transaction."""
        self.write(insert_sql(table), rows)

    def commit(self, body: Callable[[], T]) -> T:
        """What a body returns whose writes are one transaction."""
        with self.transaction():
            return body()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, durable once it ends, and no other writer meanwhile.

        Raises:
            TreeError: the tree is open for reading only, or its file was deleted or replaced.
            NotATree: another program has changed its tables meanwhile.
            TreeBusy: another process kept the write lock too long.
            DiskFull: the storage refused; nothing was written.
        """
        if self.mode == "r":
            raise TreeError(
                "this tree is open for reading only",
                where=self.where,
                hint="open it with mode 'a' to write",
            )
        with self._lock, translated(self.path):
            self._run("BEGIN IMMEDIATE")
            try:
                if self.path is not None and self._schema() != self._checked:
                    self._check_again(self.path)
                yield
                if self.path is not None:
                    self._same(self.path)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        self._connection.execute("ROLLBACK")
                raise

    def _same(self, path: Path) -> None:
        """Raise TreeError unless the path still leads to the file that was opened."""
        if _identity(path) != self._file:
            raise TreeError(
                "the tree's file was deleted or replaced while it was open; nothing was written now, for it "
                "would have gone to a file without a name",
                where=str(path),
                hint="open it again; while the old one is open, what it holds can still be read",
            )

    def _check_again(self, path: Path) -> None:
        version = check(self._connection, str(path))
        if version != VERSION:
            raise TreeVersion(
                f"another program has brought the tree to schema version {version}",
                where=str(path),
                hint="open it again",
            )
        self._checked = self._schema()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[SQLiteDatabase]:
        """The database as it is now, whatever is written meanwhile; in memory, the database itself."""
        if self.path is None:
            yield self
            return
        self._same(self.path)
        with translated(self.path), contextlib.closing(_open_existing(self.path, "r", 0)) as connection:
            self._same(self.path)
            connection.execute("BEGIN")
            # BEGIN fixes nothing: the state that is seen is that of the first read.
            connection.execute("SELECT max(row) FROM nodes").fetchone()
            yield SQLiteDatabase(connection, self.path, "r")

    def version(self) -> int:
        """The file's schema version."""
        return int(self.scalar("PRAGMA user_version"))

    def size(self) -> int:
        """Bytes on disk, journal included; in memory, those of the pages."""
        if self.path is None:
            return int(self.scalar("PRAGMA page_count") * self.scalar("PRAGMA page_size"))
        file = self.path.resolve()
        parts = (file, Path(f"{file}-wal"))
        return sum(part.stat().st_size for part in parts if part.exists())

    def damage(self) -> Iterator[tuple[str, str]]:
        """Findings of SQLite's own checks, and their likely cause."""
        found = [message for (message,) in self.rows("PRAGMA integrity_check(20)") if message != "ok"]
        for message in found:
            yield f"the file is damaged: {message}", "a fault of the storage"
        if found:  # a damaged table may have rows without end
            return
        for table, row, parent, _ in self.rows("PRAGMA foreign_key_check"):
            what = f"row {row} of {table} refers to a row of {parent} that does not exist"
            yield what, "written by another program"

    def close(self) -> None:
        """Give the file back; further use is refused."""
        with self._lock:
            self._connection.close()


def is_database(path: Path) -> bool:
    """Whether this is an SQLite database, as a tree file is, or the address of a tree."""
    if is_address(path):
        return True
    if not stat.S_ISREG(path.stat().st_mode):
        # What is read from a pipe would be lost to whoever reads it next.
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from another of its name; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _connect(target: str, where: str, *, wait: float = BUSY_SECONDS) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target, timeout=wait, isolation_level=None, check_same_thread=False, uri=True, cached_statements=256
    )
    try:
        harden(connection)
        # The first statement that needs to know the tables reads the list of all of them.
        with bounded(connection, where):
            connection.execute("PRAGMA foreign_keys = ON")
            # With a write-ahead log NORMAL may lose the last commits to a power cut.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA cache_size = -65536")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute("PRAGMA wal_autocheckpoint = 4000")
    except BaseException:
        connection.close()
        raise
    return connection


def _uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def _build(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in ddl():
        connection.execute(statement)
    connection.execute(insert_sql("meta"), sealed("meta", ("created", repr(time.time()))))
    connection.execute("COMMIT")


def _create(path: Path) -> bool:
    """Make an empty tree; False where another process was first."""

    def build(fresh: Path) -> None:
        with contextlib.closing(_connect(_uri(fresh, "rw"), str(path))) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            _build(connection)

    try:
        return make(path, build)
    except OSError as error:
        raise TreeError(
            f"no tree can be made there: {error.strerror}",
            where=str(path),
            hint="check that the folder exists and may be written",
        ) from error


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated while this one waited.
        version = check(connection, str(path))
        for step in range(version, VERSION):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
        if version < VERSION:
            reseal(lambda *query: connection.execute(*query).fetchall(), connection.executemany)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _open_existing(path: Path, mode: Mode, wait: float) -> sqlite3.Connection:
    target = _uri(path, "ro" if mode == "r" else "rw")
    real = path.resolve()
    sealed = not os.access(real.parent, os.W_OK) and not Path(f"{real}-wal").exists()
    if mode == "r" and sealed:
        # A journal cannot be made on a read-only medium, and nobody can be writing there.
        target += "&immutable=1"
    connection = _connect(target, str(path), wait=wait)
    try:
        version = check(connection, str(path))
        if version < VERSION and mode == "r":
            raise TreeVersion(
                f"the tree has schema version {version} and must be brought to {VERSION} first",
                where=str(path),
                hint=f"refork tree schema {path} --migrate",
            )
        if version < VERSION:
            _migrate(connection, path)
        if mode != "r":
            # A copy may be in another mode, and its journal would be one that is refused.
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA busy_timeout = {round(1000 * min(wait, _SLICE))}")
    except BaseException:
        connection.close()
        raise
    return connection


def open_file(path: str | os.PathLike[str], mode: Mode = "a", wait: float = BUSY_SECONDS) -> SQLiteDatabase:
    """A database of a tree file: ``a`` creates or appends, ``r`` reads only, ``x`` must not exist.

    ``wait`` is how many seconds a write waits for another writer.

    Raises:
        NotATree: no such file, empty, truncated, or not ours.
        TreeVersion: written by another schema version.
        TreeError: the folder does not exist, or ``x`` and the file exists.
    """
    file = Path(path)
    if mode not in ("a", "r", "x"):
        raise BadInput(f"mode is {mode!r}; it must be 'a', 'r' or 'x'", where=str(file))
    with translated(file):
        made = mode != "r" and not file.exists() and _create(file)
        if mode == "x" and not made:
            raise TreeError("the file exists already", where=str(file), hint="choose another name")
        if not file.exists():
            raise NotATree("this is not a tree file: no such file", where=str(file), hint="check the path")
        if mode != "r":
            sweep(file)
        check_place(file, write=mode != "r")
        if file.stat().st_size == 0:
            raise NotATree("the file is empty", where=str(file), hint="delete it, or restore a copy")
        meant = _identity(file)
        db = SQLiteDatabase(_open_existing(file, mode, wait), file, mode, wait)
        db._file = meant  # of before: a file that took its place since is another
        return db


def open_memory() -> SQLiteDatabase:
    """A database that lives and dies with this process."""
    connection = _connect(":memory:", "in memory")
    _build(connection)
    return SQLiteDatabase(connection, None, "a")
