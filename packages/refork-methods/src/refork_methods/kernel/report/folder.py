"""A search's folder, read: what was asked for, every kernel that was tried, and their sources."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.plain import from_json
from refork.types import Json
from refork_methods.kernel.bench.result import Evaluated
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.search.folder import SEARCH, SearchNode, read_facts, read_history
from refork_methods.kernel.search.model import Observation
from refork_methods.kernel.tool import Finding

#: Keys of a problem that a list of facts has no room for.
_LONG = ("source", "reference", "arguments")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A kernel of the search: what it was made from (``parent``, None: the original), how, and how it did.

    ``answers`` names the tools whose advice the move follows. ``findings`` are those on this kernel; None
    where it was not diagnosed. ``granted``: what the move takes for granted.
    """

    number: int
    parent: int | None
    evaluated: Evaluated
    move: str = ""
    why: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    digest: str = ""
    answers: tuple[str, ...] = ()
    findings: tuple[Finding, ...] | None = None
    notes: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


@final
@dataclass(frozen=True, kw_only=True)
class Search:
    """A stored search. ``facts`` is its ``search.json``; nodes are in the order in which they were tried.

    ``final`` is the last duel, of kernel ``winner`` against the reference; both None where there was none.
    """

    folder: Path
    facts: Json
    nodes: tuple[Node, ...]
    ceilings: Ceilings | None = None
    work: Work | None = None
    final: Evaluated | None = None
    winner: int | None = None
    machine: Json = field(default_factory=dict)

    @cached_property
    def by_number(self) -> dict[int, Node]:
        """Nodes by their number."""
        return {node.number: node for node in self.nodes}

    @property
    def settings(self) -> Json:
        """How it was searched."""
        return _object(self.facts, "settings")

    @property
    def problem(self) -> Json:
        """The kernel, its sizes and tolerances; without its source."""
        return {key: value for key, value in _object(self.facts, "problem").items() if key not in _LONG}

    def path(self, number: int) -> tuple[int, ...]:
        """From the original to a node."""
        found = [number]
        while (parent := self.by_number[found[-1]].parent) is not None:
            found.append(parent)
        return tuple(found[::-1])


def read_search(folder: Path) -> Search:
    """Read a search's folder, also of one that still runs, was stopped or has tried nothing yet.

    Raises:
        BadInput: not the folder of a search, or a line of it that is not ours.
    """
    facts, where = read_facts(folder), str(folder / SEARCH)
    history = read_history(folder)
    final, winner = _object(facts, "final"), facts.get("best")
    # A search that goes on after its end has a duel of before.
    ended = bool(final) and facts.get("state") == "done"
    if ended and not (isinstance(winner, int) and 0 <= winner < len(history.nodes)):
        raise BadInput(f"the best is node {winner}, which is not there", where=where)
    return Search(
        folder=folder,
        facts=facts,
        nodes=tuple(_node(one, history.observations.get(one.number)) for one in history.nodes),
        ceilings=_ceilings(facts, where),
        work=_work(facts, where),
        final=Evaluated.from_json(final, where) if ended else None,
        winner=winner if ended else None,
        machine=_object(facts, "machine"),
    )


def _node(node: SearchNode, seen: Observation | None) -> Node:
    made = node.proposal
    return Node(
        number=node.number,
        parent=None if node.parent < 0 else node.parent,
        evaluated=node.evaluated,
        move="" if made is None else made.move,
        why="" if made is None else made.why,
        source=node.candidate.source,
        flags=node.candidate.flags,
        digest=node.candidate.digest,
        answers=() if made is None else made.answers,
        findings=None if seen is None else seen.findings,
        notes=node.notes,
        granted=() if made is None else made.granted,
    )


def _ceilings(facts: Json, where: str) -> Ceilings | None:
    return from_json(Ceilings, facts["ceilings"], where) if facts.get("ceilings") else None


def _work(facts: Json, where: str) -> Work | None:
    told = _object(facts, "problem")
    if told.get("bytes") is None:
        return None
    return from_json(Work, {"flops": told.get("flops") or 0.0, "bytes": told["bytes"]}, where)


def _object(facts: Json, name: str) -> Json:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}
