"""A simulator of known quality: a world's own answers, of which a known share is wrong or missing.

It knows the truth, so it measures the measures: what fidelity, coverage and transfer should come out as.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import final

from refork.errors import BadInput
from refork.plain import content_hash
from refork.policies.base import Cost
from refork.sampling.noise import uniforms
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import Environment
from refork_methods.simulate.prompt import Asked, Prediction


@final
class PlantedSimulator:
    """Replays a question's turns in the world and answers as it does, but for planted faults.

    ``wrong``: share of answers with a word too many; ``silent``: share without a valid prediction. Which ones
    is a function of each question's noise.

    Raises: BadInput for shares that are none.
    """

    def __init__(
        self, world: Environment, tasks: Iterable[Task], *, wrong: float = 0.0, silent: float = 0.0
    ) -> None:
        if min(wrong, silent) < 0 or wrong + silent > 1:
            raise BadInput(f"{wrong} wrong and {silent} silent are no shares of answers", where="planted")
        self.world, self.wrong, self.silent = world, wrong, silent
        self._tasks = {world.brief(task).text: task for task in tasks}

    @property
    def name(self) -> str:
        """The world and the shares."""
        return f"planted {self.world.name}, {self.wrong:g} wrong, {self.silent:g} silent"

    @property
    def identity(self) -> Json:
        """What its answers depend on."""
        tasks = content_hash(sorted(self._tasks))
        return {"planted": self.world.name, "wrong": self.wrong, "silent": self.silent, "tasks": tasks}

    def predict(self, asked: Sequence[Asked]) -> list[Prediction]:
        """The world's answers, with the planted faults."""
        return [self._one(item) for item in asked]

    def _one(self, item: Asked) -> Prediction:
        began = time.perf_counter()
        task = self._tasks.get(item.brief.text)
        if task is None:
            return Prediction(None, "", Cost(0, 0, 0.0), "no task has this brief")
        # One number for both faults: their shares are parts of it side by side, so no answer has both.
        luck = float(uniforms([item.noise], 1)[0, 0])
        if luck < self.silent:
            return Prediction(None, "", Cost(0, 0, 0.0), "planted silence")
        episode = self.world.start(task, 0)
        try:
            for action, _ in item.history:
                episode.step(action)
            text = episode.step(item.action).text
        finally:
            episode.close()
        if luck < self.silent + self.wrong:
            text = f"{text} wrongly".lstrip()
        return Prediction(text, text, Cost(0, 0, time.perf_counter() - began))
