"""An append-only file of JSON lines in which every entry's digest covers the one before it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, final

from ramify.core.errors import DiskFull, Mismatch, TreeBusy
from ramify.core.jsonl import json_objects
from ramify.core.plain import canonical, content_hash, from_json, to_json
from ramify.core.types import Json

_BEGIN = "0" * 32


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: its number from 0, when (seconds since 1970, never falling), what, and the digests."""

    n: int
    time: float
    kind: str
    body: Json
    prev: str
    id: str


@final
class Journal:
    """Entries in order. Appending is one durable write; a line that a crash cut short never counted.

    Without a file it lives in memory. ``noun`` is what messages call it.
    """

    def __init__(
        self, file: Path | None = None, clock: Callable[[], float] = time.time, *, noun: str = "journal"
    ) -> None:
        self.file = file
        self._clock = clock
        self._noun = noun
        #: Bytes of an unfinished last line that a crash left; the next append takes their place.
        self.torn = 0
        self._entries: list[Entry] = []
        self._size = 0
        if file is not None and file.exists():
            self._read(file.read_bytes())

    @classmethod
    def create(cls, file: Path, clock: Callable[[], float] = time.time, *, noun: str = "journal") -> Self:
        """A new file, its folder made; raises Mismatch where there is one that says anything."""
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.open("x").close()
        except FileExistsError as error:
            if len(cls(file, noun=noun)):
                raise Mismatch(f"there is a {noun} here already", where=str(file), hint="open it") from error
        return cls(file, clock, noun=noun)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def head(self) -> str:
        """Digest of the last entry: it stands for all of them."""
        return self._entries[-1].id if self._entries else _BEGIN

    def append(self, kind: str, body: Json) -> Entry:
        """Write one entry; it is on the disk when this returns.

        Raises:
            TreeBusy: another process wrote to the file since it was read, or is writing.
            DiskFull: nothing was written.
            Mismatch: the file is gone.
        """
        body = json.loads(canonical(body))
        last = self._entries[-1].time if self._entries else 0.0
        fields = (len(self._entries), max(last, round(float(self._clock()), 6)), kind, body, self.head)
        entry = Entry(*fields, content_hash(list(fields)))
        if self.file is not None:
            self._write(self.file, canonical(to_json(entry)).encode() + b"\n")
        self._entries.append(entry)
        return entry

    def _write(self, file: Path, line: bytes) -> None:
        if not file.exists():
            raise Mismatch(f"the {self._noun}'s file is gone", where=str(file))
        with file.open("r+b") as stream, _locked(stream, file, self._noun):
            stream.seek(self._size)
            if b"\n" in stream.read():
                raise TreeBusy(
                    f"another process wrote to this {self._noun}", where=str(file), hint="open it again"
                )
            try:
                stream.seek(self._size)
                stream.truncate()  # what a crash left of an unfinished line
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError as error:
                with contextlib.suppress(OSError):
                    stream.truncate(self._size)
                raise DiskFull(f"the {self._noun} could not be written: {error}", where=str(file)) from error
        self._size += len(line)
        self.torn = 0

    def _read(self, data: bytes) -> None:
        self._size = data.rfind(b"\n") + 1
        self.torn = len(data) - self._size
        lines = data[: self._size].decode("utf-8", errors="replace").split("\n")
        for place, fields in json_objects(lines, str(self.file)):
            entry = from_json(Entry, fields, place)
            expected = content_hash([entry.n, entry.time, entry.kind, entry.body, self.head])
            if entry.n != len(self._entries) or entry.prev != self.head or entry.id != expected:
                raise Mismatch("this entry was changed, or one before it is missing", where=place,
                               hint=f"restore the file: a {self._noun} is append-only")  # fmt: skip
            self._entries.append(entry)


@contextlib.contextmanager
def _locked(stream: IO[bytes], file: Path, noun: str) -> Iterator[None]:
    """The file to ourselves, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise TreeBusy(f"another process is writing to this {noun}", where=str(file)) from error
    try:
        yield
    finally:
        fcntl.flock(stream, fcntl.LOCK_UN)
