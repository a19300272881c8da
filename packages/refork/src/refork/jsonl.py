"""Files of text, and JSON lines: one object per line, and errors that name the line."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from refork.errors import BadInput
from refork.types import Json

#: What to do with a file of another tool.
LOGS: Final = "`refork tree import NEW.db FILE` makes a tree of a log, for the commands that read trees"
#: What a file is by its first bytes, and what to do with it.
_BEGINNINGS: Final = {
    b"SQLite format 3\0": (
        "a database, as trees are",
        "a tree is for the commands that read trees; see --help",
    ),
    b"PK": ("an archive, as logs of inspect_ai are", LOGS),
    b"PAR1": ("a Parquet file", LOGS),
    b"\x1f\x8b": ("a file packed by gzip", "unpack it"),
}


def read_utf8(file: Path) -> str:
    """A file's text; a byte order mark, which some editors write, is no part of it.

    Raises:
        BadInput: it cannot be read, or is no UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    except UnicodeDecodeError as error:
        raise no_text(error, str(file)) from error


def no_text(error: UnicodeDecodeError, where: str) -> BadInput:
    """What to say of a file that is no text: what it is, where its first bytes tell, and what reads it."""
    for begin, (kind, hint) in _BEGINNINGS.items():
        if error.object.startswith(begin):
            return BadInput(f"this is {kind}, and not text", where=where, hint=hint)
    return BadInput(f"this is no text in UTF-8: {error.reason}", where=where)


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
    first = True
    for number, line in _numbered(lines, where):
        if not line.strip():
            continue
        place = f"{where}:{number}"
        try:
            body = json.loads(line)
        except (ValueError, RecursionError) as error:
            if first and _goes_on(line, error):
                what = "this is one JSON document, not a JSON object a line"
                raise BadInput(what, where=where, hint=LOGS) from error
            raise BadInput(f"this line is not JSON: {error}", where=place) from error
        if not isinstance(body, dict):
            hint = LOGS if first and isinstance(body, list) else None
            raise BadInput("this line is not a JSON object", where=place, hint=hint)
        first = False
        yield place, body


def _goes_on(line: str, error: Exception) -> bool:
    """Whether a line is the beginning of a JSON document that goes on in the next."""
    ends = isinstance(error, json.JSONDecodeError) and error.pos >= len(line.rstrip())
    return ends and line.lstrip()[0] in "{["


def _numbered(lines: Iterable[str], where: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers; of a file that is no UTF-8 nothing from there on."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            yield number, line
    except UnicodeDecodeError as error:
        if number == 0:
            raise no_text(error, where) from error
        raise BadInput(f"this is not UTF-8: {error.reason}", where=f"{where}, after line {number}") from error
