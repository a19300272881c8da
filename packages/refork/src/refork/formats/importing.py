"""Importing a file of any size: committed in parts, so that one that was stopped loses nothing.

Keys of foreign items are digests of their content with a count of equal ones before: the same import again
finds what is there, and adds the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from refork.errors import BadInput, CannotDo, Mismatch
from refork.formats import folder_files
from refork.formats.base import Reader
from refork.formats.redact import Redactor, redacted
from refork.interrupt import Interrupt
from refork.policies.base import Policy
from refork.progress import Progress, silent
from refork.tree.load import Loaded
from refork.tree.node import NewNode
from refork.tree.records import Position, Record, Remark
from refork.tree.tree import Tree

_STAGE: Final = "import (MB)"


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
        KeyboardInterrupt: Ctrl-C; what was committed stays, and the same import adds the rest.
    """
    if strict or reader.name == "native":
        with tree.transaction():
            return tree.loader(strict=strict).load(_watched(_records(path, reader, redactor), progress))
    loader = tree.loader(strict=False)
    parts = loader.parts(_records(path, reader, redactor))
    with Interrupt() as stop:
        while True:
            with tree.transaction():
                # The generator writes while it is advanced, so each of its steps is within a transaction.
                at = next(parts, None)
            if at is None:
                break
            _tell(at, progress)
            if stop.asked:
                raise KeyboardInterrupt
        with tree.transaction():
            return loader.finish()


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
        KeyboardInterrupt: Ctrl-C; the same import adds the rest.
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
        except (BadInput, Mismatch, CannotDo) as error:
            # Other errors are the tree's, or a server's, and would be those of the next file too.
            what = f"{error.what}; {error.hint}" if isinstance(error, CannotDo) and error.hint else error.what
            whole.note(Remark("skipped", what, error.where or str(path)))
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
    records = (one for path, reader in known for one in _records(path, reader, redactor))
    with tree.transaction():
        found = tree.loader().load(_watched(records, progress))
    for _, reader in known:
        found.files[reader.name] = found.files.get(reader.name, 0) + 1
    return found


def _records(path: Path, reader: Reader, redactor: Redactor | None) -> Iterator[Record]:
    found = reader.read(path)
    for what in getattr(reader, "lacks", ()):
        yield Remark("lost", f"{what}: the format records none")
    found = found if reader.name == "native" else _offered(found)
    yield from found if redactor is None or reader.name == "native" else redacted(found, redactor)


def _offered(records: Iterator[Record]) -> Iterator[Record]:
    """Records, and a remark for each trajectory that calls tools whose definitions the file does not have."""
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
