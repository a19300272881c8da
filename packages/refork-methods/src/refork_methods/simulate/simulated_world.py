"""A world whose tasks and grading are a real one's and whose answers are a model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from refork.types import Json
from refork.worlds.base import Split, Task, World
from refork.worlds.dice import digest
from refork.worlds.environment import Actor, Brief, DomainName, Environment, Seen
from refork_methods.simulate.control.base import Control
from refork_methods.simulate.episode import SimulatedEpisode, identity_of, read_turn

if TYPE_CHECKING:
    from refork_methods.simulate.world import WorldModel


@final
@dataclass(frozen=True, slots=True)
class SimulatedWorld:
    """Tasks, briefs and grading of ``base``, answers of ``model``: a world, an environment and a simulator.

    The base is never stepped, so it need not run here: only its tasks are made. A fork that goes on in this
    world continues the recorded texts, whoever said them.
    """

    model: WorldModel
    base: Environment
    control: Control | None = None

    @property
    def name(self) -> str:
        """``simulated:`` and the base's name."""
        return f"simulated:{self.base.name}"

    @property
    def identity(self) -> Json:
        """The model, its settings and the control."""
        return identity_of(self.model, self.control)

    @property
    def version(self) -> str:
        """The base's version and who simulates it."""
        return f"{self.base.version}+{digest(self.identity)[:12]}"

    @property
    def max_turns(self) -> int:
        """As in the base."""
        return self.base.max_turns

    @property
    def deterministic(self) -> bool:
        """No: an answer is drawn."""
        return False

    @property
    def domain(self) -> DomainName:
        """As of the base."""
        return self.base.domain

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """The base's own tasks."""
        return self.base.tasks(split, count, seed)

    def brief(self, task: Task) -> Brief:
        """What the model is told."""
        return self.base.brief(task)

    def actor(self, task: Task, seed: int) -> Actor:
        """The base's scripted agent."""
        return self.base.actor(task, seed)

    def standing(self, task: Task, seen: Sequence[Seen]) -> tuple[bool, float | None]:
        """As the base reads it from the texts."""
        return self.base.standing(task, seen)

    def start(self, task: Task, seed: int) -> SimulatedEpisode:
        """Begin an episode; the seed addresses the noise of its answers."""
        return self.model.env(task, control=self.control, world=self.base, seed=seed)

    def restore(self, task: Task, snapshot: bytes) -> SimulatedEpisode:
        """The episode of a snapshot. Raises BadInput where it is none of a simulated episode of this task."""
        return self.model.restore(snapshot, task, control=self.control, world=self.base)

    def resume(self, task: Task, world: World | None, seen: Sequence[Seen], seed: int) -> SimulatedEpisode:
        """An episode after these turns, real or simulated; this world's own base grades it."""
        return self.model.env(task, control=self.control, world=self.base, seed=seed, seen=seen)

    def said(self, turn: str) -> str:
        """What of an agent's turn is its action."""
        return read_turn(self.base, turn)
