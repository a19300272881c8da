"""One query under one conductor: a plan, and a plan more for every step that asks the conductor itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

from refork.errors import BadInput
from refork.policies.base import Cost
from refork.types import Json
from refork.worlds.base import Observation, Task
from refork_methods.route.conduct.conductor import DRAWS, SELF, Conducted, with_self
from refork_methods.route.conduct.execute import Execution, ReplyCache, execute
from refork_methods.route.conduct.plan import Plan

if TYPE_CHECKING:
    from refork_methods.route.conduct.world import ConductWorld

#: The plan of a later round is a turn of the rollout, and costs what that says.
_ON_THE_ROLLOUT = Cost(0, 0, 0.0, 0.0)


class _NeedsPlan(Exception):
    """A step asks the conductor, and it has not said that plan yet."""

    def __init__(self, query: str, rounds: int) -> None:
        self.query, self.rounds = query, rounds
        super().__init__(query)


class _Refused(Exception):
    """A plan cannot run."""


@final
class PlanEpisode:
    """Takes plans until the first of them has run to its end, then grades the answer.

    Each step runs everything anew with the plans so far; calls that were made are remembered, not repeated.
    """

    def __init__(self, world: ConductWorld, task: Task, seed: int) -> None:
        self._world, self._task, self._draw = world, task, seed % DRAWS
        self._pool = world.pool_of(task)
        world.query_of(task)  # a task of another world is refused here
        self._said: list[str] = []
        self._cache: ReplyCache = {}
        self._seen: Observation | None = None

    @property
    def first(self) -> Observation:
        """Nothing but the prompt is seen before the plan."""
        return Observation(text="")

    def step(self, action: str) -> Observation:
        """What the plan led to; after the end the same again."""
        if self._seen is None or not self._seen.done:
            self._said.append(action)
            self._seen = self._play()
        return self._seen

    def _play(self) -> Observation:
        script = list(self._said)
        try:
            execution = self._run(script, self._world.rounds, self._draw)
        except _NeedsPlan as asks:
            offered = self._world.offered(self._pool.open, asks.rounds)
            return Observation(self._world.ask(asks.query, offered), info={"rounds_left": asks.rounds})
        except _Refused as fault:
            return Observation(f"the plan cannot run: {fault}", done=True, reward=0.0, info={"runs": False})
        planned = self._world.graded(self._task, execution)
        said = "no answer" if execution.answer is None else execution.answer
        info: Json = {"runs": True, "quality": planned.quality, "calls": execution.calls}
        failed = [step.error for step in execution.errors]
        if failed:
            info["errors"] = failed
        return Observation(said, done=True, reward=planned.reward, info=info)

    def _run(self, script: list[str], rounds: int, draw: int) -> Execution:
        """Run the script's next plan, whose steps may take further ones from it."""
        said = script.pop(0)
        pool = self._pool
        if rounds > 1:
            pool = with_self(pool, lambda query, at: self._deeper(script, query, rounds - 1, at))
        try:
            plan = Plan.parse(said, pool.open).validate(pool, self._world.most)
        except BadInput as fault:
            raise _Refused(fault.what) from fault
        # What the conductor says depends on the script, so only frozen workers' replies may be remembered.
        return execute(
            plan, pool, draw=draw, most=self._world.most, cache=self._cache, uncached=frozenset({SELF})
        )

    def _deeper(self, script: list[str], query: str, rounds: int, draw: int) -> Conducted:
        if not script:
            raise _NeedsPlan(query, rounds)
        said = script[0]
        execution = self._run(script, rounds, draw)
        return Conducted(said, execution.plan, execution, cost=_ON_THE_ROLLOUT)

    def snapshot(self) -> bytes:
        """The plans so far and the draw, as JSON."""
        return json.dumps({"task": self._task.id, "seed": self._draw, "said": self._said}).encode()

    def reseed(self, seed: int) -> None:
        """Draw the workers anew, for what is still to be done."""
        if not self._said:
            self._draw = seed % DRAWS

    def close(self) -> None:
        """Nothing is held."""
