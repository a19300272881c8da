"""Outcome tables as files: CSV, JSON lines or Parquet, told apart by the ending.

Columns are ``query, worker, reward`` and, where known, ``cost, latency, repeat, weight, text``, ``features``
(in CSV one column per number: ``f0, f1, ...``). An empty cell is unknown, not 0.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput, MissingExtra
from refork.jsonl import json_objects
from refork.types import Json
from refork_methods.route.table import Outcome, OutcomeTable

_COLUMNS = ("query", "worker", "reward", "cost", "latency", "repeat", "weight", "text")


def read_table(
    path: Path, *, workers: Sequence[str] | None = None, low: float = 0.0, high: float = 1.0
) -> OutcomeTable:
    """The outcome table of a ``.csv``, ``.jsonl`` or ``.parquet`` file.

    Raises: BadInput for another ending, a missing or unknown column, a value that is no number, or what
    :class:`OutcomeTable` refuses; MissingExtra for Parquet without pyarrow.
    """
    if not path.exists():
        raise BadInput("there is no such file", where=str(path))
    reader = _pick(path, _READERS)
    try:
        return OutcomeTable.of(
            (_outcome(place, body) for place, body in reader(path)), workers=workers, low=low, high=high
        )
    except UnicodeDecodeError as error:
        raise BadInput(f"this file is not UTF-8 text: {error}", where=str(path)) from error


def write_table(table: OutcomeTable, path: Path) -> None:
    """Write a table whole or not at all. Raises: as :func:`read_table`."""
    writer = _pick(path, _WRITERS)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer(part, table)
    part.replace(path)


def read_shares(path: Path, table: OutcomeTable) -> Float[np.ndarray, "queries workers"]:
    """A router's probabilities for the queries of a table: CSV with ``query`` and one column per worker.

    Raises: BadInput for a column that is no worker, a worker or query without one, a query twice, or a number
    that is no probability.
    """
    place = {name: i for i, name in enumerate(table.queries)}
    found = np.full((len(table.queries), len(table.workers)), np.nan)
    for where, row in _read_csv(path):
        if set(row) != {"query", *table.workers}:
            raise BadInput(f"the columns must be query and {', '.join(table.workers)}", where=str(path))
        query = row["query"]
        if query in place:
            if not np.isnan(found[place[query]]).all():
                raise BadInput(f"query {query!r} is there twice", where=where)
            found[place[query]] = [_need(row[name], name, where) for name in table.workers]
    missing = np.flatnonzero(np.isnan(found).any(axis=1))
    if missing.size:
        raise BadInput(f"query {table.queries[missing[0]]!r} has no probabilities", where=str(path))
    return found


def _pick(path: Path, known: Mapping[str, Any]) -> Any:
    if path.suffix not in known:
        raise BadInput(
            f"{path.suffix or 'no ending'} is not a kind of table", where=str(path), hint=", ".join(known)
        )
    return known[path.suffix]


def _outcome(place: str, body: Mapping[str, Any]) -> Outcome:
    features = body.get("features")
    numbered = sorted((k for k in body if k[:1] == "f" and k[1:].isdigit()), key=lambda k: int(k[1:]))
    unknown = sorted(set(body) - {*_COLUMNS, "features", *numbered})
    if unknown:
        known = ", ".join((*_COLUMNS, "features"))
        raise BadInput(f"unknown column {unknown[0]!r}", where=place, hint=f"columns: {known}")
    for name in ("query", "worker", "reward"):
        if body.get(name) in (None, ""):
            raise BadInput(f"{name} is missing", where=place, hint="leave out rows that were not graded")
    if numbered and any(body[k] not in (None, "") for k in numbered):
        features = [body[k] for k in numbered]
    repeat = _number(body.get("repeat"), "repeat", place)
    if repeat is not None and not (repeat.is_integer() and abs(repeat) < 1 << 53):
        raise BadInput(f"repeat is {repeat}; it must be a whole number", where=place)
    text = body.get("text")
    return Outcome(
        str(body["query"]),
        str(body["worker"]),
        _need(body["reward"], "reward", place),
        cost=_number(body.get("cost"), "cost", place),
        latency=_number(body.get("latency"), "latency", place),
        repeat=int(repeat or 0),
        text=None if text in (None, "") else str(text),
        features=None if features is None else tuple(_need(f, "a feature", place) for f in features),
        weight=_number(body.get("weight"), "weight", place),
    )


def _number(value: Any, name: str, place: str) -> float | None:
    if value is None or value == "":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number) or isinstance(value, bool):
        raise BadInput(f"{name} is {value!r}; it must be a number", where=place, hint="empty where unknown")
    return number


def _need(value: Any, name: str, place: str) -> float:
    number = _number(value, name, place)
    if number is None:
        raise BadInput(f"{name} is missing", where=place)
    return number


def _read_csv(path: Path) -> Iterator[tuple[str, Json]]:
    if not path.exists():
        raise BadInput("there is no such file", where=str(path))
    with path.open(encoding="utf-8-sig", newline="") as stream:  # spreadsheets write a byte order mark
        reader = csv.DictReader(stream)
        names = reader.fieldnames or []
        if len(set(names)) < len(names):
            raise BadInput("two columns have one name", where=f"{path}:1")
        for row in reader:
            if None in row or None in row.values():
                raise BadInput("this row has not one cell for each column", where=f"{path}:{reader.line_num}")
            yield f"{path}:{reader.line_num}", row


def _write_csv(path: Path, table: OutcomeTable) -> None:
    width = 0 if table.features is None else table.features.shape[1]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*_COLUMNS, *(f"f{i}" for i in range(width))])
        for row in table.rows():
            body = asdict(row)
            writer.writerow([*(body[name] for name in _COLUMNS), *(row.features or ())])


def _read_jsonl(path: Path) -> Iterator[tuple[str, Json]]:
    with path.open(encoding="utf-8-sig") as stream:
        yield from json_objects(stream, str(path))


def _write_jsonl(path: Path, table: OutcomeTable) -> None:
    with path.open("w", encoding="utf-8") as stream:
        for row in table.rows():
            body = {name: value for name, value in asdict(row).items() if value is not None}
            stream.write(json.dumps(body, ensure_ascii=False) + "\n")


def _read_parquet(path: Path) -> Iterator[tuple[str, Json]]:
    parquet = _parquet()
    try:
        rows = parquet.read_table(path).to_pylist()
    except Exception as error:  # pyarrow's own errors share no base that it documents
        raise BadInput(f"this is no Parquet file: {error}", where=str(path)) from error
    for number, row in enumerate(rows, 1):
        yield f"{path}:{number}", row


def _write_parquet(path: Path, table: OutcomeTable) -> None:
    parquet = _parquet()
    import pyarrow

    rows = [asdict(row) for row in table.rows()]
    kinds = {
        "query": pyarrow.string(),
        "worker": pyarrow.string(),
        "repeat": pyarrow.int64(),
        "text": pyarrow.string(),
        "features": pyarrow.list_(pyarrow.float64()),
    }
    names = (*_COLUMNS, "features")
    schema = pyarrow.schema([(name, kinds.get(name, pyarrow.float64())) for name in names])
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "export") from error
    return pyarrow.parquet


_READERS: dict[str, Callable[[Path], Iterable[tuple[str, Json]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
_WRITERS: dict[str, Callable[[Path, OutcomeTable], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
