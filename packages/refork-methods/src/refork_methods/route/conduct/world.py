"""Conducting as a world: the task is a query with the workers that are open, the action is a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, final

import numpy as np

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.policies.base import Cost
from refork.types import Json
from refork.worlds.base import Observation, Split, Task
from refork.worlds.dice import Dice, digest, split_of
from refork.worlds.game import need
from refork_methods.route.conduct.conductor import DRAWS, SELF, Conducted, asked, with_self
from refork_methods.route.conduct.execute import Execution, ReplyCache, execute
from refork_methods.route.conduct.plan import MOST_STEPS, Plan
from refork_methods.route.pool import WorkerPool

# Where queries come from, and who says that an answer is right: any collection, such as a file of them.


@dataclass(frozen=True, slots=True)
class Query:
    """One thing to be answered; ``data`` is what its grader needs."""

    id: str
    text: str
    split: Split = "train"
    data: Json = field(default_factory=dict)


class Queries(Protocol):
    """Where queries come from, and who says whether an answer is right."""

    @property
    def name(self) -> str:
        """Of the collection."""
        ...

    def draw(self, split: Split, count: int, seed: int) -> Sequence[Query]:
        """``count`` queries, in rounds over all there are where there are fewer."""
        ...

    def quality(self, query: Query, answer: str) -> float | None:
        """How right an answer is, in [0, 1]; None where that cannot be said."""
        ...


def query_to_json(query: Query) -> Json:
    """All fields but the split."""
    return {"id": query.id, "text": query.text, "data": query.data}


@final
class FileQueries:
    """Questions with one right answer each, from JSON lines ``{"query": ..., "answer": ..., "id"?: ...}``.

    An answer is right where it is the same text, white space and case aside. The digest of a query decides
    its split. Raises BadInput for a missing field, an id that comes twice or no query at all.
    """

    def __init__(self, rows: Sequence[Mapping[str, object]], name: str = "file") -> None:
        self.name = name
        self._queries: list[Query] = []
        seen: set[str] = set()
        for number, row in enumerate(rows, 1):
            if not isinstance(row.get("query"), str) or "answer" not in row:
                raise BadInput("a query needs a text and an answer", where=f"{name}, row {number}")
            text, label = str(row["query"]), str(row.get("id", number))
            if label in seen:
                raise BadInput(f"the id {label!r} comes twice", where=f"{name}, row {number}")
            seen.add(label)
            self._queries.append(Query(label, text, split_of(text), {"answer": str(row["answer"])}))
        if not self._queries:
            raise BadInput("there is no query", where=name)

    @classmethod
    def read(cls, path: Path | str) -> FileQueries:
        """The queries of a file."""
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        return cls([row for _, row in json_objects(lines, str(path))], Path(path).stem)

    def draw(self, split: Split, count: int, seed: int) -> list[Query]:
        """Queries of the split in seeded order. Raises BadInput where it has none."""
        kept = [query for query in self._queries if query.split == split]
        if not kept:
            raise BadInput(f"no query of {self.name} is {split}", hint="give more queries")
        return in_rounds(Dice("queries", self.name, split, seed).sample(kept, len(kept)), count)

    def quality(self, query: Query, answer: str) -> float:
        """1 where the answer is the same text."""
        right = str(query.data.get("answer", ""))
        return float(" ".join(answer.split()).lower() == " ".join(right.split()).lower())


def in_rounds(queries: Sequence[Query], count: int) -> list[Query]:
    """``count`` of them, from the first again where they are fewer."""
    return [queries[place % len(queries)] for place in range(count)]


# What a plan earns: 0 where it cannot run, one half where it runs and is wrong, 1 where it is right.

#: What a plan earns that runs.
RUNS = 0.5


@final
@dataclass(frozen=True, slots=True)
class Reward:
    """``0``, ``0.5`` or ``1``, less what the calls cost.

    ``per_call`` is taken off for every call of a worker, ``per_money`` for every unit of money. A plan that
    cannot run earns 0 whatever it would have cost.

    Raises: BadInput for a negative cost, or one per call so high that refusing to plan pays (five calls must
    leave something of the half).

    Source: arXiv:2512.04388 (0, 0.5, 1); the cost terms are ours.
    """

    per_call: float = 0.0
    per_money: float = 0.0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value >= 0 for value in (self.per_call, self.per_money)):
            raise BadInput("costs must be finite and 0 or more", where="reward")
        if self.per_call * MOST_STEPS >= RUNS:
            raise BadInput(
                f"at {self.per_call} per call a plan of {MOST_STEPS} steps earns less than no plan",
                hint=f"below {RUNS / MOST_STEPS}",
            )

    def of(self, execution: Execution | None, quality: float | None) -> float | None:
        """The reward of a run; ``quality`` in [0, 1] is how right its answer is. None: cannot be graded.

        A worker's failure is not the plan's: without an answer nothing is graded. Nor is it where money
        counts and a price is unknown.

        Raises: BadInput for a quality that is NaN or outside [0, 1].
        """
        if execution is None:
            return 0.0
        if execution.answer is None or quality is None:
            return None
        if not 0 <= quality <= 1:
            raise BadInput(f"the quality of an answer is {quality!r}; it must lie in [0, 1]")
        spent = self.per_call * execution.calls
        if self.per_money > 0:
            money = execution.bill.total
            if money is None:
                return None
            spent += self.per_money * money
        return RUNS + (1 - RUNS) * quality - spent

    def to_json(self) -> Json:
        """Plain fields."""
        return {"per_call": self.per_call, "per_money": self.per_money}


# One query under one conductor: a plan, and a plan more for every step that asks the conductor itself.

#: The plan of a later round is a turn of the rollout, and costs what that says.
_ON_THE_ROLLOUT = Cost(0, 0, 0.0, 0.0)


class _NeedsPlan(BaseException):
    """A step asks the conductor, and it has not said that plan yet.

    No error of a worker, though it passes through one: hence no ``Exception``, which a pool makes data of.
    """

    def __init__(self, query: str, rounds: int) -> None:
        self.query, self.rounds = query, rounds
        super().__init__(query)


class _Refused(BaseException):
    """A plan cannot run; passes through workers as the other one does."""


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
            # A plan inside a plan comes as a later action: the whole script runs anew, its calls remembered.
            self._said.append(action)
            self._seen = self._play()
        return self._seen

    def _play(self) -> Observation:
        script = list(self._said)
        try:
            execution = self._run(script, self._world.rounds, self._draw)
        except _NeedsPlan as asks:
            offered = self._world.offered(self._pool.open, asks.rounds)
            return Observation(asked(asks.query, offered), info={"rounds_left": asks.rounds})
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
        # Answers that were given stay: a plan that was run cannot be run again with other chance.
        if not self._said:
            self._draw = seed % DRAWS

    def close(self) -> None:
        """Nothing is held."""


# Conducting as a world: the task is a query with the workers that are open, the action is a plan.
#
# So a conductor is a policy like any other, and any trainer of policies trains it.


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
    last round ``self`` is no longer offered.

    Raises: BadInput for sizes that the pool does not have, or costs above what a plan earns.
    Source: arXiv:2512.04388 (random subsets of the pool, recursion); arXiv:2606.21228.
    """

    queries: Queries
    pool: WorkerPool
    reward: Reward = field(default_factory=Reward)
    sizes: tuple[int, ...] = ()
    rounds: int = 1
    most: int = MOST_STEPS
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
        return "2-" + digest(self.reward.to_json(), self.pool.identity, self.rounds, self.most)[:8]

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
        prompt = asked(query.text, self.offered(pool.open, self.rounds))
        # Text and answer are part of the task, and the workers on offer: an id says nothing of another file.
        name = digest(self.name, query_to_json(query), pool.open)[:12]
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
