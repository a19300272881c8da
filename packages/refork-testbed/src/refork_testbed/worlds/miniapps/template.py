"""What a scenario template is, and what must have changed when its task is done."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, final

from refork.types import Json
from refork_testbed.worlds.miniapps.population import Draft

#: The parts of a sentence that a task fills in: name -> value as text.
Slots: TypeAlias = Mapping[str, str]

_SLOTS = {
    "person": r"[A-Z][a-z]+ [A-Z][a-z]+",
    "artist": r"[A-Z][A-Za-z ]+?",
    "email": r"[a-z.]+@[a-z.]+[a-z]",
    "amount": r"\d+",
    "minutes": r"\d+",
    "stars": r"\d",
    "day": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d",
}
_QUOTED = '[^"]+'
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Change:
    """One row that must have been changed.

    ``insert``: ``values`` are all columns but the id. ``update``: ``values`` are exactly the columns that
    differ. ``delete``: no values. ``row`` is the id; None for an insert, whose id is free.
    """

    table: str
    kind: Literal["insert", "update", "delete"]
    row: int | None
    values: Json = field(default_factory=dict)

    @property
    def told(self) -> str:
        """The change in words."""
        what = ", ".join(f"{key}={value!r}" for key, value in sorted(self.values.items()))
        place = "" if self.row is None else f" {self.row}"
        return f"{self.kind} {self.table}{place}" + (f": {what}" if what else "")


@dataclass(frozen=True, slots=True)
class Made:
    """What making a task put down: the slots, the changes that are wanted, the answer to a question.

    ``changes`` is called with the finished draft: ids are only known when all rows are in their place.
    ``answer`` None: nothing is asked.
    """

    slots: dict[str, str]
    changes: Callable[[], list[Change]]
    answer: Callable[[], str] | None = None


@final
@dataclass(frozen=True)
class Template:
    """A scenario: ``sentence`` with slots in braces, and what puts an instance of it into a draft."""

    key: str
    sentence: str
    make: Callable[[Draft], Made]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The sentence as a regular expression whose groups are the slots."""
        parts: list[str] = []
        at = 0
        for found in _FIELD.finditer(self.sentence):
            parts.append(re.escape(self.sentence[at : found.start()]))
            parts.append(f"(?P<{found[1]}>{_SLOTS.get(found[1], _QUOTED)})")
            at = found.end()
        return re.compile("".join([*parts, re.escape(self.sentence[at:])]) + r"\Z")

    def tell(self, slots: Slots) -> str:
        """The sentence of an instance."""
        return self.sentence.format(**slots)

    def read(self, sentence: str) -> dict[str, str] | None:
        """The slots of a sentence; None where it is not one of this template."""
        found = self.pattern.match(sentence)
        return None if found is None else dict(found.groupdict())


def insert(table: str, **values: Any) -> Change:
    """A row that must be new."""
    return Change(table, "insert", None, values)


def update(table: str, row: Mapping[str, Any], **values: Any) -> Change:
    """A row that must have other values in these columns; those that have them already are left out."""
    differing = {key: value for key, value in values.items() if row[key] != value}
    return Change(table, "update", int(row["id"]), differing)


def delete(table: str, row: Mapping[str, Any]) -> Change:
    """A row that must be gone."""
    return Change(table, "delete", int(row["id"]))
