"""How good a conductor is: plans that run, right answers as sampled and as expected, calls and cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork import stats
from refork.errors import BadInput
from refork.growing import grow
from refork.policies.base import Policy, Sampling
from refork.progress import Progress, silent
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task
from refork_methods.route.conduct.coins import Coins, every_outcome
from refork_methods.route.conduct.world import ConductWorld, Planned

#: A world whose workers take their chance from these coins.
Worlds = Callable[[Coins], ConductWorld]


@dataclass(frozen=True, slots=True)
class Written:
    """A plan that a conductor wrote for a task, and which draw of it this is."""

    task: Task
    text: str
    draw: int


def written_plans(
    policy: Policy,
    world: ConductWorld,
    tasks: Sequence[Task],
    *,
    draws: int = 1,
    settings: Sampling | None = None,
    seed: int = 0,
    tree: Tree | None = None,
    progress: Progress = silent,
) -> list[Written]:
    """What a policy plans for some tasks, ``draws`` times each; its rollouts go on ``tree``."""
    settings = settings or Sampling(max_tokens=256)
    with Tree.memory() as scratch:
        groups = grow(
            tree if tree is not None else scratch, policy, world, tasks, draws=draws, settings=settings,
            seed=seed, tasks_at_once=len(tasks), progress=progress,
        )  # fmt: skip
        found = []
        for task, group in zip(tasks, groups, strict=True):
            for number, trajectory in enumerate(
                trajectory for arm in group.forks for trajectory in arm.leaves()
            ):
                said = next((s.node.text for s in trajectory if s.node.kind == "action"), "")
                found.append(Written(task, said, number))
    return found


def expected_quality(worlds: Worlds, task: Task, text: str) -> float:
    """The expected quality of a plan's answer: its run over every outcome of the workers' chance.

    0 where the plan cannot run. Raises: BadInput where a run cannot be graded.
    """

    def once(coins: Coins) -> float:
        done = worlds(coins).play(task, text)
        if done.execution is not None and done.quality is None:
            raise BadInput("a run could not be graded", where=f"task {task.id}")
        return done.quality or 0.0

    return math.fsum(weight * quality for weight, quality in every_outcome(once))


@final
@dataclass(frozen=True, slots=True)
class Evaluation:
    """Of some plans: how many ``run`` (read and valid), how many answers were right, and what they took.

    ``accuracy`` is of the sampled runs that were graded (None where none was); its interval and that of
    ``run`` count queries, not plans. ``expected`` is the exact mean over all of the workers' chance (None
    where it cannot be had). ``calls`` is per plan that ran; ``seconds``, ``tokens`` and
    ``money`` of workers are per plan too, None where unknown. ``failed`` runs were not graded.
    """

    plans: int
    run: stats.Interval
    accuracy: stats.Interval | None
    expected: float | None
    calls: float
    failed: int
    seconds: float | None
    tokens: float | None
    money: float | None

    def to_json(self) -> Json:
        """Plain fields."""
        right = self.accuracy
        return {
            "plans": self.plans,
            "run": self.run.estimate,
            "run_low": self.run.low,
            "accuracy": None if right is None else right.estimate,
            "accuracy_low": None if right is None else right.low,
            "accuracy_high": None if right is None else right.high,
            "expected": self.expected,
            "calls": self.calls,
            "failed": self.failed,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "money": self.money,
        }


def evaluate(world: ConductWorld, plans: Sequence[Written], worlds: Worlds | None = None) -> Evaluation:
    """Run and grade every plan once; ``worlds`` adds exact expectations where the workers' chance is known.

    Raises: BadInput for no plan.
    """
    if not plans:
        raise BadInput("there is no plan to evaluate")
    done = [world.play(one.task, one.text, one.draw) for one in plans]
    ran = [one for one in done if one.execution is not None]
    # Plans for one query, drawn again or in a later round over the queries, are no independent answers.
    queries = [world.query_of(one.task).id for one in plans]
    graded = [n for n, one in enumerate(done) if _graded(one)]
    rights = [float((done[n].quality or 0.0) >= 1.0) for n in graded]
    runs = np.array([float(one.execution is not None) for one in done])
    return Evaluation(
        plans=len(plans),
        run=stats.clustered_mean(runs, queries),
        accuracy=stats.clustered_mean(np.array(rights), [queries[n] for n in graded]) if graded else None,
        expected=None if worlds is None else _expected(worlds, plans),
        calls=float(np.mean([one.execution.calls for one in ran if one.execution])) if ran else 0.0,
        failed=len(done) - len(graded),
        seconds=_mean([one.execution.cost.seconds for one in ran if one.execution]),
        tokens=_mean([_tokens(one) for one in ran]),
        money=_mean([one.execution.bill.total for one in ran if one.execution]),
    )


def _graded(one: Planned) -> bool:
    """Whether it counts: a plan that cannot run is a wrong answer, a worker's failure is none."""
    return one.execution is None or one.quality is not None


def _tokens(one: Planned) -> float | None:
    assert one.execution is not None
    cost = one.execution.cost
    return None if cost.tokens_in is None or cost.tokens_out is None else cost.tokens_in + cost.tokens_out


def _expected(worlds: Worlds, plans: Sequence[Written]) -> float:
    known: dict[tuple[str, str], float] = {}
    for one in plans:
        # An expectation goes through every outcome, and equal plans have the same one.
        key = (one.task.id, one.text)
        if key not in known:
            known[key] = expected_quality(worlds, one.task, one.text)
    return math.fsum(known[(one.task.id, one.text)] for one in plans) / len(plans)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
