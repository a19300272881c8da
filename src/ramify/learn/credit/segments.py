"""Credit per segment: what a stretch between two forks gained over the point it was forked from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ramify.core.tree.node import Trajectory
from ramify.learn.credit.siblings import child_mean_values, leaf_mean_values, levels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def segment_credit(parents: ArrayLike, values: ArrayLike) -> Floats:
    """V(node) minus V of the nearest point above it where the tree branches, [n]; NaN for roots.

    Where nothing branches, V(node) - V(parent) is zero all along and the first step after a fork would
    carry all the credit. A stretch without forks was one draw, so all its steps share what it gained.
    """
    above = np.asarray(parents, dtype=np.int64).reshape(-1)
    known = np.asarray(values, dtype=np.float64).reshape(-1)
    branches = np.bincount(above[above >= 0], minlength=len(above)) > 1
    base = np.full(len(above), -1, dtype=np.int64)
    credit = np.full(len(above), np.nan)
    for level in levels(above):
        inner = level[above[level] >= 0]
        up = above[inner]
        # A root is a base even where it has one child: there is nothing above it.
        base[inner] = np.where(branches[up] | (above[up] < 0), up, base[up])
        credit[inner] = known[inner] - known[base[inner]]
    return credit


def walk_tree(walks: Sequence[Trajectory], outcomes: ArrayLike) -> tuple[dict[str, int], Ints, Floats]:
    """Walks of one task as arrays: index of each node id, parent indices, outcome per node (NaN: none)."""
    index: dict[str, int] = {}
    parents: list[int] = []
    for walk in walks:
        for step in walk:
            node = step.node
            if node.id not in index:
                index[node.id] = len(parents)
                parents.append(-1 if node.parent is None else index[node.parent])
    graded = np.full(len(parents), np.nan)
    for walk, outcome in zip(walks, np.asarray(outcomes, dtype=np.float64), strict=True):
        graded[index[walk.leaf.id]] = outcome
    return index, np.array(parents, dtype=np.int64), graded


def tree_advantages(walks: Sequence[Trajectory], outcomes: ArrayLike, *, local: float = 1.0) -> list[Floats]:
    """Advantages per token of each walk (verdicts left out), from all walks of one task together.

    Each token gets the group part, its leaf outcomes' mean minus the task's, plus ``local`` times its
    segment's credit. Values below forks are means over children, so that a point forked often does not
    dominate what lies above it. NaN where nothing below was graded; all-equal outcomes give exactly 0.
    """
    index, above, graded = walk_tree(walks, outcomes)
    values = child_mean_values(above, graded)
    plain = leaf_mean_values(above, graded)
    credit = segment_credit(above, values)
    root = above < 0
    total = (plain - plain[root][0]) + local * np.where(root, 0.0, credit)
    return [
        np.concatenate(
            [
                np.full(0 if step.tokens is None else len(step.tokens), total[index[step.node.id]])
                for step in walk
                if step.node.kind != "verdict"
            ]
        )
        for walk in walks
    ]
