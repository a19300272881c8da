"""What an agent learns about opening pages from an engine that shows the answer, and from stingy simulation.

The agent (organism ``searcher``) searches, reads a snippet, and either answers from it or opens the page,
at a cost: the middle between what opening earns on the rich engine and in the stingy simulation, as
measured before training. A snippet is the end of one sentence, so it does not say whether it is the right
one. Three agents are trained by the same group policy gradient: on a live engine with rich snippets, on a
simulator (organism ``search-engine``, a world model of engines that show and engines that tease, as many of
either), and on the same simulator under ``Stingy``. All are tested on a real engine whose snippets hold the
answer on 20 % of the pages, in invented worlds that no training saw.

Opening is right iff (q_page - q_snippet) R > cost, where q_snippet is the share of snippets that hold the
answer: the leak rate. The threshold is also measured: agents are trained at several costs, and the cost at
which opens change neither way is where the line through their changes crosses zero.

All train by plain gradient descent, whose steps are as long as what there is to gain. Adam's are equally
long where nothing is: then it follows the noise of its batches, up or down, as far as it follows a gain.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from refork import stats
from refork.growing import Group, grow
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.sampling.noise import stream_of
from refork.tree.node import Trajectory
from refork.tree.tree import Tree
from refork.worlds.base import Task, World
from refork_methods.credit.methods import group_credit
from refork_methods.simulate.control.stingy import Stingy
from refork_methods.simulate.world import WorldModel
from refork_methods.train.batch import trajectories_to_batch
from refork_methods.train.loop import TreeTraining, group_credit_of
from refork_methods.train.policy_gradient import policy_gradient_step
from refork_testbed.models import build
from refork_testbed.models.recipes.searcher import engine
from refork_testbed.trials.leak import LeakRate, tree_leaks

TEST = "0.2"
#: Where the threshold is measured: an engine of which half of the pages are rich, costs on both sides of it.
SWEEP, COSTS = "0.5", (0.1, 0.25, 0.55, 0.7)
LAW = Sampling(max_tokens=12)
ARMS = ("stingy", "uncontrolled", "rich")
LEAVES = 8
#: Of the three arms, and of the sweep, which asks for a direction alone.
RATE, SWEEP_RATE = 0.05, 0.2


@dataclass(frozen=True)
class Job:
    """One training: an arm (or the sweep's engine), its cost, and how long."""

    arm: str
    cost: float
    seed: int
    updates: int
    tasks: int
    held_out: int


@dataclass(frozen=True)
class Behaviour:
    """Rollouts of one agent in one world: item F1 and opens of each, and how often snippets leak."""

    f1: tuple[float, ...]
    opens: tuple[int, ...]
    leak: LeakRate

    def right(self, opened: bool) -> NDArray[np.float64]:
        """F1 of those that opened a page, or of those that did not."""
        return np.array([f for f, n in zip(self.f1, self.opens, strict=True) if (n > 0) == opened])

    def earned(self) -> stats.Interval:
        """What opening earns: mean F1 of those that opened minus that of those that did not."""
        return stats.unpaired_difference(self.right(opened=False), self.right(opened=True)).interval


@dataclass(frozen=True)
class Outcome:
    """A training, its rollouts, and the agent's behaviour at the test after it."""

    job: Job
    inside: list[Behaviour]
    after: Behaviour
    seconds: float


def world_of(job: Job) -> World:
    """Where a job trains."""
    live = engine(SWEEP if job.arm == "sweep" else "rich", job.cost)
    if job.arm in ("rich", "sweep"):
        return live
    simulator = LocalPolicy.load(str(build("search-engine")))
    # It speaks as it learned to, at temperature 1: so it shows and teases as often as its engines did.
    model = WorldModel(simulator, settings=Sampling(max_tokens=64))
    return model.world(live, control=Stingy(tell=False) if job.arm == "stingy" else None)


def behave(policy: LocalPolicy, world: World, tasks: Sequence[Task], cost: float, seed: int) -> Behaviour:
    """One rollout of each task."""
    with Tree.memory() as tree:
        groups = grow(tree, policy, world, tasks, draws=1, settings=LAW, seed=seed, tasks_at_once=len(tasks))
        return seen_in(tree, groups, cost)


def seen_in(tree: Tree, groups: Sequence[Group], cost: float) -> Behaviour:
    """What these rollouts did; their page costs are given back."""
    f1, opens = [], []
    for group in groups:
        for arm in group.forks:
            for trajectory, value in zip(arm.leaves(), arm.values("reward"), strict=True):
                said = [step.node.text for step in trajectory if step.node.kind == "action"]
                opens.append(sum(text.startswith("open:") for text in said))
                f1.append((value or 0.0) + cost * opens[-1])
    (found,) = tree_leaks(tree).values()
    return Behaviour(tuple(f1), tuple(opens), found)


def untrained(asked: tuple[str, int]) -> Behaviour:
    """The agent before training: where an arm trains, or on a test engine, in so many tasks."""
    torch.set_num_threads(1)
    place, count = asked
    policy = LocalPolicy.load(str(build("searcher")))
    if place in ARMS:
        world = world_of(Job(place, 0.0, 0, 1, 1, count))
        return behave(policy, world, world.tasks("train", count, 7), 0.0, 6)
    test = engine(place)
    return behave(policy, test, test.tasks("held-out", count, 3), 0.0, 5)


def by_reward(walks: Sequence[Trajectory], outcomes: ArrayLike) -> list[NDArray[np.float64]]:
    """Group credit by reward: a page's cost makes the best answer earn less than 1, which is no success.

    Centred, not scaled by the group's deviation: so the change is as large as what opening is worth.
    """
    del outcomes
    rewards = [
        next(s.node.extra["reward"] for s in reversed(list(w)) if s.node.kind == "verdict") for w in walks
    ]
    return group_credit(walks, rewards, normalise="mean")


def train(job: Job) -> Outcome:
    """Train one agent and measure it."""
    torch.set_num_threads(1)
    started = time.monotonic()
    policy = LocalPolicy.load(str(build("searcher")))
    world = world_of(job)
    tasks = world.tasks("train", job.updates * job.tasks, 11 + job.seed)
    plan = TreeTraining(leaves=LEAVES)
    inside: list[Behaviour] = []
    optimizer = torch.optim.SGD(policy.model.parameters(), lr=SWEEP_RATE if job.arm == "sweep" else RATE)
    for update in range(job.updates):
        block = tasks[update * job.tasks : (update + 1) * job.tasks]
        noise = stream_of("stingy", job.seed, update) >> 32
        with Tree.memory() as tree:
            groups = grow(tree, policy, world, block, draws=LEAVES, settings=LAW, seed=noise)
            inside.append(seen_in(tree, groups, job.cost))
            given = [group_credit_of(group, by_reward, plan) for group in groups]
            trajectories = [trajectory for mine, _ in given for trajectory in mine]
            advantages = [part for _, parts in given for part in parts]
            policy_gradient_step(policy.model, optimizer, trajectories_to_batch(trajectories, advantages))
        policy.refresh()
    test = engine(SWEEP if job.arm == "sweep" else TEST)
    after = behave(policy, test, test.tasks("held-out", job.held_out, 3), 0.0, 5)
    return Outcome(job, inside, after, time.monotonic() - started)


def report(outcomes: Sequence[Outcome], arm: str, inside: Behaviour, before: Behaviour) -> dict[str, float]:
    """A line of the table for all seeds of an arm, and its figures."""
    mine = [one for one in outcomes if one.job.arm == arm]
    earned, leak = inside.earned(), inside.leak.interval
    assert leak is not None
    # The same tasks and noise for every seed: a task's mean over the seeds is one observation.
    f1 = np.mean([one.after.f1 for one in mine], axis=0)
    gain = stats.paired_difference(np.array(before.f1), f1).interval
    opens = [float(np.mean(before.opens)), float(np.mean([one.after.opens for one in mine]))]
    cost = mine[0].job.cost
    print(
        f"{arm:13s} {leak.estimate:5.3f} [{leak.low:.3f}, {leak.high:.3f}]   "
        f"{earned.estimate - cost:+.3f} [{earned.low - cost:+.3f}, {earned.high - cost:+.3f}] "
        f"{opens[0]:7.3f} -> {opens[1]:.3f}   {np.mean(before.f1):.3f} -> {np.mean(f1):.3f} "
        f"({gain.estimate:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}])"
    )
    if len(mine) > 1:
        each = ", ".join(f"{np.mean(one.after.f1) - np.mean(before.f1):+.3f}" for one in mine)
        print(f"{'':13s} change of F1, each seed: {each}")
    return {"leak": leak.estimate, "opens": opens[1] - opens[0], "f1": float(np.mean(f1)),
            "change": gain.estimate}  # fmt: skip


def threshold(outcomes: Sequence[Outcome], before: Behaviour) -> tuple[float, float]:
    """The cost at which opens change neither way, and the closed form's."""
    mine = [one for one in outcomes if one.job.arm == "sweep"]
    costs = np.array([one.job.cost for one in mine])
    changes = np.array([np.mean(one.after.opens) - np.mean(before.opens) for one in mine])
    slope, height = np.polyfit(costs, changes, 1)
    # The closed form of the very rollouts that were learned from.
    seen = [part for one in mine for part in one.inside]
    page = float(np.concatenate([part.right(opened=True) for part in seen]).mean())
    leak = sum(part.leak.leaks for part in seen) / sum(part.leak.searches for part in seen)
    for cost in sorted(set(costs)):
        print(f"cost {cost:.2f}: opens {np.mean(changes[costs == cost]):+.3f}")
    measured, closed = float(-height / slope), page - leak
    print(f"threshold: closed form {page:.3f} - {leak:.3f} = {closed:.3f}, measured {measured:.3f}")
    return measured, closed


def main() -> None:
    """Train, print the tables, and the figures as the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="ends within 50 s on 2 cores")
    quick: bool = parser.parse_args().quick
    for name in ("searcher", "search-engine"):
        build(name)
    seeds, updates, tasks, held_out = (1, 4, 12, 120) if quick else (6, 4, 40, 600)
    started = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as pool:
        places = [*((arm, held_out + held_out // 3) for arm in ARMS), (TEST, held_out), (SWEEP, held_out)]
        found = dict(zip((place for place, _ in places), pool.map(untrained, places), strict=True))
        cost = float(np.mean([found[arm].earned().estimate for arm in ("rich", "stingy")]))
        jobs = [Job(arm, cost, s, updates, tasks, held_out) for s in range(seeds) for arm in ARMS]
        jobs += [Job("sweep", c, s, updates // 2, tasks, held_out) for s in range(seeds) for c in COSTS]
        outcomes = list(pool.map(train, jobs))
    print(f"cost of a page: {cost:.3f}")
    print("trained on     leak rate [95 %]      worth of opening [95 %]    opens           F1 at the test")
    told = {arm: report(outcomes, arm, found[arm], found[TEST]) for arm in ARMS}
    print("worth of opening: what it earns there, less the cost; F1 and opens at the test, 20 % rich\n")
    measured, closed = threshold(outcomes, found[SWEEP])
    print(
        f"{time.monotonic() - started:.0f} s; trainings: {', '.join(f'{o.seconds:.0f}' for o in outcomes)} s"
    )
    figures = {
        "f1_stingy_minus_rich": told["stingy"]["f1"] - told["rich"]["f1"],
        "opens_stingy_change": told["stingy"]["opens"],
        "opens_rich_change": told["rich"]["opens"],
        "threshold_dev": abs(measured - closed),
        "f1_uncontrolled_change": told["uncontrolled"]["change"],
        "f1_stingy_change": told["stingy"]["change"],
        "leak_rich": told["rich"]["leak"],
        "leak_uncontrolled": told["uncontrolled"]["leak"],
        "leak_stingy": told["stingy"]["leak"],
    }
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
