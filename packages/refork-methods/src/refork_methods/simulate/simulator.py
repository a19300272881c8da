"""A world model as the simulator that forks fall back on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.types import Json
from refork.worlds.base import Task, World
from refork.worlds.environment import Environment, Seen
from refork_methods.simulate.control.base import Control
from refork_methods.simulate.episode import SimulatedEpisode, identity_of
from refork_methods.simulate.world import WorldModel


@final
@dataclass(frozen=True, slots=True)
class LearnedSimulator:
    """Goes on where a world can neither be restored nor replayed, under a control if one is given."""

    model: WorldModel
    control: Control | None = None

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def identity(self) -> Json:
        """The model, its settings and the control."""
        return identity_of(self.model, self.control)

    def resume(self, task: Task, world: World | None, seen: Sequence[Seen], seed: int) -> SimulatedEpisode:
        """An episode after these turns; a world that can grade texts grades it, another's is ungraded."""
        known = world if isinstance(world, Environment) else None
        with warnings.catch_warnings():
            # What the initial state lacks, the transcript may hold; the arm says that it is simulated.
            warnings.simplefilter("ignore", UserWarning)
            return self.model.env(task, control=self.control, world=known, seen=seen, seed=seed)
