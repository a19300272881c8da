"""What the agents of a shell and small databases share: their worlds, lessons, words and how well they do.

Lessons are solutions as somebody who knows them types them, run in the real worlds: an agent that is told its
task alone can learn each action from what it has seen. What recorded actors look at on the way it could not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork import stats
from refork.forking.arm import graded
from refork.growing import grow
from refork.growing.plant import opening
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import FloatArray, Json, Message
from refork.worlds.base import Episode, Observation, Split, Task, World
from refork.worlds.environment import ActionObservation, Environment, ScriptedAgent
from refork.worlds.open import open_world
from refork_testbed.models.planted import Planted
from refork_testbed.models.recipes.world_model_data import WORLDS
from refork_testbed.worlds.terminal import agents as terminal
from refork_worlds.tools import agents as tools

#: An action, and the end of the turn.
SAMPLING = Sampling(max_tokens=48)
SHAPE = Planted(layers=3, width=160, heads=4, hidden=400, context=1024)
#: Held-out tasks of each world that success is measured on.
TASKS = 100


@final
@dataclass(frozen=True)
class _Blind:
    """An episode that shows nothing before the first action."""

    inner: Episode

    @property
    def first(self) -> Observation:
        """Nothing."""
        return Observation("", state_key=self.inner.first.state_key)

    def step(self, action: str) -> Observation:
        """As the world's own."""
        return self.inner.step(action)

    def snapshot(self) -> bytes | None:
        """As the world's own."""
        return self.inner.snapshot()

    def reseed(self, seed: int) -> None:
        """As the world's own."""
        self.inner.reseed(seed)

    def close(self) -> None:
        """As the world's own."""
        self.inner.close()


@final
@dataclass(frozen=True)
class Blind:
    """A real world in which an agent is told its task and no more, as in a simulated one."""

    base: World

    @property
    def name(self) -> str:
        """The base's with ``first=nothing``: of its family, and no world that ``open_world`` knows."""
        return f"{self.base.name}{'&' if '?' in self.base.name else '?'}first=nothing"

    @property
    def version(self) -> str:
        """The base's."""
        return self.base.version

    @property
    def max_turns(self) -> int:
        """The base's."""
        return self.base.max_turns

    @property
    def deterministic(self) -> bool:
        """As the base."""
        return self.base.deterministic

    def tasks(self, split: Split, count: int, seed: int = 0) -> Sequence[Task]:
        """The base's own."""
        return self.base.tasks(split, count, seed)

    def start(self, task: Task, seed: int) -> Episode:
        """An episode of the base that shows nothing first."""
        return _Blind(self.base.start(task, seed))

    def restore(self, task: Task, snapshot: bytes) -> Episode:
        """As the base."""
        return _Blind(self.base.restore(task, snapshot))


def environment(spec: str) -> Environment:
    """One of the recorded worlds."""
    found = open_world(spec)
    assert isinstance(found, Environment)
    return found


def solver(world: Environment, task: Task) -> ScriptedAgent:
    """Who solves a task of either world without a detour."""
    if "script" in task.data:
        return terminal.Scripted(tuple(task.data["script"]))
    drawn = (world.agent(task, seed) for seed in itertools.count())
    return next(one for one in drawn if isinstance(one, tools.Scripted) and one.kind == "solver")


def lessons(spec: str, count: int, progress: Progress = silent) -> list[list[Message]]:
    """Solutions of training tasks of a real world, as conversations; the last answer is never shown.

    Tasks that the solver does not solve are left out.
    """
    world, found = environment(spec), []
    for number, task in enumerate(world.tasks("train", count, 0)):
        progress(f"lessons in {spec}", number, count)
        actor, episode = solver(world, task), world.start(task, 0)
        talk, seen, answer = [opening(task.prompt, "")], list[ActionObservation](), None
        while (action := actor.act(seen)) is not None and (answer is None or not answer.done):
            if answer is not None:
                talk.append({"role": "user", "content": answer.text})
            talk.append({"role": "assistant", "content": action})
            answer = episode.step(action)
            seen.append((action, answer.text))
        episode.close()
        if answer is not None and answer.reward == 1.0:
            found.append(talk)
    return found


def all_lessons(count: int, progress: Progress = silent) -> list[list[Message]]:
    """Lessons of so many tasks of every world, the worlds in turn."""
    each = [lessons(spec, count, progress) for spec in WORLDS]
    return [talk for some in itertools.zip_longest(*each) for talk in some if talk is not None]


def outcomes(
    policy: LocalPolicy, spec: str, tasks: int, *, seed: int = 0, progress: Progress = silent
) -> FloatArray:
    """Success of one rollout of each of some held-out tasks in the real world, [tasks]; broken ones are 0."""
    world = Blind(environment(spec))
    with Tree.memory() as tree:
        groups = grow(
            tree, policy, world, world.tasks("held-out", tasks, 0), draws=1, settings=SAMPLING, seed=seed,
            tasks_at_once=tasks, progress=progress,
        )  # fmt: skip
        values = graded([value for group in groups for value in group.values()])
    return np.asarray(np.nan_to_num(values) >= 1.0, dtype=np.float64)


def measure(policy: LocalPolicy, progress: Progress = silent) -> Json:
    """Success in the real worlds, one rollout of each held-out task, with Wilson intervals."""
    rows: Json = {}
    for spec in WORLDS:
        wins = outcomes(policy, spec, TASKS, progress=progress)
        interval = stats.wilson(int(wins.sum()), len(wins))
        rows[spec] = {
            "tasks": len(wins),
            "rate": interval.estimate,
            "low": interval.low,
            "high": interval.high,
        }
    said = "; ".join(
        f"`{name}` {row['rate']:.3f} [{row['low']:.3f}, {row['high']:.3f}] of {row['tasks']}"
        for name, row in rows.items()
    )
    return {
        "success": rows,
        "told": f"Success in the real worlds, one rollout of each held-out task at temperature 1 (95 % "
        f"Wilson intervals): {said}. It is told the task alone, not what the folder or the tables hold.",
    }
