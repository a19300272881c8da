"""Refork's own JSONL: one record a line, everything a tree holds, ids included."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any, Final, final

import numpy as np

from refork.errors import BadInput, TreeVersion
from refork.formats.base import Head, shaped
from refork.json_guard import shallow
from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.settings import present_mark
from refork.tree.codec import FLOATS, INTS
from refork.tree.node import NewNode, Node
from refork.tree.records import Blob, Record
from refork.tree.score import DrawRecord, ForkRecord, Producer, Score
from refork.tree.scoring import Retired
from refork.types import Json

_MARK: Final = "refork"
#: Of the export alone: a stored field that is no part of a record, such as a seal, changes nothing here.
_VERSION: Final = 2
#: Levels of JSON in a record; what a tree was given may nest deeper than what is read of strangers.
_DEPTH: Final = 600
#: What a field of a record may be, by its annotation.
_PLAIN: Final[dict[str, type]] = {
    **dict.fromkeys(("str", "NodeKind", "Origin", "Finish"), str),
    **dict.fromkeys(("Json", "Message"), dict),
    "int": int,
    "float": float,
    "None": type(None),
}
#: Places that a tree keeps as whole numbers; seeds and streams may be larger.
_BOUNDED: Final = frozenset({"keep", "token", "draw"})
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
    if isinstance(record, NewNode):
        raise BadInput("a draft has no id yet; append it first")
    if isinstance(record, Blob):
        return {"data": base64.b64encode(record.data).decode()}
    body = asdict(record)
    if isinstance(record, Score):
        value = record.value
        body["value"] = _numbers(value) if isinstance(value, np.ndarray) else _number(value)
    return body


def _plain_fields(kind: type) -> tuple[tuple[str, tuple[type, ...]], ...]:
    """The fields of a record that are plain values, with what they may be; arrays check themselves."""
    # Annotations are texts here, as they are not evaluated in the modules of the records.
    found = [
        (field.name, [_PLAIN.get(part) for part in str(field.type).split(" | ")]) for field in fields(kind)
    ]
    return tuple((name, tuple(filter(None, kinds))) for name, kinds in found if None not in kinds)


_FIELDS: Final = {kind: _plain_fields(kind) for kind in (*_NAMES, Cost)}


def _checked(record: Any) -> Any:
    """A record whose plain fields are of the kinds that it says; TypeError with the first that is not.

    ValueError where a whole number is beyond 64 bits, which no tree holds; noise is kept as decimal text.
    """
    for name, kinds in _FIELDS[type(record)]:
        value = getattr(record, name)
        # A truth value is a whole number to Python.
        if type(value) is int and (float in kinds or name in _BOUNDED):
            if not -(2**63) <= value < 2**63:
                raise ValueError(f"{name} is {str(value)[:40]}")
        elif type(value) not in kinds:
            raise TypeError(f"{name} is {value!r}"[:200])
    return record


def _read_node(body: Json) -> Node:
    for name in INTS:
        body[name] = np.array(body[name], dtype=np.int32) if name in body else None
    for name in FLOATS:
        # "inf" and "-inf" are strings here; float reads them.
        body[name] = np.array([float(v) for v in body[name]], np.float32) if name in body else None
    body["noise"] = NoiseKey.from_json(body["noise"]) if "noise" in body else None
    body["cost"] = _checked(Cost(**body.get("cost", {})))
    body.setdefault("extra", {})
    for field in fields(Node):
        body.setdefault(field.name, None)
    node: Node = _checked(Node(**body))
    bytes.fromhex(node.snapshot or "")
    return node


def _read_score(body: Json) -> Score:
    value = body["value"]
    body["value"] = np.array([float(v) for v in value]) if isinstance(value, list) else float(value)
    score: Score = _checked(Score(**body))
    return score


def _read_producer(body: Json) -> Producer:
    reads = tuple(body["reads"])
    if not all(isinstance(one, str) for one in reads):
        raise TypeError("reads holds something that is no id")
    producer: Producer = _checked(Producer(**body | {"reads": reads}))
    return producer


_READ: Final[dict[str, Callable[[Json], Record]]] = {
    "blob": lambda body: Blob(base64.b64decode(body["data"], validate=True)),
    "producer": _read_producer,
    "node": _read_node,
    "fork": lambda body: _checked(ForkRecord(**body)),
    "draw": lambda body: _checked(DrawRecord(**body)),
    "score": _read_score,
    "retired": lambda body: _checked(Retired(**body)),
}


@final
class Native:
    """Reads and writes the lossless format; importing an export gives the same tree."""

    name = "native"
    order = 10

    def sniff(self, head: Head) -> bool:
        """Whether the first line is our mark."""
        return isinstance(head.first, dict) and any(present_mark(name) == _MARK for name in head.first)

    def write(self, records: Iterable[Record], out: IO[str]) -> int:
        """Write a line for every record; returns how many."""
        out.write(json.dumps({_MARK: "tree", "version": _VERSION}) + "\n")
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
        yield from shaped(self._records(path), str(path), "Refork")

    def _records(self, path: Path) -> Iterator[Record]:
        with path.open("rb") as lines:
            self._check_mark(lines.readline(), path)
            for number, line in enumerate(lines, start=2):
                if not line.strip():
                    continue
                shallow(line, f"{path}:{number}", _DEPTH)
                try:
                    body = json.loads(line.decode("utf-8"))
                    record = _READ[body.pop("record")](body)
                except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError) as error:
                    raise BadInput(
                        f"this line is not a record: {error!r}",
                        where=f"{path}:{number}",
                        hint="was the file cut or edited? export it again",
                    ) from error
                yield record

    def _check_mark(self, line: bytes, path: Path) -> None:
        head = Head(line)
        if not self.sniff(head):
            raise BadInput("this is not an export of a tree", where=f"{path}:1")
        version = head.first.get("version")
        if type(version) is not int:
            raise BadInput("the export does not say its version", where=f"{path}:1")
        if version > _VERSION:
            raise TreeVersion(
                f"the export has version {version}; this build reads up to {_VERSION}",
                where=str(path),
                hint="read it with the newer version that wrote it",
            )
