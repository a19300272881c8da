"""Credit per segment: what a stretch between two forks gained over the point it was forked from.

Forks may lie at any token: a node that was forked inside is several stretches here, so the tokens before
and behind the fork are credited apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.tree.node import Node, Trajectory
from refork_methods.credit.on_tree import Stretches, along, stretches
from refork_methods.credit.siblings import child_mean_values, leaf_mean_values, levels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def segment_credit(parents: ArrayLike, values: ArrayLike) -> Floats:
    """V(node) minus V of the nearest point above it where the tree branches, [n]; NaN for roots.

    Where nothing branches, V(node) - V(parent) is zero all along and the first step after a fork would
    carry all the credit. A stretch without forks was one draw, so all its steps share what it gained.
    A branch whose value is not known (NaN) is no branch.
    """
    above = np.asarray(parents, dtype=np.int64).ravel()
    known = np.asarray(values, dtype=np.float64).ravel()
    heard = above[(above >= 0) & np.isfinite(known)]
    branches = np.bincount(heard, minlength=len(above)) > 1
    base = above.copy()
    credit = np.full(len(above), np.nan)
    for level in levels(above):
        inner = level[above[level] >= 0]
        up = above[inner]
        # A root is a base even where it has one child: there is nothing above it.
        base[inner] = np.where(branches[up] | (above[up] < 0), up, base[up])
        credit[inner] = known[inner] - known[base[inner]]
    return credit


def walk_tree(trajectories: Sequence[Trajectory], outcomes: ArrayLike) -> tuple[dict[str, int], Ints, Floats]:
    """Paths of one task as arrays: index of each node id, parent indices, outcome per node (NaN: none)."""
    index: dict[str, int] = {}
    parents: list[int] = []
    for trajectory in trajectories:
        for step in trajectory:
            node = step.node
            if node.id not in index:
                index[node.id] = len(parents)
                parents.append(-1 if node.parent is None else index[node.parent])
    graded = np.full(len(parents), np.nan)
    for trajectory, outcome in zip(trajectories, np.asarray(outcomes), strict=True):
        graded[index[trajectory.leaf.id]] = outcome
    return index, np.array(parents, dtype=np.int64), graded


def walk_stretches(trajectories: Sequence[Trajectory], outcomes: ArrayLike) -> tuple[Stretches, Floats]:
    """The stretches that paths of one task are made of, and the outcome of each (NaN: none ends there).

    Raises:
        BadInput: the trajectories begin at different tasks, or another number of outcomes.
    """
    nodes: dict[str, Node] = {}
    for trajectory in trajectories:
        for step in trajectory:
            nodes.setdefault(step.node.id, step.node)
    roots = {trajectory.root.id for trajectory in trajectories}
    if len(roots) > 1:
        raise BadInput(
            f"these paths begin at {len(roots)} tasks", where="credit", hint="credit is given task by task"
        )
    earned = np.asarray(outcomes).ravel()
    if len(earned) != len(trajectories):
        raise BadInput(f"{len(trajectories)} trajectories but {len(earned)} outcomes", where="credit")
    cut = stretches(list(nodes.values()))
    place = {node.id: int(cut.first[i + 1]) - 1 for i, node in enumerate(cut.nodes)}
    graded = np.full(len(cut.parents), np.nan)
    for trajectory, outcome in zip(trajectories, earned, strict=True):
        graded[place[trajectory.leaf.id]] = outcome
    return cut, graded


def tree_advantages(
    trajectories: Sequence[Trajectory], outcomes: ArrayLike, *, local: float = 1.0
) -> list[Floats]:
    """Advantages per token of each path (verdicts left out), from all paths of one task together.

    Each token gets the group part, its leaf outcomes' mean minus the task's, plus ``local`` times its
    stretch's credit. Values below forks are means over children, so that a point forked often does not
    dominate what lies above it. NaN where nothing below was graded; all-equal outcomes give exactly 0.

    Raises:
        BadInput: trajectories of several tasks, or another number of outcomes than of trajectories.
    """
    if not len(trajectories):
        return []
    cut, graded = walk_stretches(trajectories, outcomes)
    values = child_mean_values(cut.parents, graded)
    plain = leaf_mean_values(cut.parents, graded)
    credit = segment_credit(cut.parents, values)
    root = cut.parents < 0
    total = (plain - plain[root][0]) + local * np.where(root, 0.0, credit)
    tokens = {node.id: cut.per_token(i, total) for i, node in enumerate(cut.nodes)}
    return [along(trajectory, tokens) for trajectory in trajectories]
