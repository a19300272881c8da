"""The files of inspect_ai: the header of a log and its samples one at a time, packed or in JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias, final

from refork.errors import BadInput
from refork.formats.archive import Archive, open_zip
from refork.formats.rows import EVERY, elements
from refork.json_guard import DOCUMENT, parse_object
from refork.tree.records import Position, Remark
from refork.types import Json

#: What an archive begins with, and the first entry of one that inspect_ai writes.
PACKED: Final = b"PK\x03\x04"
START: Final = b"_journal/start.json"
_SAMPLES: Final = re.compile(rb'"samples"\s*:\s*\[')
_HEADER: Final = 64 << 20
#: A sample with its place, or why there is none, or how far the file is read.
Found: TypeAlias = tuple[str, Json | Remark | Position]


@final
@dataclass(frozen=True, slots=True)
class InspectLog:
    """An open log. ``remarks`` say what the file lost; ``samples`` are read as they are asked for."""

    header: Json
    samples: Iterator[Found]
    packed: bool
    remarks: tuple[Remark, ...] = ()


@contextmanager
def open_log(file: Path) -> Iterator[InspectLog]:
    """A log as inspect_ai writes it, whole, cut, or of a run that was killed.

    Raises:
        BadInput: neither an archive within the limits nor JSON. JSON without a list of samples is no error
            here; its header says what it is.
        MissingExtra: it is packed with Zstandard, and that package is not installed.
    """
    try:
        with file.open("rb") as opened:
            packed = opened.read(len(PACKED)) == PACKED
            if not packed:
                opened.seek(0)
                yield _listed(opened, file)
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(file)) from error
    if packed:
        with open_zip(file) as archive:
            yield InspectLog(_header(archive, file), _entries(archive, file), True, _remarks(archive, file))


def _remarks(archive: Archive, file: Path) -> tuple[Remark, ...]:
    if archive.cut:
        what = "what the archive lost: it was cut, and is read without its directory"
        return (Remark("lost", what, str(file)),)
    if not archive.has("header.json"):
        what = "results of the evaluation: the run ended before they were written"
        return (Remark("lost", what, str(file)),)
    return ()


def _header(archive: Archive, file: Path) -> Json:
    name = "header.json" if archive.has("header.json") else START.decode()
    return parse_object(archive.read(name), f"{file}: {name}", DOCUMENT) if archive.has(name) else {}


def _entries(archive: Archive, file: Path) -> Iterator[Found]:
    """The samples of an archive, in its order."""
    names = [name for name in archive.names if name.startswith("samples/") and name.endswith(".json")]
    done, told, total = 0, 0, sum(map(archive.size, names))
    for name in names:
        where = f"{file}: {name}"
        try:
            if archive.size(name) > DOCUMENT:
                raise BadInput(f"the sample has {archive.size(name):,} bytes", where=where)
            yield where, parse_object(archive.read(name), where, DOCUMENT)
        except BadInput as error:
            yield where, Remark("skipped", error.what, error.where)
            continue
        done += archive.size(name)
        if done - told >= EVERY:
            told = done
            yield where, Position(done, total)


def _listed(opened: IO[bytes], file: Path) -> InspectLog:
    """A log in JSON, its samples one at a time; one that was cut is read up to there."""
    head = opened.read(_HEADER)
    found = _SAMPLES.search(head)
    if found is None:
        # An evaluation without samples, or no evaluation at all.
        return InspectLog(parse_object(head, str(file), _HEADER), iter(()), False)
    header = parse_object(head[: found.start()] + b'"samples": []}', f"{file}, header", _HEADER)
    opened.seek(found.end() - 1)
    return InspectLog(header, _items(opened, file), False)


def _items(opened: IO[bytes], file: Path) -> Iterator[Found]:
    total, told = file.stat().st_size, 0
    for number, raw in enumerate(elements(opened), start=1):
        where = f"{file}, sample {number}"
        if raw is None:
            what = "the file ends within this sample, or the sample is too large"
            yield where, Remark("skipped", what, where)
            return
        try:
            yield where, parse_object(raw, where)
        except BadInput as error:
            yield where, Remark("skipped", error.what, error.where)
            continue
        if opened.tell() - told >= EVERY:
            told = opened.tell()
            yield where, Position(told, total)
