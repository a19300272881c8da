"""Nodes and drafts as plain JSON, so that a worker anywhere gets and gives exactly what was meant."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Collection
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree.node import NewNode, Node
from refork.tree.score import Producer, Score
from refork.types import Json

_ARRAYS: Final = ("tokens", "offsets", "logprobs", "logprobs_t1", "ref_logprobs", "entropy")

R = TypeVar("R", NewNode, Node)


def pack_bytes(data: bytes) -> str:
    """Bytes as text."""
    return base64.b64encode(data).decode("ascii")


def unpack_bytes(text: str) -> bytes:
    """Inverse of :func:`pack_bytes`."""
    return base64.b64decode(text, validate=True)


def pack_array(values: Any) -> list[Any]:
    """An array as its type, shape and bytes: not a bit is lost."""
    # An array may be a view of another one, whose bytes lie apart.
    array = np.ascontiguousarray(values)
    return [array.dtype.str, list(array.shape), pack_bytes(array.tobytes())]


def unpack_array(packed: list[Any]) -> NDArray[Any]:
    """Inverse of :func:`pack_array`; the array cannot be written to."""
    kind, shape, data = packed
    return np.frombuffer(unpack_bytes(data), dtype=np.dtype(kind)).reshape(shape)


def pack(record: NewNode | Node, without: Collection[str] = ()) -> Json:
    """The known fields of a draft or node but those named."""
    out: Json = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value is None or field.name in without:
            continue
        if field.name in _ARRAYS:
            value = pack_array(value)
        elif field.name in ("noise", "cost"):
            value = value.to_json()
        elif isinstance(value, bytes):
            value = pack_bytes(value)
        out[field.name] = value
    return out


def unpack(kind: type[R], data: Json) -> R:
    """Inverse of :func:`pack`; fields that were left out are None."""
    values: Json = {field.name: None for field in dataclasses.fields(kind)} | data
    for name in _ARRAYS:
        values[name] = None if values[name] is None else unpack_array(values[name])
    values["noise"] = None if values["noise"] is None else NoiseKey.from_json(values["noise"])
    values["cost"] = Cost(**(values["cost"] or {}))
    values["extra"] = values["extra"] or {}
    if kind is NewNode and values["snapshot"] is not None:
        values["snapshot"] = unpack_bytes(values["snapshot"])
    return kind(**values)


def pack_score(score: Score) -> Json:
    """A score of one value or of one per token."""
    value = pack_array(score.value) if isinstance(score.value, np.ndarray) else score.value
    return dataclasses.asdict(score) | {"value": value}


def unpack_score(data: Json) -> Score:
    """Inverse of :func:`pack_score`."""
    value = data["value"]
    return Score(**data | {"value": unpack_array(value) if isinstance(value, list) else value})


def unpack_producer(data: Json) -> Producer:
    """A producer that was written by ``dataclasses.asdict``."""
    return Producer(**data | {"reads": tuple(data["reads"])})
