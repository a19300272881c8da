"""Where queries come from, and who says that an answer is right: any collection, such as a file of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, final

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json
from refork.worlds.base import Split
from refork.worlds.dice import Dice, split_of


@dataclass(frozen=True, slots=True)
class Query:
    """One thing to be answered; ``data`` is what its grader needs."""

    id: str
    text: str
    split: Split = "train"
    data: Json = field(default_factory=dict)


class Queries(Protocol):
    """Where queries come from, and who says whether an answer is right."""

    @property
    def name(self) -> str:
        """Of the collection."""
        ...

    def draw(self, split: Split, count: int, seed: int) -> Sequence[Query]:
        """``count`` queries, in rounds over all there are where there are fewer."""
        ...

    def quality(self, query: Query, answer: str) -> float | None:
        """How right an answer is, in [0, 1]; None where that cannot be said."""
        ...


def query_to_json(query: Query) -> Json:
    """All fields but the split."""
    return {"id": query.id, "text": query.text, "data": query.data}


@final
class FileQueries:
    """Questions with one right answer each, from JSON lines ``{"query": ..., "answer": ..., "id"?: ...}``.

    An answer is right where it is the same text, white space and case aside. The digest of a query decides
    its split. Raises BadInput for a missing field, an id that comes twice or no query at all.
    """

    def __init__(self, rows: Sequence[Mapping[str, object]], name: str = "file") -> None:
        self.name = name
        self._queries: list[Query] = []
        seen: set[str] = set()
        for number, row in enumerate(rows, 1):
            if not isinstance(row.get("query"), str) or "answer" not in row:
                raise BadInput("a query needs a text and an answer", where=f"{name}, row {number}")
            text, label = str(row["query"]), str(row.get("id", number))
            if label in seen:
                raise BadInput(f"the id {label!r} comes twice", where=f"{name}, row {number}")
            seen.add(label)
            self._queries.append(Query(label, text, split_of(text), {"answer": str(row["answer"])}))
        if not self._queries:
            raise BadInput("there is no query", where=name)

    @classmethod
    def read(cls, path: Path | str) -> FileQueries:
        """The queries of a file."""
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return cls([row for _, row in json_objects(lines, str(path))], Path(path).stem)

    def draw(self, split: Split, count: int, seed: int) -> list[Query]:
        """Queries of the split in seeded order. Raises BadInput where it has none."""
        kept = [query for query in self._queries if query.split == split]
        if not kept:
            raise BadInput(f"no query of {self.name} is {split}", hint="give more queries")
        return in_rounds(Dice("queries", self.name, split, seed).sample(kept, len(kept)), count)

    def quality(self, query: Query, answer: str) -> float:
        """1 where the answer is the same text."""
        right = str(query.data.get("answer", ""))
        return float(" ".join(answer.split()).lower() == " ".join(right.split()).lower())


def in_rounds(queries: Sequence[Query], count: int) -> list[Query]:
    """``count`` of them, from the first again where they are fewer."""
    return [queries[place % len(queries)] for place in range(count)]
