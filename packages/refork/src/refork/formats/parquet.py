"""Parquet files of rows, read a row group at a time and written a batch at a time.

A Parquet file says at its end what it holds, so its format is told from its columns once it is opened.
"""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Final, Protocol, final, runtime_checkable

from refork.errors import BadInput, MissingExtra
from refork.formats.base import Head, whole
from refork.formats.rows import Item, Occurrences, Unpack, objects, read_items
from refork.plain import content_hash
from refork.policies.base import Policy
from refork.tree.records import Position, Record, Remark
from refork.types import Json

MAGIC: Final = b"PAR1"
_ROWS: Final = 256
_WRITTEN: Final = 1000


@runtime_checkable
class RowFormat(Protocol):
    """A format of rows: lines of JSON, or rows of Parquet."""

    @property
    def name(self) -> str:
        """What ``--format`` takes."""
        ...

    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are of this format."""
        ...

    def read(self, path: Path) -> Iterator[Record]:
        """Records of every row, whatever kind of file they lie in."""
        ...


@final
class Parquet:
    """Reads Parquet files of the formats whose items are rows, told apart by their columns."""

    name = "parquet"
    order = 65

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    def sniff(self, head: Head) -> bool:
        """Whether the file begins as Parquet does."""
        return head.data.startswith(MAGIC)

    def read(self, path: Path) -> Iterator[Record]:
        """Records of every row.

        Raises:
            BadInput: no Parquet, or columns of no format that is known.
            MissingExtra: pyarrow is not installed.
        """
        from refork.formats import readers

        columns = parquet_columns(path)
        formats = [one for one in readers(self._policy) if isinstance(one, RowFormat)]
        for one in formats:
            if one.has(columns):
                yield from one.read(path)
                return
        raise BadInput(
            "the columns are of no format that is known: " + ", ".join(sorted(columns))[:200],
            where=str(path),
            hint="formats of rows: " + ", ".join(one.name for one in formats),
        )


def row_items(path: Path, name: str, item: Item) -> Iterator[Record]:
    """Records of the rows of a file, Parquet or JSON; as :func:`refork.formats.rows.read_items`."""
    if is_parquet(path):
        yield from parquet_items(path, name, item)
    else:
        yield from read_items(path, name, item)


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does."""
    return not path.is_dir() and Head.of(path).data.startswith(MAGIC)


def parquet_items(path: Path, name: str, item: Item) -> Iterator[Record]:
    """Records of every row of a Parquet file, a row group at a time; a damaged one is skipped with a remark.

    Raises:
        BadInput: no Parquet, or cut: its end says where everything is.
        MissingExtra: pyarrow is not installed.
    """
    with closing(Occurrences()) as seen:
        for where, row in parquet_rows(path):
            if isinstance(row, (Remark, Position)):
                yield row
                continue
            body = plain_row(row)
            digest = content_hash(body)
            # The row is named by the texts of its decimals, and its scores are read from numbers.
            body |= {key: _number(one) for key, one in row.items() if isinstance(one, Decimal)}
            yield from whole(item(body, f"{digest}/{seen.count(digest)}", where), where, name)


def parquet_rows(path: Path) -> Iterator[tuple[str, Json | Remark | Position]]:
    """The rows of a file with their places, as pyarrow has them; raises as :func:`parquet_items`."""
    with path.open("rb") as source:
        file = _opened(source, path)
        total, number = path.stat().st_size, 0
        for group in range(file.num_row_groups):
            before = number
            try:
                for row in _group(file, group):
                    number += 1
                    yield f"{path}, row {number}", row
            except _faults() as error:
                said, where = str(error).partition("\n")[0][:120], f"{path}, row {number + 1}"
                left = file.metadata.row_group(group).num_rows - (number - before)
                yield where, Remark("skipped", f"damaged rows: {said}", where, max(1, left))
                # Rows behind the damage keep the numbers that they have in the file.
                number = before + file.metadata.row_group(group).num_rows
            yield str(path), Position(total * (group + 1) // file.num_row_groups, total)


def row_objects(path: Path, unpack: Unpack | None = None) -> Iterator[tuple[str, Json | Remark | Position]]:
    """The objects of a file, Parquet or JSON; as :func:`refork.formats.rows.objects`."""
    if not is_parquet(path):
        yield from objects(path, unpack)
        return
    for where, row in parquet_rows(path):
        yield where, row if isinstance(row, (Remark, Position)) else plain_row(row)


def parquet_columns(path: Path) -> frozenset[str]:
    """The names of a file's columns; raises as :func:`parquet_items`."""
    with path.open("rb") as source:
        return frozenset(_opened(source, path).schema_arrow.names)


def write_rows(rows: Iterable[Json], out: IO[bytes], schema: Any) -> int:
    """Write rows as Parquet, a batch at a time; how many."""
    pa, pq = _pyarrow()
    count = 0
    stream = iter(rows)
    with pq.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(stream, _WRITTEN)):
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def plain_row(row: Json) -> Json:
    """A row as plain JSON data: NaN is None; infinities, dates, decimals are texts, bytes base64; no None."""
    return {str(key): _plain(value) for key, value in row.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        known = "Infinity" if value > 0 else "-Infinity"
        return value if math.isfinite(value) else (None if math.isnan(value) else known)
    if isinstance(value, dict):
        # Parquet gives every object of a column all keys of any of them; one without a value was not there.
        return {str(key): _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return value.isoformat() if isinstance(value, (datetime.date, datetime.time)) else str(value)


def _number(value: Decimal) -> float | str:
    """A decimal as a float where that prints as the same number, else as it was written."""
    made = float(value)
    return made if math.isfinite(made) and Decimal(repr(made)) == value else str(value)


def _group(file: Any, group: int) -> Iterator[Json]:
    batches = file.iter_batches(batch_size=_ROWS, row_groups=[group])
    return chain.from_iterable(batch.to_pylist() for batch in batches)


def _opened(source: IO[bytes], path: Path) -> Any:
    _, pq = _pyarrow()
    try:
        return pq.ParquetFile(source)
    except _faults() as error:
        raise BadInput(
            f"this is no whole Parquet file: {error}"[:200].partition("\n")[0],
            where=str(path),
            hint="a Parquet file that was cut cannot be read; copy it again",
        ) from error


def arrow() -> Any:
    """The package pyarrow; MissingExtra where it is not installed."""
    return _pyarrow()[0]


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export") from error
    return pyarrow, pyarrow.parquet


def _faults() -> tuple[type[Exception], ...]:
    pa, _ = _pyarrow()
    return (pa.lib.ArrowException, OSError, UnicodeDecodeError)
