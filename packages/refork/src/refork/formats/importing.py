"""Importing a file of any size: committed in parts, so that one that was stopped goes on where it was.

Beside the tree lies a small file while an import is under way: how many bytes of the source are in the tree,
and how often each item came before. It is removed when the import is done, and not believed where the source,
the tree or the way of reading is another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, Self, final

from refork.errors import BadInput, DiskFull, InternalError, TreeBusy
from refork.foreign_sqlite import harden, names_another, real_tables
from refork.formats import folder_files
from refork.formats.base import ItemReader, Reader
from refork.formats.parquet import is_parquet
from refork.formats.redact import Redactor, redacted
from refork.formats.rows import CREATE_SEEN, Occurrences, Start, read_items
from refork.interrupt import Interrupt
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.tree.load import Loaded, Noted
from refork.tree.node import NewNode
from refork.tree.records import Position, Record, Remark
from refork.tree.tree import Tree

_STAGE: Final = "import (MB)"
_PRINT: Final = 65536


def import_file(
    tree: Tree,
    path: Path,
    reader: Reader,
    *,
    strict: bool = False,
    redactor: Redactor | None = None,
    progress: Progress = silent,
) -> Loaded:
    """Read a file into a tree; items that cannot be read are skipped and counted, what was read stays.

    Where ``strict``, and for our own exports, the first bad item is an error and nothing is written.
    ``redactor`` takes secrets out of what is read; None keeps them.

    Raises:
        BadInput: nothing of the file can be read, or where ``strict`` an item.
        KeyboardInterrupt: Ctrl-C; what was committed stays, and the same import goes on from there.
    """
    if strict or reader.name == "native":
        with tree.transaction():
            return tree.loader(strict=strict).load(_watched(_records(path, reader, redactor, None), progress))
    with contextlib.ExitStack() as stack:
        point = stack.enter_context(Checkpoint.open(tree, path, _way(reader, redactor)))
        stop = stack.enter_context(Interrupt())
        loader = tree.loader(strict=False, result=point.loaded)
        parts = loader.parts(_records(path, reader, redactor, point))
        while True:
            with tree.transaction():
                at = next(parts, None)
            if at is None:
                break
            if at.line and isinstance(reader, ItemReader):
                point.save(at, loader.result)
            _tell(at, progress)
            if stop.asked:
                raise KeyboardInterrupt
        with tree.transaction():
            found = loader.finish()
        point.done()
        return found


def import_folder(
    tree: Tree,
    folder: Path,
    name: str | None = None,
    policy: Policy | None = None,
    *,
    strict: bool = False,
    redactor: Redactor | None = None,
    progress: Progress = silent,
) -> Loaded:
    """Read every file of a folder into a tree, by its own format or by the named one.

    A file without a format, or of which nothing can be read, is skipped with the reason, and the next one
    follows. Where ``strict``, the first that is skipped is an error and nothing is written. ``policy``
    tokenises texts. ``Loaded.files`` counts the files that were read, by format. The tree's own file may lie
    among them.

    Raises:
        BadInput: no such format, no file can be read, or where ``strict`` one of them.
        KeyboardInterrupt: Ctrl-C; the same import goes on from there.
    """
    own = {Path(f"{tree.file.resolve()}{end}") for end in ("", "-wal", "-shm")} if tree.file else set[Path]()
    listed = (
        (path, reader)
        for path, reader in folder_files(folder, name, policy, redactor)
        if path.resolve() not in own
    )
    if strict:
        return _strictly(tree, list(listed), redactor, progress)
    whole = Loaded()
    for path, reader in listed:
        try:
            if isinstance(reader, str):
                raise BadInput(reader, where=str(path))
            found = import_file(tree, path, reader, redactor=redactor, progress=progress)
        except BadInput as error:
            whole.note(Remark("skipped", error.what, error.where or str(path)))
            continue
        assert not isinstance(reader, str)
        whole.files[reader.name] = whole.files.get(reader.name, 0) + 1
        whole.add(found)
    if not whole.files:
        skipped = next(iter(whole.remarks), None)
        what = "the folder has no files" if skipped is None else skipped.what
        where = next(iter(skipped.places), None) if skipped is not None else None
        raise BadInput(what, where=where, hint="nothing was imported")
    whole.remarks.sort(key=lambda noted: (noted.kind != "skipped", -noted.count))
    return whole


def _strictly(
    tree: Tree, files: Sequence[tuple[Path, Reader | str]], redactor: Redactor | None, progress: Progress
) -> Loaded:
    """All files in one transaction."""
    for path, reader in files:
        if isinstance(reader, str):
            raise BadInput(reader, where=str(path))
    known = [(path, reader) for path, reader in files if not isinstance(reader, str)]
    records = (one for path, reader in known for one in _records(path, reader, redactor, None))
    with tree.transaction():
        found = tree.loader().load(_watched(records, progress))
    for _, reader in known:
        found.files[reader.name] = found.files.get(reader.name, 0) + 1
    return found


def _records(
    path: Path, reader: Reader, redactor: Redactor | None, point: Checkpoint | None
) -> Iterator[Record]:
    # Rows of Parquet are not lines, and are read from the first one again.
    if point is not None and isinstance(reader, ItemReader) and not is_parquet(path):
        found = read_items(path, reader.label, reader.item, reader.unpack, point.start)
    else:
        found = reader.read(path)
    for what in getattr(reader, "lacks", ()):
        yield Remark("lost", f"{what}: the format records none")
    found = found if reader.name == "native" else _offered(found)
    yield from found if redactor is None or reader.name == "native" else redacted(found, redactor)


def _offered(records: Iterator[Record]) -> Iterator[Record]:
    """Records, and a remark for each walk that calls tools whose definitions the file does not have."""
    offered = True
    for record in records:
        if isinstance(record, NewNode):
            if record.parent is None:
                offered = bool(record.extra.get("tools"))
            elif not offered and (record.message or {}).get("tool_calls"):
                offered = True
                yield Remark("lost", "tool definitions: the file has calls of tools without them")
        yield record


def _watched(records: Iterator[Record], progress: Progress) -> Iterator[Record]:
    for record in records:
        if isinstance(record, Position):
            _tell(record, progress)
        yield record


def _tell(at: Position, progress: Progress) -> None:
    progress(_STAGE, at.done // 1_000_000, max(1, at.total // 1_000_000))


def _way(reader: Reader, redactor: Redactor | None) -> str:
    return f"{reader.name} {getattr(reader, 'tokenizer', None)} {redactor is not None}"


@final
class Checkpoint:
    """How far an import is; on the disk beside the tree, in memory where the tree is no file."""

    def __init__(self, tree: Tree, path: Path, way: str) -> None:
        self._source = path
        me = f"{path.resolve()} {way} {tree.created}"
        name = hashlib.blake2b(os.fsencode(me), digest_size=8).hexdigest()
        self._file = None if tree.file is None else tree.file.with_name(f".{tree.file.name}.{name}.import")
        self._store, body = self._opened()
        known = json.loads(body) if body is not None else None
        if known is not None and known["mark"] != _mark(path, known["done"]):
            self._store.execute("DELETE FROM seen")
            known = None
        self.loaded = Loaded() if known is None else _loaded(known["loaded"])
        place = (0, 0) if known is None else (int(known["done"]), int(known["line"]))
        self.start = Start(*place, Occurrences(self._store))

    @classmethod
    @contextlib.contextmanager
    def open(cls, tree: Tree, path: Path, way: str) -> Iterator[Self]:
        """The checkpoint of one import; closed at the end, and kept unless it is done.

        Raises:
            TreeBusy: another process imports this file into this tree.
        """
        point = cls(tree, path, way)
        try:
            yield point
        finally:
            point._store.close()

    def save(self, at: Position, loaded: Loaded) -> None:
        """Remember that all before a position is in the tree; DiskFull where that cannot be written."""
        body = {"done": at.done, "line": at.line, "mark": _mark(self._source, at.done)}
        try:
            self._store.execute("DELETE FROM at")
            self._store.execute("INSERT INTO at VALUES (?)", (json.dumps(body | {"loaded": asdict(loaded)}),))
            self._store.execute("COMMIT")
            self._store.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            # Not passed over: the counts of equal items would be those of an earlier place.
            what = f"how far the import is cannot be written: {error}"
            raise DiskFull(what, where=str(self._file), hint="what was read so far is in the tree") from error

    def done(self) -> None:
        """Forget it: the import is whole."""
        self._store.close()
        self._clear()

    def _opened(self) -> tuple[sqlite3.Connection, str | None]:
        """The store, locked, and what it says; an empty one where it is damaged or cannot be written."""
        if self._file is not None and names_another(Path(f"{self._file}-journal")):
            self._clear()
        for place in (self._file, self._file, None):
            store = sqlite3.connect(":memory:" if place is None else place, isolation_level=None, timeout=1)
            try:
                harden(store)
                store.execute("PRAGMA cache_size = -8192")
                store.execute("BEGIN EXCLUSIVE")
                store.execute("CREATE TABLE IF NOT EXISTS at (body TEXT)")
                store.execute(CREATE_SEEN)
                if not {"at", "seen"} <= set(real_tables(store)):
                    raise sqlite3.DatabaseError("a view stands for a table")
                row = store.execute("SELECT body FROM at").fetchone()
            except sqlite3.DatabaseError as error:
                store.close()
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                    what = "another process imports this file into this tree"
                    raise TreeBusy(what, where=str(self._source)) from error
                # Without it the import starts again, which changes nothing in the tree.
                self._clear()
            else:
                return store, None if row is None else str(row[0])
        raise InternalError("SQLite keeps nothing in memory")

    def _clear(self) -> None:
        for suffix in ("", "-journal") if self._file is not None else ():
            with contextlib.suppress(OSError):
                Path(f"{self._file}{suffix}").unlink(missing_ok=True)


def _loaded(body: dict[str, object]) -> Loaded:
    raw = dict(body)
    remarks = [Noted(**one) for one in raw.pop("remarks")]  # type: ignore[attr-defined]
    return Loaded(**raw, remarks=remarks)  # type: ignore[arg-type]


def _mark(path: Path, done: int) -> str | None:
    """A digest of a source's first bytes and of those before a position; None where it is shorter."""
    try:
        with path.open("rb") as file:
            head = file.read(min(_PRINT, done))
            file.seek(max(0, done - _PRINT))
            tail = file.read(min(_PRINT, done))
            whole = file.seek(0, 2) >= done
    except OSError as error:
        raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    return hashlib.blake2b(head + tail, digest_size=16).hexdigest() if whole else None
