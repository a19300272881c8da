"""The simulator seam: who answers where a world can neither be restored nor replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from refork.types import Json
from refork.worlds.base import Episode, Observation, Task, World
from refork.worlds.environment import ActionObservation


@runtime_checkable
class Simulator(Protocol):
    """Continues episodes of worlds that it has learned. Everything it says is marked as simulated."""

    @property
    def name(self) -> str:
        """Who simulates, for the record."""
        ...

    @property
    def identity(self) -> Json:
        """What its answers depend on (weights, settings, control), as plain JSON."""
        ...

    def resume(
        self, task: Task, world: World | None, history: Sequence[ActionObservation], seed: int
    ) -> Episode:
        """An episode that goes on after these turns; ``world`` is the real one, where it is known.

        The world is asked for its brief and its grading, never for an answer. Where there is none,
        ``task.data["brief"]`` is the brief, as far as the record has one.
        """
        ...


@runtime_checkable
class Simulated(Protocol):
    """An episode whose answers a simulator gives."""

    @property
    def simulator(self) -> Json:
        """The simulator's identity, recorded with every answer."""
        ...

    @property
    def graded(self) -> bool:
        """Whether somebody can say how well the episode went; else its end means nothing."""
        ...


@runtime_checkable
class StepsTogether(Protocol):
    """Episodes that are answered faster in one batch than one by one; the answers are the same."""

    @classmethod
    def step_together(cls, episodes: Sequence[Any], actions: Sequence[str]) -> list[Observation | Exception]:
        """One answer per episode, in order; an exception stands where an episode failed."""
        ...


def as_simulator(world: object) -> Simulator | None:
    """A world that is itself a simulator, as one; None where it is not."""
    return world if isinstance(world, Simulator) else None


def together(episode: object) -> type[StepsTogether] | None:
    """The class that answers this episode with others of its kind; None where it is answered alone."""
    return type(episode) if isinstance(episode, StepsTogether) else None


def has_grade(episode: object) -> bool:
    """Whether running out of turns is a failure: not where a simulator has no rule to grade by."""
    return not isinstance(episode, Simulated) or episode.graded


def simulator_of(episode: object) -> Json | None:
    """Who simulates an episode; None where the world is real (or there is none)."""
    return episode.simulator if isinstance(episode, Simulated) else None
