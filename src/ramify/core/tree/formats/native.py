"""Ramify's own JSONL: one record a line, everything a tree holds, ids included."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any, Final, final

import numpy as np

from ramify.core.errors import BadInput, TreeVersion
from ramify.core.policy.base import Cost
from ramify.core.policy.noise import NoiseKey
from ramify.core.tree.codec import FLOATS, INTS
from ramify.core.tree.formats.base import Blob, Head, Record, shaped
from ramify.core.tree.node import Draft, Node
from ramify.core.tree.schema import VERSION
from ramify.core.tree.score import DrawRecord, ForkRecord, Producer, Score
from ramify.core.tree.scoring import Retired
from ramify.core.types import Json

_MARK: Final = "ramify"
_NAMES: Final[dict[type, str]] = {
    Blob: "blob",
    Producer: "producer",
    Node: "node",
    ForkRecord: "fork",
    DrawRecord: "draw",
    Score: "score",
    Retired: "retired",
}


def _number(value: float) -> float | str:
    """A number, or the name of an infinity, which JSON has no number for."""
    return value if math.isfinite(value) else str(value)


def _numbers(array: Any) -> list[Any]:
    values = array.tolist()
    return values if np.isfinite(array).all() else [_number(value) for value in values]


def plain_node(node: Node) -> Json:
    """The known fields of a node as plain JSON data, arrays as lists."""
    out: Json = {}
    for field in fields(Node):
        value = getattr(node, field.name)
        if value is None or (field.name == "extra" and not value):
            continue
        if field.name in INTS or field.name in FLOATS:
            value = _numbers(value)
        elif field.name in ("noise", "cost"):
            value = value.to_json()
        out[field.name] = value
    return out


def _body(record: Record) -> Json:
    if isinstance(record, Node):
        return plain_node(record)
    if isinstance(record, Draft):
        raise BadInput("a draft has no id yet; append it first")
    if isinstance(record, Blob):
        return {"data": base64.b64encode(record.data).decode()}
    body = asdict(record)
    if isinstance(record, Score):
        value = record.value
        body["value"] = _numbers(value) if isinstance(value, np.ndarray) else _number(value)
    return body


def _read_node(body: Json) -> Node:
    for name in INTS:
        body[name] = np.array(body[name], dtype=np.int32) if name in body else None
    for name in FLOATS:
        # "inf" and "-inf" are strings here; float reads them.
        body[name] = np.array([float(v) for v in body[name]], np.float32) if name in body else None
    body["noise"] = NoiseKey.from_json(body["noise"]) if "noise" in body else None
    body["cost"] = Cost(**body.get("cost", {}))
    body.setdefault("extra", {})
    for field in fields(Node):
        body.setdefault(field.name, None)
    return Node(**body)


def _read_score(body: Json) -> Score:
    value = body["value"]
    body["value"] = np.array([float(v) for v in value]) if isinstance(value, list) else float(value)
    return Score(**body)


def _read_producer(body: Json) -> Producer:
    return Producer(**body | {"reads": tuple(body["reads"])})


_READ: Final[dict[str, Callable[[Json], Record]]] = {
    "blob": lambda body: Blob(base64.b64decode(body["data"], validate=True)),
    "producer": _read_producer,
    "node": _read_node,
    "fork": lambda body: ForkRecord(**body),
    "draw": lambda body: DrawRecord(**body),
    "score": _read_score,
    "retired": lambda body: Retired(**body),
}


@final
class Native:
    """Reads and writes the lossless format; importing an export gives the same tree."""

    name = "native"

    def sniff(self, head: Head) -> bool:
        """Whether the first line is our mark."""
        return isinstance(head.first, dict) and _MARK in head.first

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a line for every record; returns how many."""
        out.write(json.dumps({_MARK: "tree", "version": VERSION}) + "\n")
        count = 0
        for record in records:
            if type(record) not in _NAMES:
                raise BadInput(f"a {type(record).__name__} has no place in an export")
            line = {"record": _NAMES[type(record)]} | _body(record)
            out.write(json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n")
            count += 1
        return count

    def read(self, path: Path) -> Iterator[Record]:
        """The records of an export.

        Raises:
            TreeVersion: written by a newer version.
            BadInput: a line that is not a record; it names the line.
        """
        yield from shaped(self._records(path), str(path), "Ramify")

    def _records(self, path: Path) -> Iterator[Record]:
        with path.open(encoding="utf-8") as lines:
            self._check_mark(lines.readline(), path)
            for number, line in enumerate(lines, start=2):
                if not line.strip():
                    continue
                try:
                    body = json.loads(line)
                    record = _READ[body.pop("record")](body)
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise BadInput(
                        f"this line is not a record: {error!r}",
                        where=f"{path}:{number}",
                        hint="was the file cut or edited? export it again",
                    ) from error
                yield record

    def _check_mark(self, line: str, path: Path) -> None:
        if not self.sniff(Head(line.encode())):
            raise BadInput("this is not an export of a tree", where=f"{path}:1")
        version = json.loads(line).get("version")
        if not isinstance(version, int) or version > VERSION:
            raise TreeVersion(
                f"the export has version {version}; this build reads up to {VERSION}",
                where=str(path),
                hint="install a newer ramify",
            )
