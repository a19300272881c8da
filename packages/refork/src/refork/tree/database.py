"""What the tree's modules ask of a store: one SQL text, whichever database runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar

from refork.tree.address import is_address

Mode: TypeAlias = Literal["a", "r", "x"]
Row: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

#: What to do about a damaged tree.
RESTORE: Final = "restore a copy, or import its last export; `refork tree verify` lists what is damaged"
#: How many seconds a write waits for another writer.
BUSY_SECONDS: Final = 30.0


class Database(Protocol):
    """A store of one tree. Statements are SQLite's, with ``?`` for parameters; each read is one query.

    Rows are only ever added, so ``row <= ?`` with :meth:`now` means the rows that were there then, and a
    reader pages by row number without holding anything open.
    """

    mode: Mode
    #: The file, if the store is one.
    path: Path | None
    #: What opens it again, a path or an address; None in memory.
    uri: str | None
    #: What messages call it.
    where: str

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        ...

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> Row | None:
        """The first row of a query, or None."""
        ...

    def scalar(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        ...

    def lookup(self, sql: str, keys: Iterable[Any], before: Sequence[Any] = ()) -> Iterator[Row]:
        """Rows of a query over many keys; ``IN ({keys})`` stands for them, after other parameters."""
        ...

    def now(self, table: str = "nodes") -> Any:
        """The rows that a table has now, as the parameter of ``row <= ?``."""
        ...

    def numbers(self, count: int) -> Sequence[int]:
        """Row numbers for so many new nodes, larger than those of all nodes that were read before."""
        ...

    def write(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement for each row, inside a transaction; returns the number of rows it changed."""
        ...

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        """Insert whole rows that were not there when the transaction looked."""
        ...

    def commit(self, body: Callable[[], T]) -> T:
        """The body's writes, all or nothing, durable at return; it may run again, so it only writes here."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, durable once it ends, and no other writer meanwhile."""
        ...

    def snapshot(self) -> AbstractContextManager[Self]:
        """The store as it is now, whatever is written meanwhile."""
        ...

    def version(self) -> int:
        """The schema version."""
        ...

    def size(self) -> int:
        """Bytes that the tree takes."""
        ...

    def damage(self) -> Iterator[tuple[str, str]]:
        """What the database itself finds wrong with what it stores, and the likely cause."""
        ...

    def close(self) -> None:
        """Give the store back; further use is refused."""
        ...


def pages(
    db: Database, sql: str, size: int, before: Sequence[Any] = (), top: Sequence[Any] = ()
) -> Iterator[Row]:
    """Rows of a query that ends in ``row > ?``, perhaps a bound ``top``, and the order; a page at a time.

    The row's number is the last column. Nothing is held open between two pages, so no writer ever waits.
    """
    last: Any = 0
    while True:
        page = db.rows(f"{sql} LIMIT {size}", (*before, last, *top))
        yield from page
        if len(page) < size:
            return
        last = page[-1][-1]


def open_database(uri: str | os.PathLike[str], mode: Mode, wait: float) -> Database:
    """The store at a path or an address; see :meth:`refork.tree.Tree.open`."""
    if is_address(uri):
        from refork.tree.server import open_server

        return open_server(os.fspath(uri), mode, wait)
    from refork.tree.sqlite import open_file

    return open_file(uri, mode, wait)
