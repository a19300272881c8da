"""Candidate items before they are screened, and the seams of reflector, screener and manager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from refork.policies.base import Cost
from refork_methods.memory.item import ItemKind, MemoryItem
from refork_methods.memory.retrieve import Candidate
from refork_methods.memory.skeleton import CallStep
from refork_methods.memory.trajectory import RunTrajectory


@dataclass(frozen=True, slots=True)
class Lesson:
    """A candidate item: see :class:`~refork_methods.memory.item.MemoryItem`."""

    kind: ItemKind
    body: str
    evidence: tuple[str, ...] = ()
    skeleton: tuple[CallStep, ...] = ()
    refs: tuple[str, ...] = ()
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class Reflection:
    """What a reflector made of a run, and what it cost."""

    lessons: tuple[Lesson, ...] = ()
    cost: Cost = field(default_factory=lambda: Cost(tokens_in=0, tokens_out=0))


@dataclass(frozen=True, slots=True)
class Screened:
    """For every lesson None (keep) or the reason against it, and what it cost."""

    reasons: tuple[str | None, ...]
    cost: Cost = field(default_factory=lambda: Cost(tokens_in=0, tokens_out=0))


@dataclass(frozen=True, slots=True)
class Chosen:
    """Ids of the texts and names of the tools that were chosen, and what it cost."""

    items: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    cost: Cost = field(default_factory=lambda: Cost(tokens_in=0, tokens_out=0))


@dataclass(frozen=True, slots=True)
class Most:
    """How many of each kind may be chosen."""

    plan: int = 3
    fact: int = 5
    pitfall: int = 5
    tool: int = 4

    def of(self, kind: str) -> int:
        """The limit of a kind."""
        return int(getattr(self, kind))


@runtime_checkable
class Reflector(Protocol):
    """Reads runs. The only role that sees one."""

    @property
    def name(self) -> str:
        """Who reflects, for the record."""
        ...

    def reflect(self, run: RunTrajectory, given: Sequence[MemoryItem]) -> Reflection:
        """Lessons of a run in which the agent was given some items."""
        ...


@runtime_checkable
class Screener(Protocol):
    """Judges lessons: general, new, grounded in a cause, and of the right scope. Sees no run."""

    def screen(self, lessons: Sequence[Lesson], known: Sequence[MemoryItem]) -> Screened:
        """A verdict on every lesson."""
        ...


@runtime_checkable
class Manager(Protocol):
    """Chooses among candidates. Sees the query and the candidates, and names ids only."""

    @property
    def name(self) -> str:
        """Who chooses, for the record."""
        ...

    def choose(
        self,
        query: str,
        candidates: Mapping[str, Sequence[Candidate]],
        items: Mapping[str, MemoryItem],
        plans: Mapping[str, str],
        most: Most,
    ) -> Chosen:
        """Ids of texts and names of tools; ``plans`` is tool name -> id of the plan it was made from."""
        ...
