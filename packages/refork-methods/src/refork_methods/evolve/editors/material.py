"""What a search over a directory needs beside it, as JSON lines: tasks, labelled examples, the anchor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar, final

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.plain import content_hash, from_json
from refork_methods.journal import Journal

#: Fewest items of an anchor.
LEAST_ANCHOR: Final = 30
T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Task:
    """What the agent is asked; ``expect`` None: the judge decides.

    ``expect`` is a regular expression that a right answer matches whole, spaces around it aside.
    """

    id: str
    text: str
    expect: str | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.expect or "")
        except re.error as error:
            raise BadInput(f"not a regular expression: {error}", where=f"task {self.id!r}") from error

    def passes(self, answer: str) -> bool:
        """Whether an answer is right; raises BadInput for a task that a judge decides."""
        if self.expect is None:
            raise BadInput("a judge decides this task", where=f"task {self.id!r}")
        return re.fullmatch(self.expect, answer.strip(), re.DOTALL) is not None


@final
@dataclass(frozen=True, slots=True)
class Example:
    """A piece of work whose verdict is known, 1 accept or 0 refuse; ``source`` says who made it."""

    id: str
    artifact: str
    label: int
    task: str = ""
    source: str | None = None

    def __post_init__(self) -> None:
        if self.label not in (0, 1):
            raise BadInput(f"the label is {self.label!r}, not 0 or 1", where=f"example {self.id!r}")


def read_lines(kind: type[T], file: Path) -> list[T]:
    """Objects of a JSON-lines file; raises BadInput naming the line that is none."""
    try:
        with file.open(encoding="utf-8") as stream:
            return [from_json(kind, body, place) for place, body in json_objects(stream, str(file))]
    except OSError as error:
        raise BadInput(f"this file cannot be read: {error.strerror}", where=str(file)) from error


def check_material(tasks: Sequence[Task], examples: Sequence[Example], anchor: Sequence[Example]) -> None:
    """Refuse what a search could not learn from, or would cheat with.

    Raises: BadInput for no task, an id used twice, an anchor of fewer than 30 items or of one class, or one
        that shares an artifact with the examples or a text with the tasks.
    """
    if not tasks:
        raise BadInput("there is no task", hint='lines such as {"id": "t1", "text": "..."}')
    for what, ids in (("tasks", [t.id for t in tasks]), ("examples", [e.id for e in examples]),
                      ("anchor items", [a.id for a in anchor])):  # fmt: skip
        if len(set(ids)) != len(ids) or "" in ids:
            raise BadInput(f"two {what} have one id, or one has none")
    if len(anchor) < LEAST_ANCHOR or len({item.label for item in anchor}) < 2:
        raise BadInput(
            f"the anchor has {len(anchor)} items of {len({item.label for item in anchor})} labels",
            hint=f"at least {LEAST_ANCHOR}, good ones and bad ones",
        )
    shown = {_bare(text) for text in (*(e.artifact for e in examples), *(t.text for t in tasks))}
    leaked = sorted(item.id for item in anchor if _bare(item.artifact) in shown)
    if leaked:
        raise BadInput(
            f"{len(leaked)} anchor items are shown as examples or tasks, such as {leaked[0]!r}",
            hint="an anchor is private: leave these items out of one of the two",
        )


def _bare(text: str) -> str:
    return " ".join(text.split()).lower()


@final
class Artifacts:
    """Texts that agents made, by key; in a journal they outlive the process, so that a run can be resumed."""

    def __init__(self, journal: Journal | None = None) -> None:
        self._journal = journal
        self._texts: dict[str, str] = {}
        entries: Iterable[tuple[str, str]] = (
            () if journal is None else ((e.body["key"], e.body["text"]) for e in journal)
        )
        for key, text in entries:
            self._texts[key] = text

    def __contains__(self, key: str) -> bool:
        return key in self._texts

    def text(self, key: str) -> str:
        """The text of a key; raises BadInput where there is none."""
        if key not in self._texts:
            raise BadInput(f"no artifact {key!r}", hint="resume with the artifacts that the run wrote")
        return self._texts[key]

    def keep(self, node: int, task: str, text: str) -> str:
        """Store a text; its key, which names node, task and content."""
        key = f"{node}:{task}:{content_hash(text)[:12]}"
        if key not in self._texts:
            clean = text.encode("utf-8", "replace").decode()
            if self._journal is not None:
                self._journal.append("artifact", {"key": key, "text": clean})
            self._texts[key] = clean
        return key
