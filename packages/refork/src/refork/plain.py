"""Values as plain JSON: the one text of a value, its digest, and dataclasses there and back."""

from __future__ import annotations

import hashlib
import json
import math
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from refork.errors import BadInput

T = TypeVar("T")


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no spaces; NaN and infinities are refused."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"this is not plain JSON: {error}") from error


def content_hash(value: Any) -> str:
    """Digest of a value's canonical JSON, 32 hex digits."""
    return hashlib.blake2b(canonical(value).encode(), digest_size=16).hexdigest()


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """The reader and writer of a type; to build one takes a thousand times longer than to use it."""
    return TypeAdapter(kind)


def to_json(value: Any) -> Any:
    """A dataclass as plain JSON data, infinities as text ("Infinity"); :func:`from_json` reads it back."""
    kind: Any = type(value)
    return finite(_adapter(kind).dump_python(value, mode="json"))


def finite(value: Any) -> Any:
    """Plain data with infinities as texts: JSON has none, and an open end is not None."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    if isinstance(value, float) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def from_json(kind: type[T], data: Any, where: str | None = None) -> T:
    """A dataclass from plain JSON data; raises BadInput naming the first field that does not fit."""
    try:
        known: Any = kind
        found: T = _adapter(known).validate_python(data)
        return found
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise BadInput(f"{kind.__name__} {place}: {first['msg']}", where=where) from error
