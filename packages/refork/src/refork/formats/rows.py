"""Items of a file one at a time: JSON lines, an array, or one document; bad ones are skipped and told."""

from __future__ import annotations

import codecs
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, Final, TypeAlias, final

from refork.errors import BadInput
from refork.formats.base import Head, whole
from refork.json_guard import LINE, document, encoding_of, parse_json, parse_object
from refork.plain import content_hash
from refork.tree.records import Position, Record, Remark
from refork.types import Json

#: Makes records of an item: its object, its name (content digest / how often it came before), its place.
Item: TypeAlias = Callable[[Json, str, str], Iterator[Record]]
#: Takes a document apart into its items.
Unpack: TypeAlias = Callable[[Any, str], Iterable[Any]]

#: Bytes between two positions.
EVERY: Final = 4 << 20
_CHUNK: Final = 1 << 20
#: What tells where a value ends: whole texts, a text that does not end, brackets and commas.
#: Possessive, so that a text without an end is given up at once and not tried again from all its places.
_TOKENS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{},]', re.DOTALL)
_BETWEEN: Final = re.compile(rb"[ \t\r\n,]*+")
#: Names that :class:`Occurrences` keeps in a dictionary.
_FEW: Final = 20_000
#: Bytes that are looked at before a file without one whole object is given up as JSON lines.
_LOOK: Final = 1 << 20


@final
class Occurrences:
    """How often each name was counted before; in a database, where they are many."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._few: dict[str, int] = {}

    def count(self, name: str) -> int:
        """How often this name came before."""
        if self._db is None:
            known = self._few.get(name, -1) + 1
            self._few[name] = known
            if len(self._few) > _FEW:
                self._db = self._spilled()
            return known
        sql = "INSERT INTO seen VALUES (?, 0) ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count"
        return int(self._db.execute(sql, (bytes.fromhex(name),)).fetchone()[0])

    def close(self) -> None:
        """Give the storage back."""
        if self._db is not None:
            self._db.close()

    def _spilled(self) -> sqlite3.Connection:
        """A database of what was counted so far."""
        # The empty name is a database of its own: in memory up to the cache's size, gone when closed.
        db = sqlite3.connect("", isolation_level=None)
        db.execute("PRAGMA cache_size = -8192")
        db.execute("CREATE TABLE seen (name BLOB PRIMARY KEY, count INTEGER) WITHOUT ROWID")
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO seen VALUES (?, ?)", ((bytes.fromhex(k), n) for k, n in self._few.items())
        )
        db.execute("COMMIT")
        self._few.clear()
        return db


def read_items(path: Path, name: str, item: Item, unpack: Unpack | None = None) -> Iterator[Record]:
    """Records of every item of a file of the format ``name``.

    A file is JSON lines, an array of objects, or one document, which ``unpack`` takes apart (default: it is
    one item). An item that cannot be read is skipped whole with a remark, and the next one follows.

    Raises:
        BadInput: the file is no text in UTF-8, or a document beyond the limits.
    """
    with closing(Occurrences()) as seen:
        for where, body in objects(path, unpack):
            if isinstance(body, (Remark, Position)):
                yield body
                continue
            digest = content_hash(body)
            yield from whole(item(body, f"{digest}/{seen.count(digest)}", where), where, name)


def begins(head: Head, has: Callable[[frozenset[str]], bool], marks: Iterable[Collection[str]]) -> bool:
    """Whether a file begins with a row that ``has`` takes by its keys, or if it is cut by a mark."""
    if isinstance(head.first, dict):
        return has(frozenset(head.first))
    start = head.text.lstrip()
    return start.startswith("{") and any(all(f'"{key}"' in start for key in keys) for keys in marks)


def objects(path: Path, unpack: Unpack | None = None) -> Iterator[tuple[str, Json | Remark | Position]]:
    """The objects of a file with their places; remarks where one is missing, positions in between."""
    try:
        with path.open("rb") as file:
            total = path.stat().st_size
            kind = _kind(file, path)
            if kind == "lines":
                yield from _lines(file, path, total)
            elif kind == "array":
                yield from _array(file, path, total)
            else:
                yield from _documented(path, unpack)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error


def _kind(file: IO[bytes], path: Path) -> str:
    """``lines``, ``array`` or ``document``; the file stands at its first byte of text afterwards."""
    head = file.read(_LOOK)
    start = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    text = head[start:].lstrip()
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) or b"\0" in head[:64]:
        raise BadInput(
            f"this is {encoding_of(head)}, not UTF-8", where=str(path), hint="iconv -t UTF-8 converts it"
        )
    file.seek(start)
    if text.startswith(b"["):
        return "array"
    first = text.partition(b"\n")[0]
    # A first line that is longer than what was looked at.
    if _whole(first) or (len(first) == len(text) and len(head) == _LOOK):
        return "lines"
    # A first line that is damaged makes no document of a file of lines.
    return "lines" if any(map(_whole, text.split(b"\n")[1:])) else "document"


def _whole(line: bytes) -> bool:
    """Whether a line is an object by itself; one that is indented belongs to a document."""
    line = line.rstrip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return False
    try:
        return isinstance(parse_json(line, ""), dict)
    except BadInput:
        return False


def _lines(file: IO[bytes], path: Path, total: int) -> Iterator[tuple[str, Json | Remark | Position]]:
    told, number = file.tell(), 0
    # One byte more than is read, which tells a line beyond the limit from one that just reaches it.
    while line := file.readline(LINE + 1):
        number += 1
        where = f"{path}:{number}"
        if len(line) > LINE:
            yield where, Remark("skipped", f"the line has more than {LINE:,} bytes", where)
            while line and not line.endswith(b"\n"):
                line = file.readline(_CHUNK)
            continue
        if line.strip():
            try:
                yield where, parse_object(line, where)
            except BadInput as error:
                last = file.tell() >= total and not line.endswith(b"\n")
                cut = "the file ends within this line" if last else error.what
                yield where, Remark("skipped", cut, where)
        if file.tell() - told >= EVERY:
            told = file.tell()
            yield where, Position(told, total)


def _array(file: IO[bytes], path: Path, total: int) -> Iterator[tuple[str, Json | Remark | Position]]:
    """The elements of an array, whatever its length: each is parsed alone."""
    told = 0
    for number, element in enumerate(elements(file), start=1):
        where = f"{path}, item {number}"
        if element is None:
            yield where, Remark("skipped", "the file ends within this item, or the item is too large", where)
            return
        try:
            yield where, parse_object(element, where)
        except BadInput as error:
            yield where, Remark("skipped", error.what, where)
        if file.tell() - told >= EVERY:
            told = file.tell()
            yield where, Position(told, total)
    while rest := file.read(_CHUNK):
        if rest.strip():
            yield str(path), Remark("skipped", "what follows the end of the array", str(path))
            return


def elements(file: IO[bytes]) -> Iterator[bytes | None]:
    """The texts of the elements of an array that begins here; None, as the last, where one does not end.

    The file stands behind the array's bracket afterwards.
    """
    held, at = file.read(_CHUNK).lstrip(), 1
    while True:
        if (between := _BETWEEN.match(held, at)) is not None:
            at = between.end()
        if held.startswith(b"]", at):
            file.seek(at + 1 - len(held), os.SEEK_CUR)
            return
        end = _end(held, at)
        if end is not None and end > at:
            yield held[at:end]
            at = end
            continue
        # Twice as much each time, so that a long element is not looked through too often.
        left = len(held) - at
        more = file.read(max(_CHUNK, left)) if end is None and left <= LINE else b""
        if not more:
            yield None
            return
        held, at = held[at:] + more, 0


def _end(held: bytes, at: int) -> int | None:
    """Where the value that begins at a place of a text ends; None where it does not."""
    depth = 0
    for token in _TOKENS.finditer(held, at):
        sign = token[0]
        if sign == b'"':
            return None  # a text without its end
        if sign in b"[{":
            depth += 1
        elif sign in b"]}":
            depth -= 1
            if depth <= 0:
                # Below 0 the bracket is that of the array around, and ends a number or a word before it.
                return token.end() if depth == 0 else token.start()
        elif sign == b"," and depth == 0:
            return token.start()
    return None


def _documented(path: Path, unpack: Unpack | None) -> Iterator[tuple[str, Json | Remark]]:
    body = document(path)
    found = [body] if unpack is None else list(unpack(body, str(path)))
    for number, one in enumerate(found, start=1):
        where = str(path) if len(found) == 1 else f"{path}, item {number}"
        yield where, one if isinstance(one, dict) else Remark("skipped", "this is not a JSON object", where)
