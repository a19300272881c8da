"""The user's error for each of a PostgreSQL server's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from refork.errors import BadInput, DiskFull, NotATree, TreeBusy, TreeError, UserError

if TYPE_CHECKING:
    import psycopg

# https://www.postgresql.org/docs/current/errcodes-appendix.html
# A key that is there already (23505) is a race too: the other writer committed after this one had looked.
_RACED: Final = frozenset({"40001", "40P01", "23505"})
_FULL: Final = frozenset({"53100", "58030"})
_DAMAGED: Final = frozenset({"XX001", "XX002", "58P01"})
_REMOVED: Final = frozenset({"42P01", "3F000"})
_REFUSED: Final = frozenset({"22021", "22P05", "22003", "54000"})
_TAKEN_BACK: Final = "nothing of this write was recorded, all before it is safe"


@final
class Raced(TreeBusy):
    """Another writer was first; the same writes can be tried again."""


@final
class Gone(TreeError):
    """The connection to the server broke."""


def translate(error: psycopg.Error, where: str) -> UserError:
    """The user's error for one of psycopg's, once there is a connection."""
    import psycopg

    state = error.sqlstate or ""
    said = _line(error)
    if state in _RACED:
        return Raced("another writer was first again and again", where=where, hint="try again")
    if state == "55P03":
        return TreeBusy(
            "another writer has held this tree for too long, perhaps an import",
            where=where,
            hint="wait for it to end, or open the tree with a longer wait",
        )
    if state in _FULL:
        return DiskFull(
            f"the server's storage refused a write: {said}; {_TAKEN_BACK}",
            where=where,
            hint="free some space on the server, then run the same command again",
        )
    if state == "42501":
        return TreeError(
            f"the server forbids this: {said}",
            where=where,
            hint="ask its owner for the rights that docs/shared-store.md lists",
        )
    if state == "25006":
        return TreeError("the server takes no writes; it may be a standby", where=where)
    if state in _DAMAGED:
        return NotATree(f"the server's files are damaged: {said}", where=where, hint="restore a backup")
    if state in _REMOVED:
        return NotATree(f"this tree was removed, or is not one of ours: {said}", where=where)
    if state in _REFUSED or (not state and isinstance(error, psycopg.DataError)):
        return BadInput(
            f"PostgreSQL cannot store this: {said}",
            where=where,
            hint="a tree in a file takes any text, U+0000 included",
        )
    if state.startswith(("08", "57P", "25P03")) or (
        isinstance(error, psycopg.OperationalError) and not state
    ):
        return Gone(
            f"the server went away: {said}; what was committed is safe",
            where=where,
            hint="once it is back, run the same command again",
        )
    return TreeError(f"the server refused: {said}", where=where)


def unreachable(error: psycopg.OperationalError, where: str) -> TreeError:
    """The user's error where no connection came about."""
    connection = error.pgconn
    if connection is not None and connection.needs_password:
        hint = "put the password into ~/.pgpass or PGPASSWORD, where libpq looks for it"
    elif connection is not None and connection.used_password:
        hint = "check the user's name, and the password in ~/.pgpass or PGPASSWORD"
    else:
        hint = "check host, port, user and database, and that the server runs"
    return TreeError(f"the server gives no connection: {_line(error)}", where=where, hint=hint)


@contextlib.contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise psycopg's errors as the user's."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise translate(error, where) from error
    except UnicodeEncodeError as error:
        raise BadInput(f"a text is not valid Unicode: {error}", where=where) from error


def _line(error: Exception) -> str:
    """The first line that says something."""
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
