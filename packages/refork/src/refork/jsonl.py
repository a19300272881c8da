"""Files of text, and JSON lines: one object per line, and errors that name the line."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

from refork.errors import BadInput
from refork.types import Json


def read_utf8(file: Path) -> str:
    """A file's text.

    Raises:
        BadInput: it cannot be read, or is no UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"the file is no text in UTF-8: {error}", where=str(file)) from error


def write_whole(file: Path, text: str) -> None:
    """Write a file whole or not at all: whoever reads it meanwhile sees the old one or the new one."""
    # A name of its own, for two may write the file at one time.
    part = file.with_name(f"{file.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def json_objects(lines: Iterable[str], where: str) -> Iterator[tuple[str, Json]]:
    """The objects of JSON lines with the place of each, ``WHERE:LINE``; empty lines are passed over.

    Raises:
        BadInput: a line that is not JSON, or not an object.
    """
    for number, line in _numbered(lines, where):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"this line is not JSON: {error}", where=place) from error
        if not isinstance(body, dict):
            raise BadInput("this line is not a JSON object", where=place)
        yield place, body


def _numbered(lines: Iterable[str], where: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; of a file that is no UTF-8 nothing from there on."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, line
    except UnicodeDecodeError as error:
        raise BadInput(f"this is not UTF-8: {error.reason}", where=f"{where}, after line {number}") from error
