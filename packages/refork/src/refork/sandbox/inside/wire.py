"""Frames on a pipe: four bytes of length, then that many bytes of JSON."""

from __future__ import annotations

import json
import os
import struct
from typing import Any

HEAD = struct.Struct(">I")


def pack(body: dict[str, Any]) -> bytes:
    """One frame.

    Raises:
        TypeError, ValueError: a value that is not JSON (NaN and infinities included).
    """
    data = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    return HEAD.pack(len(data)) + data


def unpack(data: bytes) -> Any:
    """The JSON of a frame's bytes; NaN and infinities are refused.

    Raises:
        ValueError: it is not JSON, or nested too deep to read.
    """
    try:
        return json.loads(data, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def write(fd: int, frame: bytes) -> None:
    """Write all of a frame, blocking."""
    view = memoryview(frame)
    while view:
        view = view[os.write(fd, view) :]


def read(fd: int) -> Any:
    """The next frame, blocking.

    Raises:
        EOFError: the other side closed.
    """
    (length,) = HEAD.unpack(_exactly(fd, HEAD.size))
    return unpack(_exactly(fd, length))


def _exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 16))
        if not part:
            raise EOFError("the other side closed the pipe")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
