"""Episodes of one turn: the prompt says it all, the one action is graded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import final

from refork.worlds.base import Observation, Task
from refork.worlds.game import reading


@final
class SingleTurnEpisode:
    """Waits for one action and gives the grader's observation; later actions get the same one again."""

    def __init__(
        self, task: Task, grade: Callable[[str], Observation], observation: Observation | None = None
    ) -> None:
        self.task = task
        self._grade = grade
        self._seen = observation

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the action."""
        return Observation(text="", state_key=None)

    def step(self, action: str) -> Observation:
        """The graded answer."""
        if self._seen is None:
            self._seen = self._grade(action)
        return self._seen

    def snapshot(self) -> bytes:
        """Whether it was answered, and how, as JSON."""
        seen = None if self._seen is None else asdict(self._seen)
        return json.dumps({"task": self.task.id, "seen": seen}, sort_keys=True).encode()

    def reseed(self, seed: int) -> None:
        """There is no chance."""

    def close(self) -> None:
        """Nothing is held."""


def restore_single_turn(
    task: Task, snapshot: bytes, grade: Callable[[str], Observation]
) -> SingleTurnEpisode:
    """The episode of a snapshot; raises BadInput where it is not one of this task."""
    with reading(task.world, task, snapshot) as record:
        after = None if record["seen"] is None else Observation(**record["seen"])
    return SingleTurnEpisode(task, grade, after)
