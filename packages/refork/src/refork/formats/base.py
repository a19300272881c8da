"""What a reader yields and a writer takes: the records of a tree, each after those it refers to.

The records are the tree's (:mod:`refork.tree.records`). Helpers for readers stand beside this file: ``rows``
(JSON lines, arrays and documents, within limits, bad items skipped), ``archive`` (ZIP files within limits).
:mod:`refork.json_guard` reads one JSON text within limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Final, Protocol, final, runtime_checkable

from refork.errors import BadInput
from refork.json_guard import parse_json
from refork.tree.codec import check_numbers, content, dumps, pack_values
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record, Remark
from refork.tree.score import Producer, Score

#: Bytes of a file that are looked at to tell its format.
HEAD: Final = 65536


@final
@dataclass(frozen=True)
class Head:
    """The beginning of a file, up to 64 KiB, and the file's name."""

    data: bytes
    name: str = ""

    @cached_property
    def text(self) -> str:
        """The bytes as UTF-8, errors replaced, without a byte order mark."""
        return self.data.decode("utf-8", errors="replace").removeprefix("\ufeff")

    @cached_property
    def first(self) -> Any:
        """The JSON value of the first line that is not empty; None where it is no JSON, or is cut."""
        try:
            return parse_json(self.text.lstrip().partition("\n")[0].encode(), self.name)
        except BadInput:
            return None

    @classmethod
    def of(cls, path: Path) -> Head:
        """The beginning of a file; raises BadInput where it cannot be read."""
        try:
            with path.open("rb") as file:
                return cls(file.read(HEAD), path.name)
        except OSError as error:
            raise BadInput(f"the file cannot be read: {error.strerror}", where=str(path)) from error


@runtime_checkable
class Reader(Protocol):
    """One format that trees can be made from.

    A number ``order`` may say when a file of no named format is tried, see
    :func:`refork.formats.readers`.
    """

    @property
    def name(self) -> str:
        """What ``--format`` takes."""
        ...

    def sniff(self, head: Head) -> bool:
        """Whether a file that begins so is of this format."""
        ...

    def read(self, path: Path) -> Iterator[Record]:
        """Records, one at a time; an item that cannot be read is a Remark, and the next one follows."""
        ...


@runtime_checkable
class FolderReader(Protocol):
    """A reader whose items may be folders: one file of theirs is read, the others lie beside it."""

    def unit(self, folder: Path) -> Path | None:
        """The file that stands for a folder; None where the folder is no item of this format."""
        ...


@runtime_checkable
class Writer(Protocol):
    """One format that trees can be written to: as bytes where its ``binary`` says so, else as text."""

    @property
    def name(self) -> str:
        """What ``--format`` takes."""
        ...

    def write(self, records: Iterable[Record], out: IO[Any]) -> int:
        """Write records; returns how many."""
        ...


def is_binary(writer: Writer) -> bool:
    """Whether a format is written as bytes."""
    return bool(getattr(writer, "binary", False))


def shaped(records: Iterator[Record], where: str, name: str) -> Iterator[Record]:
    """Records of foreign data; BadInput with the place where its parts are of other kinds than a format's."""
    try:
        yield from records
    except BadInput as error:
        if error.where is not None:
            raise
        raise BadInput(error.what, where=where, hint=error.hint) from error
    except (UnicodeDecodeError, OSError) as error:
        raise BadInput(f"this file cannot be read: {error}", where=where) from error
    except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError, RecursionError) as error:
        raise BadInput(f"this is not as {name} writes it: {error}"[:300], where=where) from error


def whole(records: Iterator[Record], where: str, name: str) -> Iterator[Record]:
    """All records of one item, or a remark why none of them can be read, or written to a tree."""
    try:
        # All or none: of an item that breaks halfway there would be nodes without an end.
        yield from list(_writable(shaped(records, where, name), where))
    except BadInput as error:
        yield Remark("skipped", error.what, error.where)


def _writable(records: Iterator[Record], where: str) -> Iterator[Record]:
    """Records as a tree takes them. It writes many items at once: what it refused would take all with it.

    Raises:
        BadInput: a tree would refuse one of them.
    """
    lengths: dict[str, int | None] = {}
    values: dict[tuple[str, str, str], Any] = {}
    try:
        for record in records:
            if isinstance(record, NewNode):
                # Offsets are not the file's: a redactor that comes behind makes text and offsets fit.
                body = content(record if record.offsets is None else replace(record, offsets=None), where)
                check_numbers([body], [(0, b"", None, record.keep, record.kind, record.key)])
                _encodable(body)
                id_ = node_id(record.parent, record.keep, record.kind, str(record.key))
                lengths[id_] = None if body[1] is None else len(body[1]) // 4
            elif isinstance(record, Producer):
                _encodable((record.name, record.version, dumps(record.config, where)))
                if not record.name:
                    raise BadInput("a score is by nobody", where=where)
            elif isinstance(record, Score):
                value = pack_values(record.value, lengths.get(record.node), where)
                _encodable((record.name, record.reason))
                # A node has one score of a name by a producer; two evaluations of one answer may differ.
                if values.setdefault((record.node, record.name, record.producer), value) != value:
                    yield Remark("lost", f"another value of the score {record.name}", where)
                    continue
            yield record
    except BadInput as error:
        raise BadInput(error.what, where=error.where if where in str(error.where) else where) from error


def _encodable(values: Iterable[Any]) -> None:
    """Raise BadInput where a text holds half a surrogate pair, which no file of UTF-8 can."""
    for value in values:
        if isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise BadInput(f"a text is no UTF-8: {error.reason}") from error
