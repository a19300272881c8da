"""A search's folder, read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.plain import from_json
from refork.types import Json
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.search.model import Observation, Proposal
from refork_methods.kernel.search.record import History, Round, SearchNode
from refork_methods.kernel.slip import Slip

SEARCH, ROUNDS, NODES, FINDINGS, SLIPS, SOURCES = (
    "search.json", "rounds.jsonl", "nodes.jsonl", "findings.jsonl", "slips.jsonl", "sources",
)  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class _Made:
    """A proposal as a line tells it; ``source`` is the candidate's digest."""

    source: str
    flags: tuple[str, ...]
    move: str = ""
    family: str = ""
    why: str = ""
    answers: tuple[str, ...] = ()
    refused: str = ""
    granted: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Choice:
    round: int
    parent: int
    spent: bool
    proposals: tuple[_Made, ...]


@final
@dataclass(frozen=True, slots=True)
class _Tried:
    number: int
    parent: int
    notes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    number: int
    findings: tuple[Any, ...]
    counters: dict[str, float]
    absent: dict[str, str]


def read_facts(path: Path) -> Json:
    """The ``search.json`` of a folder.

    Raises:
        BadInput: it is not the folder of a search.
    """
    hint = "name the folder that `refork kernel search --out` wrote"
    try:
        found = json.loads((path / SEARCH).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput("this is not the folder of a search", where=str(path), hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"this is not JSON: {error}", where=str(path / SEARCH), hint=hint) from error
    if not isinstance(found, dict) or not {"settings", "writer", "problem"} <= found.keys():
        raise BadInput("this is not the record of a search", where=str(path / SEARCH), hint=hint)
    return found


def read_history(path: Path) -> History:
    """All that a folder holds of a search; last lines that a crash cut short are passed over.

    Raises:
        BadInput: a line that is not ours, or a source that is gone or was changed.
    """
    sources = _Sources(path / SOURCES)
    found = History()
    for place, body in _lines(path / NODES):
        node = sources.node(body, place)
        if node.number != len(found.nodes) or not -1 <= node.parent < max(node.number, 0):
            raise BadInput(f"node {node.number} is out of order", where=place)
        found.nodes.append(node)
    for place, body in _lines(path / ROUNDS):
        told = from_json(_Choice, body, place)
        made = tuple(sources.proposal(one, place) for one in told.proposals)
        found.rounds.append(Round(told.round, told.parent, made, told.spent))
    for place, body in _lines(path / FINDINGS):
        seen = from_json(_Seen, body, place)
        body.pop("number")
        found.observations[seen.number] = from_json(Observation, body, place)
    found.slips = [from_json(Slip, body, place) for place, body in _lines(path / SLIPS)]
    return found


@final
class _Sources:
    """Candidates by digest, each read once."""

    def __init__(self, folder: Path) -> None:
        self._files = {file.name.partition(".")[0]: file for file in folder.glob("*.*")}
        self._read: dict[str, Candidate] = {}

    def candidate(self, digest: str, flags: tuple[str, ...], place: str) -> Candidate:
        if digest not in self._read:
            file = self._files.get(digest)
            if file is None:
                raise BadInput(f"the source {digest} is gone", where=place)
            with file.open(encoding="utf-8", newline="") as stream:
                self._read[digest] = Candidate(stream.read(), flags)
        found = self._read[digest]
        if found.digest != digest or found.flags != flags:
            raise BadInput(f"the source {digest} is not what was tried", where=place)
        return found

    def proposal(self, told: _Made, place: str) -> Proposal:
        found = self.candidate(told.source, told.flags, place)
        return Proposal(
            found.source, found.flags, told.move, told.why, told.family, told.answers, told.refused,
            told.granted,
        )  # fmt: skip

    def node(self, body: Json, place: str) -> SearchNode:
        told, made = from_json(_Tried, body, place), from_json(_Made, body, place)
        evaluated = body.get("evaluated")
        if not isinstance(evaluated, dict):
            raise BadInput("this node was not evaluated", where=place)
        return SearchNode(
            number=told.number,
            parent=told.parent,
            candidate=self.candidate(made.source, made.flags, place),
            evaluated=Evaluated.from_json(evaluated),
            proposal=None if told.parent < 0 else self.proposal(made, place),
            notes=told.notes,
        )


def _lines(file: Path) -> Iterator[tuple[str, Json]]:
    """The whole lines of a file, none where it is not there."""
    if not file.exists():
        return
    text = file.read_text(encoding="utf-8", errors="replace")
    yield from json_objects(text[: text.rfind("\n") + 1].split("\n"), str(file))
