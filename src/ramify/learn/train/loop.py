"""Improve a local policy by group policy gradient on rollout trees, one readable loop."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ramify.core.errors import BadInput
from ramify.core.fork.arm import graded
from ramify.core.grow import Group, RandomNode, grow_trees
from ramify.core.policy.base import Sampling
from ramify.core.policy.local import LocalPolicy
from ramify.core.policy.noise import stream_of
from ramify.core.run.progress import Progress, silent
from ramify.core.tree.node import Trajectory
from ramify.core.tree.tree import Tree
from ramify.core.types import Json
from ramify.core.world.base import Task, World
from ramify.learn.credit.segments import tree_advantages
from ramify.learn.train.batch import trajectories_to_batch
from ramify.learn.train.policy_gradient import PolicyGradientSettings, policy_gradient_step


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTraining:
    """Settings of :func:`improve`.

    Each update grows a tree of ``leaves`` rollouts (``roots`` of them from the task) for each of
    ``tasks`` tasks, then takes ``passes`` gradient steps on them. ``local`` weighs segment credit.
    """

    updates: int = 8
    tasks: int = 24
    roots: int = 4
    leaves: int = 8
    at_once: int = 2
    passes: int = 1
    learning_rate: float = 5e-4
    local: float = 1.0
    seed: int = 0
    gradient: PolicyGradientSettings = field(default_factory=PolicyGradientSettings)


@dataclass(frozen=True, slots=True)
class Update:
    """What one update saw and did; ``success`` is of the rollouts that began at a task."""

    number: int
    success: float
    mixed: float
    tokens: int
    seconds: float
    metrics: Json


def improve(
    tree: Tree,
    policy: LocalPolicy,
    world: World,
    tasks: Sequence[Task],
    plan: TreeTraining,
    settings: Sampling,
    progress: Progress = silent,
) -> Iterator[Update]:
    """Train the policy in place, yielding after every update.

    Tasks are taken in turn. Every rollout is on the tree; a call that was stopped, begun again with the
    same weights, finds its rollouts recorded and repeats only the gradient steps.

    Raises BadInput where settings have filters: the gradient is of the law at temperature 1.
    """
    if (settings.temperature, settings.top_k, settings.top_p) != (1.0, None, None):
        raise BadInput("training needs rollouts at temperature 1 without top-k or top-p", where="sampling")
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=plan.learning_rate, weight_decay=0.0)
    selector = RandomNode(plan.seed, plan.roots, plan.at_once)
    for number in range(plan.updates):
        started = time.monotonic()
        first = number * plan.tasks
        chosen = [tasks[(first + i) % len(tasks)] for i in range(min(plan.tasks, len(tasks)))]
        # Noise of its own for every update: a policy trained on numbers must not be sampled with them.
        noise = stream_of("update", plan.seed, number) >> 32
        groups, _ = grow_trees(
            tree, policy, world, chosen, selector=selector, leaves=plan.leaves, settings=settings,
            seed=noise, progress=_named(progress, f"update {number + 1}"),
        )  # fmt: skip
        metrics = _learn(policy.model, optimizer, groups, plan)
        policy.refresh()
        at_task = [v for g in groups for arm in g.forks if arm.point == g.root for v in arm.values()]
        yield Update(
            number + 1,
            float(np.nanmean(graded(at_task))),
            float(np.mean([len({v for v in g.values() if v is not None}) > 1 for g in groups])),
            sum(g.tokens for g in groups),
            time.monotonic() - started,
            metrics,
        )


def _named(progress: Progress, name: str) -> Progress:
    def report(
        stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        progress(f"{name}: {stage}", done, total, tokens=tokens, waiting=waiting)

    return report


def group_walks(group: Group) -> tuple[list[Trajectory], list[float]]:
    """The trajectories of a group that did not fail, and their outcomes (NaN: ungraded)."""
    walks: list[Trajectory] = []
    outcomes: list[float] = []
    for arm in group.forks:
        values = graded(arm.values())
        for draw, walk, value in zip(arm.draws, arm.leaves(), values, strict=True):
            if draw.end != "error":
                walks.append(walk)
                outcomes.append(float(value))
    return walks, outcomes


def _learn(model: Any, optimizer: torch.optim.Optimizer, groups: Sequence[Group], plan: TreeTraining) -> Json:
    walks: list[Trajectory] = []
    advantages: list[Any] = []
    for group in groups:
        mine, outcomes = group_walks(group)
        if len({o for o in outcomes if not np.isnan(o)}) > 1:
            walks += mine
            advantages += tree_advantages(mine, outcomes, local=plan.local)
    if not walks:
        return {"skipped": "every group was all-fail or all-pass"}
    batch = trajectories_to_batch(walks, advantages)
    metrics: Json = {}
    for _ in range(plan.passes):
        metrics = policy_gradient_step(model, optimizer, batch, plan.gradient)
    return metrics
