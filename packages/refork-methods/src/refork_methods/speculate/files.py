"""Files written whole or not at all; small JSON ones read."""

from __future__ import annotations

import json
from pathlib import Path

from refork.errors import BadInput, DiskFull
from refork.types import Json


def write_json(path: Path, data: Json) -> None:
    """Write one JSON object; a crash leaves the old file or the new one. Raises DiskFull."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, as :func:`write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file, its folder made; a crash leaves the old file or the new one.

    Raises:
        DiskFull: the place cannot be written to.
    """
    # Beside the file: only within one file system is a rename a single step.
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
        part.replace(path)
    except OSError as error:
        raise DiskFull(f"this file could not be written: {error.strerror}", where=str(path)) from error


def read_json(path: Path) -> Json:
    """The JSON object of a file.

    Raises:
        BadInput: no such file, or no JSON object in it.
    """
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"this is not JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise BadInput("this is not a JSON object", where=str(path))
    return data
