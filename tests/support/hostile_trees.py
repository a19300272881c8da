"""Tree files that a stranger may send: each does something of its own when it is opened or written to.

``effect`` says what SQLite does with the file where nothing is checked. The test of hostile trees sees that
it is so, and that :class:`refork.tree.Tree` refuses the file, says why, and changes nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from refork.tree import DrawRecord, ForkRecord, NewNode, Producer, Score, Tree
from refork.tree.schema import VERSION
from refork.tree.seal import SEALED

_PAGE: Final = 4096
_JOURNAL: Final = bytes.fromhex("d9d505f920a163d7")
#: Steps of SQLite's machine that no opening of a small tree takes.
_ENDLESS: Final = 3_000_000


@dataclass(frozen=True, slots=True)
class Hostile:
    """A file that does something: how it is made of a good one, its effect, and what the refusal names."""

    name: str
    make: Callable[[Path], None]
    effect: Callable[[Path], bool]
    said: str


def small(file: Path) -> Path:
    """A tree with rows in every table; all in one file, as a stranger would send it."""
    with Tree.open(file) as tree:
        task = tree.append(NewNode(kind="task", text="go home", extra={"world": "lock"}))[0]
        steps = tree.append(
            [
                NewNode(
                    kind="action",
                    parent=task.id,
                    key=f"d{n}",
                    text=f"step {n}",
                    tokens=np.arange(6, dtype=np.int32),
                    offsets=np.arange(1, 7, dtype=np.int32),
                    logprobs=np.linspace(-1, -0.1, 6, dtype=np.float32),
                    policy="p",
                    snapshot=b"state %d" % n,
                )
                for n in range(4)
            ]
        )
        judge = tree.add_producer(Producer("judge"))
        tree.add_scores([Score(step.id, "success", float(n), judge, "seen") for n, step in enumerate(steps)])
        tree.begin_fork(ForkRecord("arm", task.id, None, None, {"name": "p"}, {}, None, 1, 2))
        tree.finish_draws([DrawRecord("arm", n, step.id, "done") for n, step in enumerate(steps)])
    return file


@contextlib.contextmanager
def raw(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection on which nothing is checked; what it did is in the file, without a journal, afterwards."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        yield connection


def sql(*statements: str) -> Callable[[Path], None]:
    """A file in which statements were run."""

    def make(file: Path) -> None:
        with raw(file) as connection:
            for statement in statements:
                connection.execute(statement)

    return make


def redefined(name: str, *changes: tuple[str, str]) -> Callable[[Path], None]:
    """A file in which the definition of one table says something else; its indexes are made anew."""

    def make(file: Path) -> None:
        with raw(file) as connection:
            (old,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
            new = old
            for said, says in changes:
                assert said in new, (said, new)
                new = new.replace(said, says, 1)
            indexes = connection.execute(
                "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type = 'index' AND sql IS NOT NULL",
                (name,),
            ).fetchall()
            connection.execute("PRAGMA legacy_alter_table = ON")
            connection.execute(f"ALTER TABLE {name} RENAME TO old")
            connection.execute(new)
            kept = [row[1] for row in connection.execute(f"PRAGMA table_xinfo({name})") if row[6] == 0]
            columns = ", ".join(f'"{column}"' for column in kept)
            connection.execute(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM old")
            connection.execute("DROP TABLE old")
            for (index,) in indexes:
                connection.execute(index)

    return make


def _insert(connection: sqlite3.Connection, number: int) -> None:
    """What an append of a root does, by a program that checks nothing."""
    connection.execute(
        "INSERT INTO nodes (id, kind, key, depth, text, created) VALUES (?, 'task', ?, 0, 'new', 1.0)",
        (bytes([number]) * 16, f"new{number}"),
    )


def _after_append(query: str, value: Any) -> Callable[[Path], bool]:
    """Whether a query gives another value once nodes were written."""

    def effect(file: Path) -> bool:
        with raw(file) as connection:
            for number in range(2):
                _insert(connection, number)
            return bool(connection.execute(query).fetchone() != (value,))

    return effect


def _refuses(write: Callable[[sqlite3.Connection], object]) -> Callable[[Path], bool]:
    """Whether a good write is refused."""

    def effect(file: Path) -> bool:
        with raw(file) as connection:
            try:
                write(connection)
            except sqlite3.Error:
                return True
        return False

    return effect


def _endless(query: str) -> Callable[[Path], bool]:
    """Whether a query takes more steps than any of a small tree."""

    def effect(file: Path) -> bool:
        with raw(file) as connection:
            connection.set_progress_handler(lambda: 1, _ENDLESS)
            try:
                connection.execute(query).fetchone()
            except sqlite3.OperationalError as error:
                return error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT
        return False

    return effect


def _says(query: str, value: Any) -> Callable[[Path], bool]:
    """Whether a query gives a value that nobody wrote."""

    def effect(file: Path) -> bool:
        with raw(file) as connection:
            return bool(connection.execute(query).fetchone() == (value,))

    return effect


def _victim(file: Path) -> Path:
    victim = file.with_name("victim")
    victim.write_bytes(b"precious" * 1000)
    return victim


def _harmed(file: Path) -> bool:
    """Whether opening and writing changes a file that is no part of the tree."""
    victim = file.with_name("victim")
    before = victim.read_bytes()
    with contextlib.suppress(sqlite3.Error), raw(file) as connection:
        connection.execute("SELECT count(*) FROM nodes").fetchone()
        _insert(connection, 1)
    return not victim.exists() or victim.read_bytes() != before


def hot_journal(file: Path) -> None:
    """A rollback journal that names another file as the journal of a transaction over several databases."""
    victim = _victim(file)
    data = file.read_bytes()
    page = data[:_PAGE]
    total = sum(page[at] for at in range(_PAGE - 200, 0, -200))
    head = _JOURNAL + struct.pack(">IIIII", 1, 0, len(data) // _PAGE, 512, _PAGE)
    name = os.fsencode(victim.resolve())
    tail = (
        struct.pack(">I", 0x40000000 // _PAGE + 1)
        + name
        + struct.pack(">II", len(name), sum(name))
        + _JOURNAL
    )
    journal = head.ljust(512, b"\0") + struct.pack(">I", 1) + page + struct.pack(">I", total) + tail
    Path(f"{file}-journal").write_bytes(journal)


def _linked_wal(file: Path) -> None:
    os.link(_victim(file), f"{file}-wal")


def _waits(file: Path) -> bool:
    """Whether opening waits for somebody to write into a pipe."""

    def open_it() -> None:
        with contextlib.suppress(sqlite3.Error), raw(file) as connection:
            connection.execute("SELECT count(*) FROM nodes").fetchone()

    opening = threading.Thread(target=open_it)
    opening.start()
    while opening.is_alive():
        try:
            os.close(os.open(f"{file}-journal", os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # nobody waits for it yet
            time.sleep(0.01)
        else:
            opening.join()
            return True
    return False


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _second_name(file: Path) -> None:
    os.link(file, file.with_name("victim"))


def _both_written(file: Path) -> bool:
    before = file.with_name("victim").read_bytes()
    with raw(file) as connection:
        _insert(connection, 1)
    return file.with_name("victim").read_bytes() != before


def _wal_trigger(file: Path) -> None:
    """A trigger that is only in the journal beside the file, as after a crash."""
    other = file.with_name("maker")
    other.write_bytes(file.read_bytes())
    with raw(other) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(_DELETES)
        wal = Path(f"{other}-wal").read_bytes()
        data = other.read_bytes()
    for left in (other, Path(f"{other}-wal"), Path(f"{other}-shm")):
        left.unlink(missing_ok=True)
    file.write_bytes(data)
    Path(f"{file}-wal").write_bytes(wal)


def _shared_root(file: Path) -> None:
    """Two tables in one place: what is written to one is in the other."""
    with raw(file) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET rootpage = (SELECT rootpage FROM sqlite_master WHERE name = 'draws') "
            "WHERE name = 'scores'"
        )


def _loop(file: Path) -> None:
    """A list of tables whose pages lead to one another: 300 to the 4th entries, all the same."""
    endless_pages(file, 1, bytes([6, 23, 13, 13, 1, 13]) + b"index\1")  # an index that nothing is told of


def endless_pages(file: Path, top: int, record: bytes) -> None:
    """A table whose pages lead to one another: 300 to the 4th equal rows; ``top`` is its first page."""
    data = bytearray(file.read_bytes())
    first = len(data) // _PAGE + 1
    leaf = bytearray(_PAGE)
    leaf[:8] = struct.pack(">BHHHB", 13, 0, 1, _PAGE - 2 - len(record), 0)
    struct.pack_into(">H", leaf, 8, _PAGE - 2 - len(record))
    leaf[_PAGE - 2 - len(record) :] = bytes([len(record), 1]) + record

    def inner(children: list[int], start: int) -> bytes:
        page = bytearray(_PAGE)
        at = _PAGE
        cells = children[:-1]
        struct.pack_into(">BHHHB", page, start, 5, 0, len(cells), at - 5 * len(cells), 0)
        struct.pack_into(">I", page, start + 8, children[-1])
        for number, child in enumerate(cells):
            at -= 5
            struct.pack_into(">IB", page, at, child, 1)
            struct.pack_into(">H", page, start + 12 + 2 * number, at)
        return bytes(page)

    pages = [bytes(leaf), *(inner([first + level] * 300, 0) for level in range(3))]
    begin = (top - 1) * _PAGE
    head = 100 if top == 1 else 0
    data[begin + head : begin + _PAGE] = inner([first + 3] * 300, head)[head:]
    struct.pack_into(">I", data, 28, first + len(pages) - 1)
    file.write_bytes(data + b"".join(pages))


def _sparse(file: Path) -> None:
    """A file that says it has a thousand million pages, none of which is on the disk."""
    pages = 0x3FFF_FFFE
    with file.open("r+b") as out:
        out.seek(28)
        out.write(struct.pack(">I", pages))
        out.truncate(pages * _PAGE)


def _many(file: Path) -> None:
    with raw(file) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "INSERT INTO sqlite_master "
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 9000) "
            "SELECT 'view', 'v' || x, 'v' || x, 0, 'CREATE VIEW v' || x || ' AS SELECT 1' FROM n"
        )


def _long(file: Path) -> None:
    names = ", ".join(f"c{number}" for number in range(1900))
    comment = "-" * 3_000_000
    sql(f"CREATE TABLE t (x /*{comment}*/, {names})")(file)


def _as_version_1(file: Path) -> None:
    seals = [f"ALTER TABLE {table} DROP COLUMN seal" for table in SEALED]
    sql("ALTER TABLE scores DROP COLUMN reason", *seals, "PRAGMA user_version = 1", _DELETES)(file)


def _utf16(file: Path) -> None:
    with raw(file) as connection:
        script = "\n".join(connection.iterdump())
    file.unlink()
    with raw(file) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.executescript(script)
        connection.execute("PRAGMA application_id = 0x524D4659")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _grows(file: Path) -> bool:
    """Whether one small write makes hundreds of megabytes."""
    with raw(file) as connection:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000_000)
        try:
            _insert(connection, 1)
        except sqlite3.DataError:
            return True
    return False


_DELETES: Final = "CREATE TRIGGER tidy AFTER INSERT ON nodes BEGIN DELETE FROM nodes WHERE row = 5; END"
_COUNT: Final = "SELECT count(*) FROM nodes"


def hostile() -> tuple[Hostile, ...]:
    """All of them; two of a kind differ in what would have to see them."""
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
    return (
        Hostile("a trigger deletes a node on append", sql(_DELETES), _after_append(_COUNT, 7), "tidy"),
        Hostile(
            "a trigger raises every new score",
            sql(
                "CREATE TRIGGER praise AFTER INSERT ON nodes BEGIN UPDATE scores SET value = 9; END",
            ),
            _after_append("SELECT max(value) FROM scores", 3.0),
            "praise",
        ),
        Hostile("a trigger is only in the journal", _wal_trigger, _after_append(_COUNT, 7), "tidy"),
        Hostile(
            "a view without end stands for the nodes",
            sql(
                "ALTER TABLE nodes RENAME TO hidden",
                f"CREATE VIEW nodes AS {endless} x AS row, NULL AS id FROM n",
            ),
            _endless("SELECT max(row) FROM nodes"),
            "hidden|nodes",
        ),
        Hostile(
            "a view says that all scores are perfect",
            sql(
                "ALTER TABLE scores RENAME TO hidden",
                "CREATE VIEW scores AS SELECT row, node, name, producer, 1.0 AS value, array FROM hidden",
            ),
            _says("SELECT min(value) FROM scores", 1.0),
            "hidden|scores",
        ),
        Hostile(
            "new producers are born retired",
            redefined("producers", ('"retired_at" REAL', '"retired_at" REAL DEFAULT (julianday())')),
            _says(
                "SELECT dflt_value FROM pragma_table_info('producers') WHERE name = 'retired_at'",
                "julianday()",
            ),
            "producers",
        ),
        Hostile(
            "a check refuses what its writer does not like",
            redefined("nodes", ('"extra" TEXT', "\"extra\" TEXT CHECK (key NOT LIKE 'new%')")),
            _refuses(lambda connection: _insert(connection, 1)),
            "nodes",
        ),
        Hostile(
            "a computed column gives other reasons",
            redefined("scores", ('"reason" TEXT', "\"reason\" TEXT GENERATED ALWAYS AS ('flawless')")),
            _says("SELECT min(reason) FROM scores", "flawless"),
            "scores",
        ),
        Hostile(
            "a new node replaces the last of its kind",
            redefined(
                "nodes", ('"seal" BLOB', '"seal" BLOB, UNIQUE (kind, depth, text) ON CONFLICT REPLACE')
            ),
            _after_append(_COUNT, 7),
            "nodes",
        ),
        Hostile(
            "names of scores are equal in any case",
            redefined("scores", ('"name" TEXT NOT NULL', '"name" TEXT NOT NULL COLLATE NOCASE')),
            _says("SELECT count(*) FROM scores WHERE name = 'SUCCESS'", 4),
            "scores",
        ),
        Hostile(
            "an index computes hundreds of megabytes for each node",
            sql("CREATE INDEX wide ON nodes(hex(zeroblob(200000000 * (key LIKE 'new%'))))"),
            _grows,
            "wide",
        ),
        Hostile(
            "a unique index refuses the second of a kind",
            sql("CREATE UNIQUE INDEX one ON nodes(text) WHERE kind = 'task'"),
            _refuses(lambda connection: [_insert(connection, number) for number in range(2)]),
            "one",
        ),
        Hostile(
            "a virtual table runs a module",
            sql("DROP TABLE blobs", "CREATE VIRTUAL TABLE blobs USING fts5(row, digest, data)"),
            _says("SELECT count(*) FROM pragma_table_list WHERE name = 'blobs' AND type = 'virtual'", 1),
            "blobs",
        ),
        Hostile(
            "statistics lead every query astray",
            sql("ANALYZE", "UPDATE sqlite_stat1 SET stat = '9999999 9999999'"),
            _says("SELECT count(*) FROM sqlite_stat1 WHERE stat = '9999999 9999999'", 9),
            "sqlite_stat1",
        ),
        Hostile(
            "scores are written over draws",
            _shared_root,
            _says("SELECT (SELECT count(*) FROM draws) = (SELECT count(*) FROM scores NOT INDEXED)", 1),
            "one place",
        ),
        Hostile(
            "the list of tables has no end", _loop, _endless("SELECT count(*) FROM nodes"), "list of this"
        ),
        Hostile(
            "nine thousand views",
            _many,
            _says("SELECT count(*) > 9000 FROM sqlite_master", 1),
            "list of this",
        ),
        Hostile(
            "a definition of 3 MB",
            _long,
            _says("SELECT max(length(sql)) > 3000000 FROM sqlite_master", 1),
            "list of this",
        ),
        Hostile(
            "a tree of version 1 is migrated by a trigger", _as_version_1, _after_append(_COUNT, 7), "tidy"
        ),
        Hostile("texts are in UTF-16", _utf16, _says("PRAGMA encoding", "UTF-16le"), "UTF-16"),
        Hostile("a journal has another file deleted", hot_journal, _harmed, "-journal"),
        Hostile("a journal is another's file", _linked_wal, _harmed, "-wal has 2 names"),
        Hostile(
            "a journal is a pipe", lambda file: os.mkfifo(f"{file}-journal"), _waits, "-journal .*a pipe"
        ),
        Hostile("the tree is a pipe", _pipe, lambda file: file.is_fifo(), "a pipe"),
        Hostile("the tree is another's file", _second_name, _both_written, "tree.db has 2 names"),
    )
