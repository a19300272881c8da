"""JSON of strangers, read within limits: depth, length, digits, encodings.

What Python reads and a tree cannot hold is made plain on the way: NaN is None (not known), infinities are
the texts "Infinity" and "-Infinity", and half a surrogate pair is U+FFFD.
"""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from refork.errors import BadInput

#: Bytes of one line or item, bytes of one document, and how deep values may nest.
LINE, DOCUMENT, DEPTH = 64 << 20, 256 << 20, 200
#: A whole number of more digits is no quantity of anything; SQLite and JSON readers elsewhere break on it.
DIGITS: Final = 400

_STEPS: Final = np.zeros(256, dtype=np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1
_LONG: Final = re.compile(rb"\d{%d}" % (DIGITS + 1))
#: What may be beyond the largest float: three digits of an exponent, or so many digits that two are enough.
_VAST: Final = re.compile(rb"\d[eE]\+?\d{3}|\d{200}")
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_HALVES: Final = re.compile("[\ud800-\udfff]")
_UNICODE: Final = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def parse_json(data: bytes, where: str, largest: int = LINE) -> Any:
    """The value of one JSON text.

    Raises:
        BadInput: no JSON, not UTF-8, too large, nested too deep, or a number of too many digits.
    """
    if len(data) > largest:
        raise BadInput(
            f"{len(data):,} bytes of JSON are more than the {largest:,} that are read", where=where
        )
    shallow(data, where)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"this is {encoding_of(data)}, not UTF-8: {error.reason}", where=where) from error
    if len(data) > DIGITS and (long := _LONG.search(data)) and _is_number(data, long.start()):
        raise BadInput(f"a number has more than {DIGITS} digits", where=where)
    parse_float = _finite if _VAST.search(data) else None
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=parse_float)
    except json.JSONDecodeError as error:
        raise BadInput(f"this is not JSON: {error.msg}", where=f"{where}, character {error.pos}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not JSON: {error}", where=where) from error
    return _mended(value) if _HALF.search(data) else value


def parse_object(data: bytes, where: str, largest: int = LINE) -> dict[str, Any]:
    """As :func:`parse_json`; BadInput too where the value is no object."""
    body = parse_json(data, where, largest)
    if not isinstance(body, dict):
        raise BadInput("this is not a JSON object", where=where)
    return body


def document(path: Path, largest: int = DOCUMENT) -> Any:
    """The value of a file that is one JSON document, within limits.

    Raises:
        BadInput: what :func:`parse_json` raises, or the file cannot be read.
    """
    try:
        size = path.stat().st_size
        if size > largest:
            raise BadInput(
                f"the document has {size:,} bytes, more than the {largest:,} that are read as one",
                where=str(path),
                hint="write one item a line (JSON lines): those may be of any length together",
            )
        return parse_json(path.read_bytes().removeprefix(codecs.BOM_UTF8), str(path), largest)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error


def encoding_of(data: bytes) -> str:
    """A guess at what bytes that are no UTF-8 are, for a message."""
    named = _UNICODE.get(data[:2])
    if named is None and data[:64].count(0) > len(data[:64]) // 4:
        named = "UTF-16 or binary"
    return named or "of another encoding"


def shallow(data: bytes, where: str, depth: int = DEPTH) -> None:
    """Refuse deep nesting before a recursive reader meets it; brackets in texts are none.

    Raises:
        BadInput: values nest deeper than ``depth``.
    """
    if data.count(b"[") + data.count(b"{") <= depth:
        return
    # A bracket counts where an even number of quotes stands before it; an escaped quote is none.
    bare = _ESCAPE.sub(b"", data) if b"\\" in data else data
    codes = np.frombuffer(bare, np.uint8)
    steps = _STEPS[codes]
    steps[np.logical_xor.accumulate(codes == ord('"'))] = 0
    if len(steps) and int(steps.cumsum(dtype=np.int32).max()) > depth:
        raise BadInput(f"the JSON nests deeper than {depth} levels", where=where)


def _is_number(data: bytes, at: int) -> bool:
    """Whether digits at a place are a number and not part of a text: an even number of quotes before them."""
    before = _ESCAPE.sub(b"", data[:at])
    return before.count(b'"') % 2 == 0


def _constant(name: str) -> str | None:
    return None if name == "NaN" else name


def _finite(text: str) -> float | str:
    value = float(text)
    return value if abs(value) != float("inf") else ("Infinity" if value > 0 else "-Infinity")


def _mended(value: Any) -> Any:
    """A value without halves of surrogate pairs, which no UTF-8 file can hold."""
    if isinstance(value, str):
        return _HALVES.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(one) for key, one in value.items()}
    return value
