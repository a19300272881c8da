"""Episodes of one turn: the prompt says it all, the one action is graded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import final

from refork.errors import BadInput
from refork.worlds.base import Observation, Task


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
    try:
        record = json.loads(snapshot)
        other, seen = record["task"], record["seen"]
        after = None if seen is None else Observation(**seen)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInput(f"not a snapshot of {task.world}: {error!r}", where=f"task {task.id}") from error
    if other != task.id:
        raise BadInput(f"the snapshot is of task {other!r}", where=f"task {task.id}")
    return SingleTurnEpisode(task, grade, after)
