"""SQLite files that others may have made: a connection on which nothing of the file runs on its own.

A database holds SQL: triggers, views, defaults, expressions in indexes. What may be in it is checked by
whoever knows its tables; this is what holds for every file, whatever is in it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from refork.errors import NotATree

#: After how many steps of SQLite's machine Python looks for Ctrl-C: some milliseconds.
BREATH: Final = 100_000
#: The same while a file is checked, and how often: no list of our tables takes a hundredth of it.
_SHORT, _BREATHS = 1_000, 20
#: The longest definition, and the longest value, that is read while a file is checked, bytes.
_LONGEST: Final = 100_000
#: How long a rollback journal may be that of a writer at work, seconds.
_PATIENCE: Final = 1.0


def harden(connection: sqlite3.Connection) -> None:
    """Let no trigger run, no other file be attached, and no function that is not ours be called by a schema.

    Python 3.12 also has SQLite's own switches; before that no more than this can be set, and a caller that
    writes compares the schema.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
    connection.execute("PRAGMA cell_size_check = ON")
    connection.set_progress_handler(_breathe, BREATH)


def _breathe() -> int:
    """Nothing: that Python runs at all lets it see Ctrl-C, and then SQLite says that it was interrupted."""
    return 0


def was_interrupted(error: BaseException) -> bool:
    """Whether a statement ended because a signal's handler raised, as that of Ctrl-C does."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def real_tables(connection: sqlite3.Connection) -> list[str]:
    """The names of a database's tables: no views, whatever they are listed as, and no virtual tables."""
    return [row[1] for row in connection.execute("PRAGMA table_list") if row[2] == "table"]


@contextlib.contextmanager
def bounded(connection: sqlite3.Connection, where: str) -> Iterator[None]:
    """A time in which statements take few steps and read short values, as those on a list of tables do.

    Raises:
        NotATree: they would take more.
    """
    spent = 0

    def count() -> int:
        nonlocal spent
        spent += 1
        return int(spent > _BREATHS)

    limits = (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH)
    before = [connection.setlimit(limit, _LONGEST) for limit in limits]
    connection.set_progress_handler(count, _SHORT)
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        # Ctrl-C interrupts with the same code: the count tells which of the two it was.
        if code == sqlite3.SQLITE_TOOBIG or (code == sqlite3.SQLITE_INTERRUPT and spent > _BREATHS):
            raise NotATree(
                "the list of this database's tables is longer than that of any tree; it was not read",
                where=where,
                hint="check where the file is from",
            ) from error
        raise
    finally:
        connection.set_progress_handler(_breathe, BREATH)
        for limit, value in zip(limits, before, strict=True):
            connection.setlimit(limit, value)


def check_place(path: Path, *, write: bool) -> None:
    """Refuse what SQLite would follow, wait for, or delete before anything of a file can be checked.

    A rollback journal is played back on opening, and names a file that is then deleted: no program has asked
    for it. A journal that is a link makes SQLite write over what it points to; a pipe makes it wait for ever.

    Raises:
        NotATree: it or a file beside it is no plain file; a rollback journal lies beside it; or it is to be
            written and has several names, and so several journals.
    """
    file = path.resolve()
    for suffix in ("", "-wal", "-shm", "-journal"):
        one = Path(f"{file}{suffix}")
        try:
            found = one.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise NotATree(
                f"this is not a tree file: it is {_kind(found.st_mode)}"
                if not suffix
                else f"{one.name} beside it is {_kind(found.st_mode)}, not a file; nothing was opened",
                where=str(path),
                hint="check where it is from" if suffix else "check the path",
            )
        if found.st_nlink > 1 and (suffix or write):
            raise NotATree(
                f"{one.name} has {found.st_nlink} names (hard links); SQLite keeps a journal for each, and "
                "what is written by one is lost to the others",
                where=str(path),
                hint="copy the file, and use the copy",
            )
    journal = Path(f"{file}-journal")
    until = time.monotonic() + _PATIENCE
    while _holds_something(journal):
        if time.monotonic() > until:
            raise NotATree(
                f"{journal.name} lies beside it, a journal that no tree has: opening would change the file, "
                "and may delete another that the journal names; nothing was opened",
                where=str(path),
                hint="delete the journal, unless the file is yours and was written by another program",
            )
        time.sleep(0.02)


def _holds_something(path: Path) -> bool:
    try:
        return path.lstat().st_size > 0
    except FileNotFoundError:
        return False


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no plain file")
