"""An append-only file of JSON lines in which every entry's digest covers the one before it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self, final

from refork.errors import DiskFull, Mismatch, TreeBusy
from refork.jsonl import json_objects
from refork.plain import canonical, content_hash, from_json, to_json
from refork.types import Json

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

    Without a file it lives in memory. ``noun`` is what messages call it. ``keep`` is how many of the newest
    entries stay in memory (None: all): with a file the others are read from there again, without one they
    are forgotten, and the journal's length still counts them.
    """

    def __init__(
        self,
        file: Path | None = None,
        clock: Callable[[], float] = time.time,
        *,
        noun: str = "journal",
        keep: int | None = None,
    ) -> None:
        self.file = file
        self._clock = clock
        self._noun = noun
        #: Bytes of an unfinished last line that a crash left; the next append takes their place.
        self.torn = 0
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._last: Entry | None = None
        self._size = 0
        if file is not None and file.exists():
            for entry in self._read(file):
                self._keep(entry)

    @classmethod
    def create(
        cls,
        file: Path,
        clock: Callable[[], float] = time.time,
        *,
        noun: str = "journal",
        keep: int | None = None,
    ) -> Self:
        """A new file, its folder made; raises Mismatch where there is one that says anything."""
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.open("x").close()
        except FileExistsError as error:
            if len(cls(file, noun=noun)):
                raise Mismatch(f"there is a {noun} here already", where=str(file), hint="open it") from error
        return cls(file, clock, noun=noun, keep=keep)

    def __iter__(self) -> Iterator[Entry]:
        if self.file is not None and len(self._entries) < len(self):
            return self._read(self.file, len(self))
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return 0 if self._last is None else self._last.n + 1

    @property
    def head(self) -> str:
        """Digest of the last entry: it stands for all of them."""
        return _BEGIN if self._last is None else self._last.id

    def append(self, kind: str, body: Json) -> Entry:
        """Write one entry; it is on the disk when this returns.

        Raises:
            TreeBusy: another process wrote to the file since it was read, or is writing.
            DiskFull: nothing was written.
            Mismatch: the file is gone.
        """
        # As it will be read back: a tuple, kept in memory, would differ from the list in the file.
        body = json.loads(canonical(body))
        last = 0.0 if self._last is None else self._last.time
        fields = (len(self), max(last, round(float(self._clock()), 6)), kind, body, self.head)
        entry = Entry(*fields, content_hash(list(fields)))
        if self.file is not None:
            self._write(self.file, canonical(to_json(entry)).encode() + b"\n")
        self._keep(entry)
        return entry

    def _keep(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._last = entry

    def _write(self, file: Path, line: bytes) -> None:
        if not file.exists():
            raise Mismatch(f"the {self._noun}'s file is gone", where=str(file))
        with file.open("r+b") as stream, _locked(stream, file, self._noun):
            stream.seek(self._size)
            # Asked under the lock: whole lines behind our end are another process's, and truncating would
            # lose them.
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
                # Taken back: a line that was written but not synced would count at the next reading, although
                # the caller is told that nothing was written.
                with contextlib.suppress(OSError):
                    stream.truncate(self._size)
                raise DiskFull(f"the {self._noun} could not be written: {error}", where=str(file)) from error
        self._size += len(line)
        self.torn = 0

    def _read(self, file: Path, most: int | None = None) -> Iterator[Entry]:
        """The entries of the file, checked one by one, ``most`` of them; all of them set size and rest."""
        n, prev = 0, _BEGIN
        with file.open("rb") as stream:
            # A damaged byte must not stop here: replaced, it fails the digest below, which names the place.
            lines = (line.decode("utf-8", errors="replace") for line in self._whole(stream, most is None))
            for place, fields in json_objects(lines, str(file)):
                entry = from_json(Entry, fields, place)
                expected = content_hash([entry.n, entry.time, entry.kind, entry.body, prev])
                if entry.n != n or entry.prev != prev or entry.id != expected:
                    raise Mismatch("this entry was changed, or one before it is missing", where=place,
                                   hint=f"restore the file: a {self._noun} is append-only")  # fmt: skip
                n, prev = n + 1, entry.id
                yield entry
                if n == most:
                    return

    def _whole(self, stream: IO[bytes], measure: bool) -> Iterator[bytes]:
        """The finished lines; an unfinished last one is what a crash left."""
        for line in stream:
            whole = line.endswith(b"\n")
            if measure:
                self._size += len(line) if whole else 0
                self.torn = 0 if whole else len(line)
            if not whole:
                return
            yield line


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
