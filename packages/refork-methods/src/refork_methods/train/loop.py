"""Improve a local policy by group policy gradient on rollout trees, one readable loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from refork.errors import BadInput
from refork.forking.arm import graded
from refork.growing import Group, Independent, RandomNode, Selector, grow_trees
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.progress import Progress, silent
from refork.sampling.noise import stream_of
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.types import Json
from refork.worlds.base import Task, World
from refork_methods.credit.methods import Credit, credit_method, shared_mean
from refork_methods.train.batch import sampled_tokens, trajectories_to_batch
from refork_methods.train.checkpoint import latest_checkpoint, resume, save_checkpoint
from refork_methods.train.objectives import Overlong, PolicyGradientSettings, overlong_penalty
from refork_methods.train.policy_gradient import policy_gradient_step
from refork_methods.train.schedule import Schedule, adamw, set_rate
from refork_methods.train.tracker import Tracker

#: A selector for an update, from a seed of its own; or a name that stands for one.
Grower = Callable[[int], Selector] | Selector | Literal["independent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTraining:
    """Settings of :func:`train_route`.

    Each update grows a tree of ``leaves`` rollouts for each of ``tasks`` tasks, taken in turn; with
    ``budget``, further blocks of ``tasks`` tasks, until the run has sampled ``budget`` tokens per update (a
    block that began is finished, and what it is over is taken off the next update). ``roots`` and
    ``at_once`` shape the default selector, a random node. Then ``passes`` times over the rollouts, in
    ``minibatches`` parts, one gradient step each. ``local`` weighs the default credit's stretches.
    ``shared``: a token that several trajectories share is learned ``once``, with the mean of their
    advantages, or in ``each`` of them. ``overlong``: rollouts that ran into their limit count like any
    (``keep``), are not learned from (``mask``), or lose reward over the last ``soft`` of ``longest`` tokens
    (``soft``). ``schedule`` None: a constant ``learning_rate``.
    """

    updates: int = 8
    tasks: int = 24
    roots: int = 4
    leaves: int = 8
    at_once: int = 2
    passes: int = 1
    minibatches: int = 1
    budget: int | None = None
    learning_rate: float = 5e-4
    schedule: Schedule | None = None
    weight_decay: float = 0.0
    local: float = 1.0
    shared: Literal["once", "each"] = "once"
    overlong: Overlong = "keep"
    longest: int | None = None
    soft: int | None = None
    seed: int = 0
    gradient: PolicyGradientSettings = field(default_factory=PolicyGradientSettings)

    def __post_init__(self) -> None:
        for name in ("updates", "tasks", "leaves", "passes", "minibatches"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; it must be at least 1", where="training")
        if self.budget is not None and self.budget < 1:
            raise BadInput(f"the budget is {self.budget} tokens; it must be at least 1", where="training")
        if self.shared not in ("once", "each") or self.overlong not in ("keep", "mask", "soft"):
            raise BadInput("shared is once or each; overlong is keep, mask or soft", where="training")
        if self.overlong == "soft" and not (self.longest and self.soft):
            raise BadInput("a soft overlong penalty needs longest and soft, in tokens", where="training")

    def rates(self) -> Schedule:
        """The schedule that is used."""
        return self.schedule or Schedule(peak=self.learning_rate)


@dataclass(frozen=True, slots=True)
class Update:
    """What one update saw and did.

    ``success`` is of the rollouts that began at a task; ``mixed`` the share of groups with different
    outcomes; ``tokens`` were sampled by this call, ``cost`` is the sampled tokens of all its rollouts,
    recorded or new; ``spent`` is the cost of the run so far.
    """

    number: int
    success: float
    mixed: float
    tokens: int
    seconds: float
    metrics: Json
    cost: int = 0
    spent: int = 0

    def to_json(self) -> Json:
        """Plain fields; a success that is not known is None."""
        plain = asdict(self)
        return plain | {"success": None if np.isnan(self.success) else self.success}

    def flat(self) -> Json:
        """Plain fields with the metrics among them, as trackers take them."""
        plain = self.to_json()
        return {k: v for k, v in plain.items() if k != "metrics"} | self.metrics


def train_policy(
    tree: Tree,
    policy: LocalPolicy,
    world: World,
    tasks: Sequence[Task],
    plan: TreeTraining,
    settings: Sampling,
    progress: Progress = silent,
    *,
    grower: Grower | None = None,
    credit: Credit | None = None,
    folder: Path | None = None,
    every: int = 1,
    digest: str = "",
    tracker: Tracker | None = None,
    resumed: Callable[[Json], None] | None = None,
) -> Iterator[Update]:
    """Train the policy in place, yielding after every update.

    Every rollout is on the tree: a stopped call, begun again with the same weights, repeats only the gradient
    steps. With ``folder`` it goes on from the last checkpoint instead, bit for bit as if never stopped;
    updates that are done are not yielded again (:func:`finished_updates` reads them).

    Args:
        tree: takes the rollouts.
        policy: a local model.
        world: where it acts.
        tasks: taken in turn, over and over.
        plan: of the run.
        settings: how rollouts are sampled; temperature 1 without filters.
        progress: told of rollouts as they grow.
        grower: a selector, one per update from a seed, or ``independent``; None: a random node.
        credit: trajectories of one task and their outcomes to advantages; None: sibling credit.
        folder: of checkpoints.
        every: updates between them.
        digest: what the run is, so that another does not resume it.
        tracker: told of every update.
        resumed: told of the last finished update (plain fields) once the policy is in its state: what a
            stopped run did not come to do with it can still be done.

    Raises:
        BadInput: settings with filters (the gradient is of the distribution itself), or a KL weight without
        reference.
        Mismatch: the folder holds checkpoints of another run.
    """
    _check(policy, tasks, plan, settings)
    optimizer = adamw(policy.model, plan.rates(), weight_decay=plan.weight_decay)
    chosen = credit or credit_method("siblings", local=plan.local)
    run = _Run(tree, policy, world, tasks, plan, settings, grower, chosen)
    place = _resumed(folder, digest, policy, optimizer)
    if resumed is not None and place.done:
        resumed(place.done[-1])
    while place.update < plan.updates:
        started, number = time.monotonic(), place.update
        groups, place = run.grow(place, _named(progress, f"update {number + 1}"))
        metrics = run.learn(optimizer, groups, number)
        policy.refresh()
        update = _update(number + 1, groups, metrics, place, time.monotonic() - started)
        place = replace(place, update=number + 1, done=[*place.done, update.to_json()])
        if tracker is not None:
            tracker.log(update.number, update.flat())
        if folder is not None and (update.number % every == 0 or update.number == plan.updates):
            _save(folder, policy, optimizer, place, digest)
        yield update


@dataclass(frozen=True, slots=True)
class _LoopState:
    """Where a run is: the next update and task, tokens sampled so far and by the last update."""

    update: int = 0
    task: int = 0
    spent: int = 0
    cost: int = 0
    done: list[Json] = field(default_factory=list)


def _resumed(
    folder: Path | None, digest: str, policy: LocalPolicy, optimizer: torch.optim.Optimizer
) -> _LoopState:
    """Where a run's folder says it is, policy and optimizer in the state of then."""
    position = resume(folder, digest, policy.model, optimizer)
    if position is None:
        return _LoopState()
    policy.refresh()
    return _LoopState(**position["place"])


def _save(
    folder: Path, policy: LocalPolicy, optimizer: torch.optim.Optimizer, place: _LoopState, digest: str
) -> None:
    position = {"digest": digest, "place": asdict(place)}
    save_checkpoint(folder, place.update, policy.model, optimizer, position)


def _update(number: int, groups: Sequence[Group], metrics: Json, place: _LoopState, seconds: float) -> Update:
    at_task = [v for g in groups for arm in g.forks if arm.point == g.root for v in arm.values()]
    mixed = [len({v for v in g.values() if v is not None}) > 1 for g in groups]
    return Update(
        number, _mean(graded(at_task)), float(np.mean(mixed)), sum(g.tokens for g in groups), seconds,
        metrics, place.cost, place.spent,
    )  # fmt: skip


def finished_updates(folder: Path) -> list[Json]:
    """The updates that the last checkpoint of a run has behind it, as plain fields."""
    saved = latest_checkpoint(folder)
    return [] if saved is None else list(saved.position["place"]["done"])


def _check(policy: LocalPolicy, tasks: Sequence[Task], plan: TreeTraining, settings: Sampling) -> None:
    if settings.but(banned=()).distribution != Sampling().distribution:
        raise BadInput(
            "training needs rollouts at temperature 1 without top-k, top-p, min-p or penalties",
            where="sampling",
        )
    if not tasks:
        raise BadInput("there is no task to train on", where="training")
    if plan.gradient.kl_weight > 0 and policy.reference is None:
        raise BadInput(
            "kl_weight is set, but the policy has no reference",
            where="training",
            hint="load it as hf:DIR+reference=DIR2, or set kl_weight to 0",
        )


def _mean(values: Any) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


@dataclass(frozen=True, slots=True)
class _Run:
    """What stays the same over a run."""

    tree: Tree
    policy: LocalPolicy
    world: World
    tasks: Sequence[Task]
    plan: TreeTraining
    settings: Sampling
    grower: Grower | None
    credit: Credit

    def grow(self, place: _LoopState, progress: Progress) -> tuple[list[Group], _LoopState]:
        """The groups of one update, and where the run is after them."""
        plan, tasks = self.plan, self.tasks
        # Noise of its own for every update: a policy trained on numbers must not be sampled with them.
        noise = stream_of("update", plan.seed, place.update) >> 32
        selector = _selector(self.grower, plan, noise)
        groups: list[Group] = []
        cost, task = 0, place.task
        while True:
            # A task that comes round again within an update, also within a block, needs other draws.
            laps: dict[int, list[Task]] = {}
            for i in range(task, task + min(plan.tasks, len(tasks))):
                laps.setdefault((i - place.task) // len(tasks), []).append(tasks[i % len(tasks)])
            for lap, block in laps.items():
                grown, _ = grow_trees(
                    self.tree, self.policy, self.world, block, selector=selector, leaves=plan.leaves,
                    settings=self.settings, seed=noise + lap, progress=progress,
                )  # fmt: skip
                groups += grown
                cost += sum(group_cost(group) for group in grown)
            task += plan.tasks
            if plan.budget is None or place.spent + cost >= plan.budget * (place.update + 1):
                return groups, replace(place, task=task, spent=place.spent + cost, cost=cost)

    def learn(self, optimizer: torch.optim.Optimizer, groups: Sequence[Group], number: int) -> Json:
        """The gradient steps of one update, and the metrics of the last of them."""
        plan = self.plan
        set_rate(optimizer, rate := plan.rates().rate(number, plan.updates))
        trajectories: list[Trajectory] = []
        advantages: list[Any] = []
        for group in groups:
            mine, given = group_credit_of(group, self.credit, plan)
            trajectories += mine
            advantages += given
        if not trajectories:
            return {"skipped": "every group was all-fail or all-pass", "learning_rate": rate}
        batch = trajectories_to_batch(trajectories, advantages, once=plan.shared == "once")
        metrics: Json = {}
        for turn in range(plan.passes):
            seed = stream_of("minibatches", plan.seed, number, turn)
            for part in batch.shuffled(plan.minibatches, seed):
                # Only the first step is on policy: later ones differ from the sampler by design.
                first = {k: v for k, v in metrics.items() if k.startswith("sampler_difference")}
                metrics = policy_gradient_step(self.policy.model, optimizer, part, plan.gradient) | first
        return metrics | {"learning_rate": rate}


def _selector(grower: Grower | None, plan: TreeTraining, noise: int) -> Selector:
    if grower is None:
        return RandomNode(plan.seed, plan.roots, plan.at_once)
    if isinstance(grower, str):
        if grower != "independent":
            raise BadInput(f"unknown grower {grower!r}", hint="independent, a selector, or one per seed")
        return Independent()
    # A class has the attributes of its instances, so it would pass for a selector too.
    if isinstance(grower, Selector) and not isinstance(grower, type):
        return grower
    made: Selector = grower(noise)
    return made


def group_cost(group: Group) -> int:
    """Tokens that the policy sampled for a group, recorded or new; what trajectories share counts once."""
    arms = {arm.record.id for arm in group.forks}
    nodes = {s.node.id: s.node for arm in group.forks for trajectory in arm.leaves() for s in trajectory}
    return sum(int(sampled_tokens(node).sum()) for node in nodes.values() if node.fork in arms)


def _named(progress: Progress, name: str) -> Progress:
    def report(
        stage: str, done: int, total: int, *, tokens: int | None = None, waiting: str | None = None
    ) -> None:
        progress(f"{name}: {stage}", done, total, tokens=tokens, waiting=waiting)

    return report


def group_trajectories(group: Group) -> tuple[list[Trajectory], list[float]]:
    """The trajectories of a group that did not fail, and their outcomes (NaN: ungraded)."""
    trajectories, outcomes, _ = _ended(group)
    return trajectories, outcomes


def _ended(group: Group) -> tuple[list[Trajectory], list[float], list[bool]]:
    """Walks, outcomes, and whether each ran into its limit."""
    trajectories: list[Trajectory] = []
    outcomes: list[float] = []
    cut: list[bool] = []
    for arm in group.forks:
        values = graded(arm.values())
        for draw, trajectory, value in zip(arm.draws, arm.leaves(), values, strict=True):
            if draw.end != "error":
                trajectories.append(trajectory)
                outcomes.append(float(value))
                cut.append(draw.end == "limit")
    return trajectories, outcomes, cut


def group_credit_of(group: Group, credit: Credit, plan: TreeTraining) -> tuple[list[Trajectory], list[Any]]:
    """Trajectories of a group that teach something, with their advantages; none where all are exactly 0."""
    trajectories, outcomes, cut = _ended(group)
    if not trajectories:
        return [], []
    if plan.overlong == "soft":
        said = [
            sum(int(sampled_tokens(s.node)[: s.keep].sum()) for s in trajectory)
            for trajectory in trajectories
        ]
        outcomes = (np.array(outcomes) + overlong_penalty(said, plan.longest or 0, plan.soft or 0)).tolist()
    given = [np.asarray(part, dtype=np.float64) for part in credit(trajectories, outcomes)]
    if plan.overlong == "mask":
        given = [np.full_like(a, np.nan) if ran else a for a, ran in zip(given, cut, strict=True)]
    if plan.shared == "once":
        given = shared_mean(trajectories, given)
    # A group without difference would add nothing but the pull of a KL term.
    if not any(np.nan_to_num(part).any() for part in given):
        return [], []
    return trajectories, list(given)
