"""The world seam: what a policy acts on.

A world is a factory; an episode is one live run of it. Many episodes of one world are alive at
once while branches grow, so state never lives in the world itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from refork.types import Json

Split = Literal["train", "held-out"]


@dataclass(frozen=True, slots=True)
class Task:
    """One problem of a world: ``prompt`` is what the policy is told once, ``data`` rebuilds it.

    Where a task begins inside a session, ``data["messages"]`` are its chat messages, the prompt their text.
    """

    id: str
    world: str
    split: str
    prompt: str
    data: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the world shows after a step.

    ``state_key`` is a hash of the canonical form; equal keys merge in graph credit. ``reward`` is
    None until the world has graded, 0.0 when it graded nothing earned. ``done`` ends the episode.
    """

    text: str
    state_key: str | None = None
    done: bool = False
    reward: float | None = None
    info: Json = field(default_factory=dict)


@runtime_checkable
class Episode(Protocol):
    """One live run of a task."""

    @property
    def first(self) -> Observation:
        """What is seen before any action; empty text where the prompt says it all."""
        ...

    def step(self, action: str) -> Observation:
        """Act (the text of one whole policy turn) and see. Nonsense is an observation, not an error."""
        ...

    def snapshot(self) -> bytes | None:
        """The exact state, to restore later; None where the world cannot be snapshot."""
        ...

    def reseed(self, seed: int) -> None:
        """Draw the world's own chance anew from here on: each draw of a fork has its own luck."""
        ...

    def close(self) -> None:
        """Free what the episode holds."""
        ...


@runtime_checkable
class World(Protocol):
    """A family of tasks."""

    @property
    def name(self) -> str:
        """Name and size, as the command line takes it: ``household:2``."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever an action could be answered or graded differently."""
        ...

    @property
    def max_turns(self) -> int:
        """Turns after which a run counts as failed."""
        ...

    @property
    def deterministic(self) -> bool:
        """Whether the same actions always meet the same answers, whatever the seed."""
        ...

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """Seeded tasks; the two splits never share one."""
        ...

    def start(self, task: Task, seed: int) -> Episode:
        """Begin an episode; ``seed`` is the world's own chance (slips), a function of the draw."""
        ...

    def restore(self, task: Task, snapshot: bytes) -> Episode:
        """An episode in exactly the state of a snapshot."""
        ...
