"""What readers of logs share: items read one by one, and parts of traces gathered from a whole file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from refork.formats.base import whole
from refork.formats.grouped import Grouped
from refork.formats.openai_chat import OpenAIChat
from refork.formats.parquet import row_items, row_objects
from refork.formats.rows import read_items
from refork.formats.sampled import SampledReader
from refork.formats.tokenised import lacking
from refork.policies.base import Policy
from refork.tree.records import Position, Record, Remark
from refork.types import Json

T = TypeVar("T")


class LogReader(ABC):
    """A reader of items; token ids are recorded where a policy is given to tokenise with.

    ``label`` is what messages call the format. An item is one JSON object, of a line, an array or a document.
    """

    name: str
    label: str

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy
        self._chat = OpenAIChat(policy)

    @property
    def tokenizer(self) -> str | None:
        """Digest of the tokenizer that texts are tokenised with; None where none is."""
        return self._chat.tokenizer

    @abstractmethod
    def item(self, body: Json, name: str, where: str) -> Iterator[Record]:
        """Records of one object; ``name`` is its digest and how often it came before."""

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The items of a file that is one JSON document: itself, where a format says nothing else."""
        return [body]

    def read(self, path: Path) -> Iterator[Record]:
        """Records of every item, in order; one that cannot be read is skipped with a remark."""
        return read_items(path, self.label, self.item, self.unpack)


class RowReader(LogReader):
    """A reader of rows, JSON lines or Parquet; a policy tokenises texts, and turns ids to text."""

    def __init__(self, policy: Policy | None = None) -> None:
        super().__init__(policy)
        self._sampled = SampledReader(policy)

    @abstractmethod
    def has(self, columns: frozenset[str]) -> bool:
        """Whether rows with these keys are of this format."""

    def read(self, path: Path) -> Iterator[Record]:
        """Records of every row; one that is none of this format is skipped with a remark."""
        return row_items(path, self.label, self.item)


class TraceReader(ABC):
    """A reader of spans or runs that belong to traces, wherever in the file they lie.

    ``label`` is what messages call the format, ``parts`` what a trace is made of.
    """

    name: str
    label: str
    parts: str

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy

    @abstractmethod
    def keep(self, grouped: Grouped, body: Json, where: str) -> Iterator[Remark]:
        """Keep the parts that an object of the file holds; remarks on those that cannot be."""

    @abstractmethod
    def trace(self, grouped: Grouped, trace: str) -> Iterator[Record]:
        """Records of one trace."""

    def unpack(self, body: Any, where: str) -> list[Any]:
        """The objects of a file that is one JSON document."""
        return [body]

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts and scores of every trace, in the order in which they begin in the file.

        Raises:
            CannotDo: a policy is to tokenise a tool call, or its template rewrites what came before.
        """
        with closing(Grouped()) as kept:
            for where, body in row_objects(path, self.unpack):
                if isinstance(body, (Remark, Position)):
                    yield body
                else:
                    yield from self.keep(kept, body, where)
            # A span may lie far from the others of its trace: no trace is whole before the file is read.
            traces = list(kept.names())
            for trace in traces:
                yield from whole(self.trace(kept, trace), f"{path}, trace {trace}", self.label)
            if left := kept.unplaced():
                what = f"what is said of traces whose {self.parts} the file does not have"
                yield Remark("lost", what, str(path), left)
            if traces:
                yield Remark("lost", f"{lacking(self._policy)}: {self.parts} have none", str(path))


def ancestors(part: T, by_id: Mapping[str, T], parent: Callable[[T], str | None]) -> list[T]:
    """The parts of a trace that a part lies in, the outermost first; a circle ends before it closes."""
    found: list[T] = []
    above = by_id.get(parent(part) or "")
    while above is not None and above is not part and not any(above is one for one in found):
        found.append(above)
        above = by_id.get(parent(above) or "")
    return found[::-1]
