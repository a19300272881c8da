"""Sibling credit of a recorded task: per token, with forks in the middle of a step at their exact place.

A node that was forked after k of its tokens is two stretches: tokens 1 .. k, below which lie the node's own
rest and every child that keeps k; and the rest. So the value after t tokens of a node is the mean over all
leaves that branch off at token t or later. The stretches form a tree, and the pure functions of
:mod:`refork_methods.credit.siblings` do the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.growing.report import sampled_under
from refork.tree.node import Node, Trajectory
from refork.tree.score import Producer, Score
from refork.tree.tree import Tree
from refork_methods.credit.siblings import (
    Estimator,
    Float64,
    Int64,
    curve_credit,
    node_values,
    sibling_credit,
    step_credit,
)

Baseline = Literal["parent", "siblings"]


@dataclass(frozen=True, slots=True)
class Stretches:
    """The stretches of some nodes between fork places, as arrays with one entry per stretch.

    ``parents`` is the stretch each one begins at the end of (-1: none). ``nodes[i]`` has stretches
    ``first[i] .. first[i+1]-1``, which end after ``ends`` tokens of it.
    """

    nodes: tuple[Node, ...]
    first: Int64
    ends: Int64
    parents: Int64

    def of(self, node: int) -> slice:
        """The stretches of a node."""
        return slice(int(self.first[node]), int(self.first[node + 1]))

    def per_token(self, node: int, values: Float64) -> Float64:
        """Values of stretches spread over the tokens of a node, [length]."""
        span = self.of(node)
        return np.repeat(values[span], np.diff(self.ends[span], prepend=0))


def stretches(nodes: Sequence[Node]) -> Stretches:
    """Cut nodes (parents first, one root) at every place where a child of another node begins.

    A child that keeps none of its parent's tokens begins where the parent itself began.
    """
    index = {node.id: i for i, node in enumerate(nodes)}
    hang: list[tuple[int, int]] = []
    cuts: list[set[int]] = [{node.length} for node in nodes]
    for node in nodes:
        at = -1 if node.parent is None else index.get(node.parent, -1)
        keep = 0
        if at >= 0:
            whole = nodes[at].length
            keep = whole if node.keep is None else min(node.keep, whole)
            # Parents come first, so the parent's own place is final here and chains of empty keeps resolve in
            # one step.
            if keep == 0 < whole and hang[at][0] >= 0:
                at, keep = hang[at]
            cuts[at].add(keep)
        hang.append((at, keep))
    ordered = [sorted(cut) for cut in cuts]
    first = np.concatenate([[0], np.cumsum([len(cut) for cut in ordered])]).astype(np.int64)
    place = {(i, end): int(first[i]) + k for i, cut in enumerate(ordered) for k, end in enumerate(cut)}
    # Inside a node each stretch follows the one before it; only a node's first stretch hangs elsewhere.
    parents = np.arange(-1, int(first[-1]) - 1, dtype=np.int64)
    for i, (at, keep) in enumerate(hang):
        parents[first[i]] = -1 if at < 0 else place[at, keep]
    ends = np.array([end for cut in ordered for end in cut], dtype=np.int64)
    return Stretches(tuple(nodes), first, ends, parents)


@dataclass(frozen=True, slots=True)
class TreeCredit:
    """Credit of one task's tree.

    ``trajectories`` end in its graded leaves, ``outcomes`` [trajectories] are their scores. ``advantages``
    has one number per token of each trajectory (verdicts left out), NaN where not computable: what
    :func:`refork_methods.train.batch.trajectories_to_batch` takes. ``scores`` are ready to be written:
    under ``credit``, one value per token (one in all for a node without tokens). Along a trajectory they sum
    to the leaf's outcome minus the value of the task.
    """

    trajectories: tuple[Trajectory, ...]
    outcomes: Float64
    advantages: tuple[Float64, ...]
    value: float
    producer: Producer
    scores: tuple[Score, ...]

    def write(self, tree: Tree) -> int:
        """Store producer and scores; how many scores are new."""
        tree.add_producer(self.producer)
        return tree.add_scores(self.scores)


def tree_credit(
    tree: Tree,
    root: Node | str,
    *,
    score: str = "success",
    estimator: Estimator = "leaves",
    baseline: Baseline = "parent",
    forks: Collection[str] | None = None,
) -> TreeCredit:
    """Credit of every token of a task's rollouts, from the outcomes of all leaves below each place.

    Only exact draws of the policy count: what an edit, a changed fork or a conditional draw of a sweep
    led to says nothing about the unchanged prefix. An outcome is the world's grade, else the newest.

    Args:
        tree: where the rollouts are.
        root: the task's root.
        score: name of the leaf score to explain.
        estimator: how values are estimated from leaves.
        baseline: what a stretch's advantage is measured against: ``parent`` (the value of the point it
            begins at) or ``siblings`` (the mean of what else was drawn there; NaN where nothing was).
        forks: ids of the arms that count, for instance those of the present weights; None: every
            unchanged arm.

    Raises:
        UnknownNode: no such root.
        BadInput: an unknown estimator or baseline, no graded leaf, or rollouts under several sampling
            settings.
    """
    found = tree_credits(tree, root, score=score, estimator=estimator, baseline=baseline, forks=forks)
    if len(found) > 1:
        raise BadInput(
            f"this task was drawn under {len(found)} sampling settings, which are no one group",
            where=f"node {found[0].trajectories[0].root.id[:12]}",
            hint="tree_credits gives the credit of each; or name the arms of one of them with forks",
        )
    return found[0]


def tree_credits(
    tree: Tree,
    root: Node | str,
    *,
    score: str = "success",
    estimator: Estimator = "leaves",
    baseline: Baseline = "parent",
    forks: Collection[str] | None = None,
) -> list[TreeCredit]:
    """:func:`tree_credit` of each group of a task: its rollouts under one set of sampling settings.

    Draws at another temperature say nothing about the value of a place at this one. Each group has a
    producer of its own, so what two of them share has two scores.

    Raises:
        UnknownNode: no such root.
        BadInput: an unknown estimator or baseline, or no graded leaf.
    """
    if baseline not in ("parent", "siblings"):
        raise BadInput(f"unknown baseline {baseline!r}", hint="known: parent, siblings")
    top = tree.node(root) if isinstance(root, str) else root
    nodes = _counted(tree, top, _plain_forks(tree) if forks is None else set(forks))
    parts = _by_settings(tree, nodes)
    found = [_group_credit(tree, part, score, estimator, baseline) for part in parts]
    graded = [credit for credit in found if credit is not None]
    if not graded:
        raise BadInput(f"no rollout below this task has a {score!r} score", where=f"node {top.id[:12]}")
    return graded


def _by_settings(tree: Tree, nodes: Sequence[Node]) -> list[list[Node]]:
    """The nodes of each group of rollouts, parents first; nodes above several groups are in each of them."""
    cut = stretches(nodes)
    ends = [nodes[i].id for i in np.flatnonzero(_last(cut)).tolist()]
    groups: dict[frozenset[tuple[object, ...]], list[str]] = {}
    for trajectory in tree.paths(ends):
        groups.setdefault(sampled_under(trajectory), []).append(trajectory.leaf.id)
    if len(groups) < 2:
        return [list(nodes)]
    above = {node.id: node.parent for node in nodes}
    parts = []
    for mine in groups.values():
        kept: set[str] = set()
        for end in mine:
            at: str | None = end
            while at in above and at not in kept:
                kept.add(at)
                at = above[at]
        parts.append([node for node in nodes if node.id in kept])
    return parts


def _group_credit(
    tree: Tree, nodes: Sequence[Node], score: str, estimator: Estimator, baseline: Baseline
) -> TreeCredit | None:
    """Credit of one group's nodes; None where none of its rollouts is graded."""
    cut = stretches(nodes)
    outcomes, reads = _outcomes(tree, cut, score)
    values = node_values(cut.parents, outcomes, estimator)
    leaves = [i for i in range(len(nodes)) if np.isfinite(outcomes[cut.of(i)][-1])]
    if not leaves:
        return None
    # The baseline is left out on purpose: it shapes the advantages, not the scores that are written.
    producer = Producer(
        "sibling-credit",
        "1",
        {"score": score, "estimator": estimator, "draws": _digest(nodes[i].id for i in leaves)},
        tuple(sorted(reads)),
    )
    measure = step_credit if baseline == "parent" else sibling_credit
    gains = measure(cut.parents, values)
    tokens = {node.id: cut.per_token(i, gains) for i, node in enumerate(nodes)}
    trajectories = tree.paths([nodes[i].id for i in leaves])
    return TreeCredit(
        trajectories=tuple(trajectories),
        outcomes=np.array([outcomes[cut.of(i)][-1] for i in leaves]),
        advantages=tuple(along(trajectory, tokens) for trajectory in trajectories),
        value=float(values[cut.of(0)][-1]),
        producer=producer,
        scores=tuple(_scores(cut, values, producer.id)),
    )


def _plain_forks(tree: Tree) -> set[str]:
    return {f.id for f in tree.forks() if f.change is None and "exclude_first" not in f.extra}


def _counted(tree: Tree, top: Node, forks: Collection[str]) -> list[Node]:
    """The task and everything below it that the counted arms drew, parents first."""
    kept = {top.id}
    nodes = []
    for node in tree.walk(top.id):
        if node.id != top.id:
            foreign = node.fork is not None and node.fork not in forks
            # The tree is walked parents first, so leaving a node out leaves out all that hangs on it.
            if node.parent not in kept or foreign or node.key.startswith("edit/"):
                continue
            kept.add(node.id)
        nodes.append(node)
    return nodes


def _last(cut: Stretches) -> NDArray[np.bool_]:
    """Which nodes end in a stretch that nothing follows, [nodes]."""
    inner = np.zeros(len(cut.parents), dtype=bool)
    inner[cut.parents[cut.parents >= 0]] = True
    return ~inner[cut.first[1:] - 1]


def _outcomes(tree: Tree, cut: Stretches, score: str) -> tuple[Float64, set[str]]:
    """The score of every stretch that nothing follows (NaN: none), and the producers that gave them."""
    last = cut.first[1:] - 1
    ends = {cut.nodes[i].id: int(last[i]) for i in np.flatnonzero(_last(cut)).tolist()}
    rank = {p.id: (p.name.startswith("world:"), number) for number, p in enumerate(tree.producers())}
    used: dict[str, tuple[str, float]] = {}
    # As refork.forking.arm.resolved_scores reads them, and who gave each.
    for item in tree.scores(name=score, under=cut.nodes[0]):
        best = used.get(item.node)
        if item.node not in ends or isinstance(item.value, np.ndarray):
            continue
        if best is None or rank[item.producer] > rank[best[0]]:
            used[item.node] = (item.producer, item.value)
    outcomes = np.full(len(cut.parents), np.nan)
    for node, (_, value) in used.items():
        outcomes[ends[node]] = value
    return outcomes, {producer for producer, _ in used.values()}


def along(trajectory: Trajectory, tokens: dict[str, Float64]) -> Float64:
    """Values per token of nodes, by id, laid along the tokens of a trajectory (verdicts left out)."""
    steps = [s for s in trajectory if s.node.kind != "verdict" and s.tokens is not None]
    return np.concatenate([tokens[s.node.id][: s.keep] for s in steps] or [np.zeros(0)])


def _scores(cut: Stretches, values: Float64, producer: str) -> list[Score]:
    """Differences of the value along every node, those left out that are not known throughout."""
    scores = []
    for i, node in enumerate(cut.nodes):
        above = cut.parents[cut.first[i]]
        if above < 0:
            continue
        credit: NDArray[np.float64] | float
        if node.length:
            credit = curve_credit(np.concatenate([values[above, None], cut.per_token(i, values)]))
        else:
            credit = float(values[cut.of(i)][-1] - values[above])
        if np.isfinite(credit).all():
            scores.append(Score(node.id, "credit", credit, producer))
    return scores


def _digest(names: Iterable[str]) -> str:
    return hashlib.blake2b("\x1f".join(sorted(names)).encode(), digest_size=16).hexdigest()
