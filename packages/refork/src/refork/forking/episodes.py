"""Live episodes in the state of a trajectory: restored, replayed and checked, or continued by a simulator."""

from __future__ import annotations

from dataclasses import dataclass

from refork.errors import CannotDo, ReplayDiverged
from refork.forking.context import imported_task, live_episode, recorded_task, transcript
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.types import Json, Origin
from refork.worlds.base import Episode, Task, World
from refork.worlds.simulated import Simulator, as_simulator

#: Turns that a simulator answers where no world limits them.
TURNS = 8


@dataclass(slots=True)
class Episodes:
    """Fresh episodes in the state of one path, the cheapest way that works: found once, used for every draw.

    The real world comes first. ``simulator`` is asked only where there is no world, or where it can neither
    restore nor replay what is recorded. A world that is itself a simulator continues the recorded texts.
    """

    tree: Tree
    trajectory: Trajectory
    world: World | None
    simulator: Simulator | None = None
    origin: Origin = "real"
    _saved: bytes | None = None
    _tried: bool = False
    _by: Simulator | None = None
    _why: str | None = None
    _ready: Episode | None = None

    def __post_init__(self) -> None:
        self._by = as_simulator(self.world)
        if self._by is not None:
            return
        if self.simulator is not None and self.world is None:
            self._by, self._why = self.simulator, "there is no world"
        elif self.simulator is not None:
            try:
                self._ready = self._real()
            except (CannotDo, ReplayDiverged) as error:
                self._by, self._why = self.simulator, f"{type(error).__name__}: {error.what}"

    @property
    def simulated(self) -> Json | None:
        """Who answers, where it is a simulator."""
        return None if self._by is None else self._by.identity

    @property
    def reason(self) -> str | None:
        """Why the real world does not answer."""
        return self._why

    def fresh(self, world_seed: int) -> tuple[Episode, Origin]:
        """A new episode whose own chance from here on is this draw's."""
        if self._by is not None:
            return self._by.resume(
                self._task(), self.world, transcript(self.trajectory, self.world), world_seed
            ), "simulated"
        # The episode by which the world was tried is the first draw's: a replay may have taken long.
        episode, self._ready = self._ready or self._real(), None
        episode.reseed(world_seed)
        return episode, self.origin

    def close(self) -> None:
        """Free an episode that was begun and not asked for."""
        if self._ready is not None:
            self._ready.close()

    def _task(self) -> Task:
        return (
            imported_task(self.trajectory)
            if self.world is None
            else recorded_task(self.trajectory, self.world)
        )

    def _real(self) -> Episode:
        assert self.world is not None
        if self._saved is not None:
            return self.world.restore(recorded_task(self.trajectory, self.world), self._saved)
        episode, self.origin = live_episode(self.tree, self.trajectory, self.world)
        # One replay serves all draws where the world can save its state; None is remembered as no.
        if not self._tried:
            self._saved, self._tried = episode.snapshot(), True
        return episode
