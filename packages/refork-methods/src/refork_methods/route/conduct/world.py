"""Conducting as a world: the task is a query with the workers that are open, the action is a plan.

So a conductor is a policy like any other, and any trainer of policies trains it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from refork.errors import BadInput
from refork.worlds.base import Split, Task
from refork.worlds.dice import digest
from refork.worlds.game import need
from refork_methods.route.conduct.conductor import SELF, asked
from refork_methods.route.conduct.episode import PlanEpisode
from refork_methods.route.conduct.execute import Execution, ReplyCache, execute
from refork_methods.route.conduct.plan import MOST_STEPS, Plan
from refork_methods.route.conduct.queries import Queries, Query, query_to_json
from refork_methods.route.conduct.reward import RUNS, Reward
from refork_methods.route.pool import WorkerPool


@final
@dataclass(frozen=True, slots=True)
class Planned:
    """What became of a plan's text: its plan and run where it could run, else why not; and the reward."""

    reward: float | None
    execution: Execution | None = None
    quality: float | None = None
    fault: str | None = None


@final
@dataclass(frozen=True)
class ConductWorld:
    """Queries that are answered by a pool of workers under a written plan.

    ``sizes``: every task offers a random sub-pool, its size drawn from these and its workers from those that
    are open, anew for each task from the seed; () offers all. ``rounds`` above 1 lets a plan name ``self`` as
    a worker: its subtask then comes back as the next task, and the answer of that plan is the step's; in the
    last round ``self`` is no longer offered. ``ask`` words how a conductor is asked.

    Raises: BadInput for sizes that the pool does not have, or costs above what a plan earns.
    Source: arXiv:2512.04388 (random subsets of the pool, recursion); arXiv:2606.21228.
    """

    queries: Queries
    pool: WorkerPool
    reward: Reward = field(default_factory=Reward)
    sizes: tuple[int, ...] = ()
    rounds: int = 1
    most: int = MOST_STEPS
    ask: Callable[[str, Sequence[str]], str] = asked
    deterministic = False

    def __post_init__(self) -> None:
        wrong = [size for size in self.sizes if not 1 <= size <= len(self.pool.open)]
        if wrong:
            raise BadInput(f"a sub-pool of {wrong[0]} from {len(self.pool.open)} open workers")
        if self.rounds < 1 or self.most < 1:
            raise BadInput("a conductor needs at least one round and one step")
        if self.reward.per_call * self.most >= RUNS:
            raise BadInput(f"{self.most} calls at {self.reward.per_call} each cost more than a plan earns")
        if self.rounds > 1 and SELF in self.pool.names:
            raise BadInput(f"a worker is named {SELF!r}, which stands for the conductor")

    @property
    def name(self) -> str:
        """``conduct:QUERIES``."""
        return f"conduct:{self.queries.name}"

    @property
    def version(self) -> str:
        """Of the code, and of all that decides what a plan earns."""
        return "1-" + digest(self.reward.to_json(), self.pool.names, self.rounds, self.most)[:8]

    @property
    def max_turns(self) -> int:
        """Every round is a turn, and a plan may name ``self`` in each of its steps."""
        return sum(self.most**depth for depth in range(self.rounds))

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        """Queries with the workers that each may use."""
        rng = np.random.default_rng([seed, 0 if split == "train" else 1])
        return [self.task(query, rng) for query in self.queries.draw(split, count, seed)]

    def task(self, query: Query, rng: np.random.Generator | None = None) -> Task:
        """One query as a task; ``rng`` draws its sub-pool where the world has sizes."""
        pool = self.pool
        if self.sizes and rng is not None:
            pool = pool.subset(rng, self.sizes[int(rng.integers(len(self.sizes)))])
        prompt = self.ask(query.text, self.offered(pool.open, self.rounds))
        name = digest(self.name, query.id, pool.open)[:12]
        data = {"query": query_to_json(query), "open": list(pool.open)}
        return Task(f"{self.name}/{name}", self.name, query.split, prompt, data)

    def offered(self, names: Sequence[str], rounds: int) -> list[str]:
        """Names that a plan may use with so many rounds left."""
        return [*names, *([SELF] if rounds > 1 else [])]

    def start(self, task: Task, seed: int) -> PlanEpisode:
        """Begin; ``seed`` is the draw of the workers."""
        return PlanEpisode(self, task, seed)

    def restore(self, task: Task, snapshot: bytes) -> PlanEpisode:
        """The episode after the plans that a snapshot holds. Raises BadInput for another task's."""
        try:
            record = json.loads(snapshot)
            seed, said, other = int(record["seed"]), list(record["said"]), record["task"]
        except (ValueError, TypeError, KeyError) as error:
            raise BadInput(f"not a snapshot of {self.name}: {error!r}", where=f"task {task.id}") from error
        if other != task.id:
            raise BadInput(f"the snapshot is of task {other!r}", where=f"task {task.id}")
        episode = PlanEpisode(self, task, seed)
        for action in said:
            episode.step(action)
        return episode

    def query_of(self, task: Task) -> Query:
        """The query of a task."""
        need(task.data, ("query", "open"), self.name)
        given = task.data["query"]
        split: Split = "train" if task.split == "train" else "held-out"
        return Query(str(given["id"]), str(given["text"]), split, dict(given["data"]))

    def pool_of(self, task: Task) -> WorkerPool:
        """The pool as the task leaves it."""
        need(task.data, ("query", "open"), self.name)
        return replace(self.pool, opted_out=frozenset(self.pool.names) - set(task.data["open"]))

    def play(self, task: Task, text: str, draw: int = 0, cache: ReplyCache | None = None) -> Planned:
        """Read, run and grade one plan's text (no recursion)."""
        pool = self.pool_of(task)
        try:
            plan = Plan.parse(text, pool.open).validate(pool, self.most)
        except BadInput as fault:
            return Planned(0.0, fault=fault.what)
        return self.graded(task, execute(plan, pool, draw=draw, most=self.most, cache=cache))

    def graded(self, task: Task, execution: Execution) -> Planned:
        """A run with its quality and reward."""
        answer = execution.answer
        quality = None if answer is None else self.queries.quality(self.query_of(task), answer)
        return Planned(self.reward.of(execution, quality), execution, quality)
