"""Grow rollouts of a policy in a world: independent ones, or a tree that a selector shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from refork.errors import BadInput, CannotDo
from refork.forking.arm import Fork, ReadyArm, prepare, run_jobs
from refork.forking.settings import DrawOptions, ForkSettings, takes_fork_settings
from refork.growing.allocator import AdaptiveBudgetAllocator
from refork.growing.growing import Budget, Growing, GrowSetup, Logged, settings_for
from refork.growing.plant import plant
from refork.growing.selector import Selector, needs_of
from refork.growing.speculate import Speculation, grow_speculatively
from refork.policies.base import Policy, Sampling
from refork.tree.node import Point
from refork.tree.tree import Tree
from refork.worlds.base import Task, World


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one task made by one call: the group of group-relative credit.

    ``biased``: why means over its leaves or nodes are no unbiased estimates of the task's success (what
    was drawn depended on outcomes); None where that is not so.
    """

    task: Task
    root: Point
    forks: tuple[Fork, ...]
    biased: str | None = None

    def values(self, score: str = "success") -> list[float | None]:
        """Scores of all leaves; None where ungraded."""
        return [value for arm in self.forks for value in arm.values(score)]

    @property
    def tokens(self) -> int:
        """Tokens sampled by this call."""
        return sum(arm.tokens for arm in self.forks)


@takes_fork_settings
def grow(
    tree: Tree,
    policy: Policy,
    world: World,
    tasks: Sequence[Task],
    *,
    draws: int,
    settings: Sampling,
    tasks_at_once: int = 64,
    **options: Unpack[DrawOptions],
) -> list[Group]:
    """Draw ``draws`` independent rollouts of every task; what is on the tree already is not redone.

    Tasks go in blocks of ``tasks_at_once``, each one batch; every round of a block is committed. On a
    ``backend`` its workers draw, and every unit of work is committed.
    """
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    if not tasks:
        raise BadInput("there is no task to grow from", where=world.name)
    on = ForkSettings(settings=settings, world=world, **options)
    groups: list[Group] = []
    for first in range(0, len(tasks), tasks_at_once):
        block = tasks[first : first + tasks_at_once]
        points = plant(tree, policy, world, block)
        jobs = [prepare(point, policy, draws, **on.options()) for point in points]
        stage = "rollouts" if len(tasks) <= tasks_at_once else f"rollouts {first + 1}-{first + len(block)}"
        arms = run_jobs(jobs, judge=on.judge, progress=on.progress, stage=stage, backend=on.backend)
        # An earlier call may have drawn more of the same arm; a group holds what this one asked for.
        kept = [replace(arm, draws=tuple(d for d in arm.draws if d.draw < draws)) for arm in arms]
        groups += [Group(t, p, (a,)) for t, p, a in zip(block, points, kept, strict=True)]
    return groups


@takes_fork_settings
def grow_trees(
    tree: Tree,
    policy: Policy,
    world: World,
    tasks: Sequence[Task],
    *,
    selector: Selector,
    leaves: int | None = None,
    tokens: int | None = None,
    floor: float | None = None,
    settings: Sampling,
    allocator: AdaptiveBudgetAllocator | None = None,
    speculation: Speculation | None = None,
    **options: Unpack[DrawOptions],
) -> tuple[list[Group], list[Logged]]:
    """Grow a tree of rollouts per task, the selector choosing where each one starts.

    All tasks share every batch. A selector sees only what this call has drawn, so the same call again
    finds the same choices recorded and draws nothing. Returns the groups and the log of choices.

    ``leaves``, ``tokens`` and ``floor`` are the budget of one task, see :class:`Budget`. ``allocator`` moves
    leaves between tasks after the first round; with ``speculation``, new rollouts begin while others of
    the same task still run. Entropies that the selector needs are recorded even where ``settings`` do not
    ask for them; what a selector has to guess from less is said in its candidates' ``note``.

    Raises:
        BadInput: no task, or a budget that is none.
        CannotDo: the policy lacks what the selector needs, the world cannot be forked, or speculation is
            asked of a backend.
    """
    budget = Budget(leaves, tokens, floor)
    budget.check(settings)
    if not tasks:
        raise BadInput("there is no task to grow from", where=world.name)
    sampling = settings_for(needs_of(selector), settings, policy.card)
    on = ForkSettings(settings=sampling, world=world, **options)
    plan = GrowSetup(tree, policy, world, selector, sampling, on)
    roots = plant(tree, policy, world, tasks)
    growing = [Growing(task, root, budget) for task, root in zip(tasks, roots, strict=True)]
    log: list[Logged] = []
    if speculation is not None:
        if allocator is not None:
            raise BadInput("an allocator and speculation cannot be combined", hint="use one of them")
        if on.backend is not None:
            raise CannotDo(
                "speculation decides after every turn, and a backend answers after whole rollouts",
                hint="leave --backend or the staleness away",
            )
        grow_speculatively(plan, growing, speculation, log, judge=on.judge, progress=on.progress)
    else:
        _grow_in_rounds(plan, growing, log, allocator)
    if allocator is not None:
        allocator.observe(plan, growing)
    reason = _bias(selector, budget, allocator)
    return [Group(one.task, one.root, one.kept_arms(), reason) for one in growing], log


def _bias(selector: Selector, budget: Budget, allocator: AdaptiveBudgetAllocator | None) -> str | None:
    """Why what is drawn depends on outcomes; None where it does not."""
    if needs_of(selector).adaptive:
        return f"{selector.name} chose points by the outcomes below them"
    if allocator is not None:
        return "the number of leaves depends on the first outcomes"
    return "growing stopped early by outcomes" if budget.floor is not None else None


def _grow_in_rounds(
    plan: GrowSetup,
    growing: Sequence[Growing],
    log: list[Logged],
    allocator: AdaptiveBudgetAllocator | None,
) -> None:
    """Every round, each task's choices; all of them are one batch."""
    on, round_ = plan.on, 0
    while True:
        jobs: list[ReadyArm] = []
        owners: list[tuple[Growing, list[int]]] = []
        for one in growing:
            for pick, point in one.choose(plan, round_):
                job, mine = one.job(plan, point, pick.draws)
                jobs.append(job)
                owners.append((one, mine))
                log.append(Logged(one.task.id, round_, pick, point.address))
        if not jobs:
            return
        arms = run_jobs(jobs, judge=on.judge, stage=f"growing, round {round_}", backend=on.backend)
        counted: set[str] = set()
        for (one, mine), arm in zip(owners, arms, strict=True):
            wanted = set(mine)
            # Two choices of one point in a round are one arm, whose cost both jobs report.
            again = arm.record.id in counted
            one.add_arm(replace(arm, tokens=0, ties=0, seconds=0.0) if again else arm)
            counted.add(arm.record.id)
            one.take(plan, [d for d in arm.draws if d.draw in wanted])
        if allocator is not None and round_ == 0:
            allocator.allot(plan, growing)
        done, total = (sum(part) for part in zip(*(one.used for one in growing), strict=True))
        on.progress("growing", done, total, tokens=sum(one.tokens for one in growing))
        round_ += 1
