"""The agent seam of a stream: somebody who works on a task with the texts and tools that a memory gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from refork_methods.memory.item import MemoryItem
from refork_methods.memory.tool import Tool
from refork_methods.memory.trajectory import RunTrajectory


@dataclass(frozen=True, slots=True)
class Help:
    """What an agent is given beside the task: texts to read, tools to call."""

    texts: tuple[MemoryItem, ...] = ()
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamTask:
    """One task of a stream: its id (unique in the stream), its query, and the family it is an instance of."""

    id: str
    query: str
    family: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run and how it was graded; ``called`` are names of the tools that it invoked."""

    run: RunTrajectory
    success: bool
    steps: int
    called: tuple[str, ...] = ()
    failed_calls: int = 0
    notes: tuple[str, ...] = field(default=())


@runtime_checkable
class StreamAgent(Protocol):
    """Works on tasks."""

    @property
    def name(self) -> str:
        """Who acts, for the record."""
        ...

    def work(self, task: StreamTask, given: Help) -> Outcome:
        """One run of the task; the same task and help give the same outcome."""
        ...


@runtime_checkable
class Teacher(Protocol):
    """Makes candidate items of a finished run: a model's reflector, or a rule."""

    def lessons(self, run: RunTrajectory) -> tuple[MemoryItem, ...]:
        """Candidate items; their ids are given by the memory."""
        ...
