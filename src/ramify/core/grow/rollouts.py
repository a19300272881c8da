"""Grow rollouts of a policy in a world: independent ones, or a tree that a selector shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ramify.core.errors import BadInput
from ramify.core.fork.arm import Fork, Job, prepare, run_jobs
from ramify.core.grow.plant import plant
from ramify.core.grow.selector import Candidates, Choice, Selector
from ramify.core.judge import Judge
from ramify.core.policy.base import Policy, Sampling
from ramify.core.run.progress import Progress, silent
from ramify.core.tree.node import Node, Point, Step, Trajectory
from ramify.core.tree.score import DrawRecord
from ramify.core.tree.tree import Tree
from ramify.core.world.base import Task, World


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one task made by one call: the group of group-relative credit."""

    task: Task
    root: Point
    forks: tuple[Fork, ...]

    def values(self, score: str = "success") -> list[float | None]:
        """Scores of all leaves; None where ungraded."""
        return [value for arm in self.forks for value in arm.values(score)]

    @property
    def tokens(self) -> int:
        """Tokens sampled by this call."""
        return sum(arm.tokens for arm in self.forks)


def grow(
    tree: Tree,
    policy: Policy,
    world: World,
    tasks: Sequence[Task],
    *,
    draws: int,
    settings: Sampling,
    seed: int = 0,
    max_turns: int | None = None,
    judge: Judge | None = None,
    tasks_at_once: int = 64,
    progress: Progress = silent,
) -> list[Group]:
    """Draw ``draws`` independent rollouts of every task; what is on the tree already is not redone.

    Tasks go in blocks of ``tasks_at_once``, each one batch; every round of a block is committed.
    """
    if draws < 1:
        raise BadInput(f"draws is {draws}; at least 1 is needed")
    if not tasks:
        raise BadInput("there is no task to grow from", where=world.name)
    groups: list[Group] = []
    for first in range(0, len(tasks), tasks_at_once):
        block = tasks[first : first + tasks_at_once]
        points = plant(tree, policy, world, block)
        jobs = [
            prepare(point, policy, draws, settings=settings, world=world, seed=seed, max_turns=max_turns)
            for point in points
        ]
        stage = "rollouts" if len(tasks) <= tasks_at_once else f"rollouts {first + 1}-{first + len(block)}"
        arms = run_jobs(jobs, judge=judge, progress=progress, stage=stage)
        groups += [Group(t, p, (a,)) for t, p, a in zip(block, points, arms, strict=True)]
    return groups


def candidates(tree: Tree, walks: Sequence[Trajectory], score: str = "success") -> Candidates:
    """Every point of some rollouts of one task that can be forked: the root and every turn's beginning.

    Inside a turn, the sampled tokens with the highest recorded entropy are candidates too (up to 4).
    """
    nodes: dict[str, Node] = {}
    depth: dict[str, int] = {}
    children: dict[str, set[str]] = {}
    leaves: dict[str, int] = {}
    wins: dict[str, float] = {}
    scored = tree.score_map(score, [walk.leaf.id for walk in walks])
    for walk in walks:
        before = 0
        value = scored.get(walk.leaf.id)
        for step in walk:
            node = step.node
            nodes[node.id] = node
            depth.setdefault(node.id, before)
            before += node.length if step.keep is None else step.keep
            children.setdefault(node.parent or "", set()).add(node.id)
            if value is not None:
                leaves[node.id] = leaves.get(node.id, 0) + 1
                wins[node.id] = wins.get(node.id, 0.0) + value
    rows = [row for node in nodes.values() for row in _points(node, depth[node.id])]
    longest = max((depth[walk.leaf.id] for walk in walks), default=1)
    start = np.array([r.depth for r in rows], dtype=np.int64)
    return Candidates(
        node=tuple(r.node for r in rows),
        token=np.array([r.token for r in rows], dtype=np.int64),
        depth=start,
        children=np.array([len(children.get(r.node, ())) for r in rows], dtype=np.int64),
        leaves=np.array([leaves.get(r.node, 0) for r in rows], dtype=np.int64),
        wins=np.array([wins.get(r.node, 0.0) for r in rows], dtype=np.float64),
        entropy=np.array([r.entropy for r in rows], dtype=np.float64),
        cost=np.maximum(longest - start, 1).astype(np.float64),
    )


class _Row(NamedTuple):
    node: str
    token: int
    depth: int
    entropy: float


def _points(node: Node, depth: int, inside: int = 4) -> list[_Row]:
    if node.kind in ("task", "observation", "rewrite"):
        # What ended an episode has no tokens: the policy never saw it.
        return [_Row(node.id, -1, depth + node.length, float("nan"))] if node.length else []
    if node.kind != "action" or node.entropy is None or node.length < 2:
        return []
    order = np.argsort(-node.entropy[1:], kind="stable")[:inside] + 1
    return [_Row(node.id, int(t), depth + int(t), float(node.entropy[t])) for t in sorted(order)]


def grow_trees(
    tree: Tree,
    policy: Policy,
    world: World,
    tasks: Sequence[Task],
    *,
    selector: Selector,
    leaves: int,
    settings: Sampling,
    seed: int = 0,
    judge: Judge | None = None,
    progress: Progress = silent,
) -> tuple[list[Group], list[Logged]]:
    """Grow a tree of ``leaves`` rollouts per task, the selector choosing where each one starts.

    All tasks share every batch. A selector sees only what this call has drawn, so the same call again
    finds the same choices recorded and draws nothing. Returns the groups and the log of choices.
    """
    if leaves < 1:
        raise BadInput(f"leaves is {leaves}; at least 1 is needed")
    roots = plant(tree, policy, world, tasks)
    growing = [_Growing(task, root) for task, root in zip(tasks, roots, strict=True)]
    log: list[Logged] = []
    round_ = 0
    while any(one.left(leaves) for one in growing):
        jobs: list[Job] = []
        owners: list[_Growing] = []
        for one in growing:
            for pick, point in one.choose(tree, selector, leaves, round_):
                wanted = one.claim(point, min(pick.draws, one.left(leaves)))
                jobs.append(prepare(point, policy, wanted, settings=settings, world=world, seed=seed))
                owners.append(one)
                log.append(Logged(one.task.id, round_, pick, point.address))
        if not jobs:
            break
        for one, arm in zip(
            owners, run_jobs(jobs, judge=judge, stage=f"growing, round {round_}"), strict=True
        ):
            before = one.arms.get(arm.record.id)
            spent = (before.tokens, before.seconds) if before else (0, 0.0)
            one.arms[arm.record.id] = replace(
                arm, tokens=arm.tokens + spent[0], seconds=arm.seconds + spent[1]
            )
        drawn = sum(leaves - one.left(leaves) for one in growing)
        progress("growing", drawn, leaves * len(tasks))
        round_ += 1
    return [one.group() for one in growing], log


@dataclass(frozen=True, slots=True)
class Logged:
    """One choice of a selector: task, round, the choice with its terms, the address of the point."""

    task: str
    round: int
    choice: Choice
    point: str


@dataclass(slots=True)
class _Growing:
    """One task's tree while it grows."""

    task: Task
    root: Point
    arms: dict[str, Fork] = field(default_factory=dict)
    claimed: dict[str, int] = field(default_factory=dict)

    def left(self, leaves: int) -> int:
        return leaves - sum(self.claimed.values())

    def claim(self, point: Point, count: int) -> list[int]:
        first = self.claimed.get(point.address, 0)
        self.claimed[point.address] = first + count
        return list(range(first, first + count))

    def kept(self, arm: Fork) -> list[DrawRecord]:
        """This call's draws of an arm; others may be on the tree from elsewhere."""
        return [d for d in arm.draws if d.draw < self.claimed[arm.point.address]]

    def choose(self, tree: Tree, selector: Selector, leaves: int, round_: int) -> list[tuple[Choice, Point]]:
        if self.left(leaves) <= 0:
            return []
        ends = [d.leaf for arm in self.arms.values() for d in self.kept(arm) if d.end != "error"]
        walks = list(tree.paths(ends)) if ends else [Trajectory((Step(self.root.node, None),))]
        known = candidates(tree, walks)
        picks = []
        room = self.left(leaves)
        for pick in selector.select(known, room, round_):
            if room <= 0:
                break
            token = int(known.token[pick.index])
            picks.append((pick, tree.at(known.node[pick.index], None if token < 0 else token)))
            room -= pick.draws
        return picks

    def group(self) -> Group:
        arms = (replace(arm, draws=tuple(self.kept(arm))) for arm in self.arms.values())
        return Group(self.task, self.root, tuple(arms))
