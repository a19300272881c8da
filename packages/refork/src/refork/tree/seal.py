"""The digest that each row holds of its own fields, so that damage to any of them is seen."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final

from refork.tree.database import Row
from refork.tree.schema import FIELDS, TABLES, columns

#: Tables whose rows have a seal. A blob's row holds the digest of its data, which is the same.
SEALED: Final = tuple(table for table in TABLES if "seal" in columns(table))
_BYTES: Final = 16
_PAGE: Final = 1000
#: The layout that is hashed, the oldest that holds floats as they are: each value's kind, length and bytes.
#: Later ones mark what is interned or shared in this process, so equal rows could give other bytes.
_LAYOUT: Final = 2
_PLAIN: Final = frozenset({int, float, str, bytes, type(None)})


@cache
def covered(table: str) -> tuple[str, ...]:
    """The columns that a row's seal is of, in order.

    Numbers that the database gives out are not among them; an index that disagrees with them shows.
    """
    left_out = ("seal",) if table == "nodes" else ("seal", "row")
    return tuple(name for name in columns(table) if name not in left_out)


def seal(table: str, values: Sequence[Any]) -> bytes:
    """The seal of a row, 16 bytes; ``values`` are those of its :func:`covered` columns."""
    plain = [
        None if value is None else kind(value) for kind, value in zip(_kinds(table), values, strict=True)
    ]
    return hashlib.blake2b(marshal.dumps(plain, _LAYOUT), digest_size=_BYTES).digest()


def sealed(table: str, values: Sequence[Any]) -> tuple[Any, ...]:
    """The values of a row's :func:`covered` columns, and its seal."""
    return (*values, seal(table, values))


def seal_node(row: list[Any]) -> None:
    """Add its seal to a whole row of a node; :func:`seal`, for the many rows of an append."""
    # No bool either: its bytes are not those of the 1 that the database gives back.
    if _PLAIN.issuperset(map(type, row)):
        row.append(hashlib.blake2b(marshal.dumps(row, _LAYOUT), digest_size=_BYTES).digest())
    else:  # such as a string of numpy's
        row.append(seal("nodes", row))


def _real(value: float) -> float:
    """A number as a column of reals gives it back: SQLite has no negative zero there."""
    return float(value) + 0.0


def _text(value: str) -> str:
    """A string without what its class adds."""
    # ``str(value)`` would ask the class how it wants to be printed.
    return value if type(value) is str else str.__getitem__(value, slice(None))


@cache
def _kinds(table: str) -> tuple[Callable[[Any], Any], ...]:
    kinds: dict[str, Callable[[Any], Any]] = {"INTEGER": int, "REAL": _real, "TEXT": _text, "BLOB": bytes}
    sql = {field.name: field.sql.split()[0] for field in FIELDS if field.table == table}
    return tuple(kinds[sql[name]] for name in covered(table))


def rows_of(read: Callable[[str, tuple[Any, ...]], list[Row]], table: str) -> Iterator[Row]:
    """Each row of a table: its key, the values of its :func:`covered` columns, and its seal."""
    key = "key" if table == "meta" else "row"
    names = ", ".join(f'"{name}"' for name in covered(table))
    sql = f"SELECT {key}, {names}, seal FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT {_PAGE}"
    # The row numbers of a damaged file may be below 1, and their seals are looked at too.
    last: Any = "" if table == "meta" else -(2**63)
    while page := read(sql, (last,)):
        yield from page
        last = page[-1][0]


def reseal(
    read: Callable[[str, tuple[Any, ...]], list[Row]], write: Callable[[str, list[Row]], object]
) -> None:
    """Seal every row of a tree, inside the open transaction, as it is brought to a newer version."""
    for table in SEALED:
        key = "key" if table == "meta" else "row"
        marks = ((seal(table, values), at) for at, *values, _ in rows_of(read, table))
        while some := list(islice(marks, _PAGE)):
            write(f"UPDATE {table} SET seal = ? WHERE {key} = ?", some)
