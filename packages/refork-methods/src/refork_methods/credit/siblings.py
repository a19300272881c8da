"""Step and token credit from the values of a rollout tree: what a step gained over where it came from.

Pure: a tree is an array of parent indices, one outcome per leaf. NaN means "not known" and is never
read as 0. Every function is linear in the number of nodes, in time and in memory.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Estimator = Literal["leaves", "children"]


def levels(parents: ArrayLike) -> list[Int64]:
    """Node indices by depth, roots (parent -1) first.

    Args:
        parents: integers [n]; nodes may come in any order, and there may be several roots.

    Raises:
        BadInput: a parent out of range, or a cycle.
    """
    above = _parents(parents)
    size = len(above)
    order = np.argsort(above, kind="stable")
    begin = np.searchsorted(above[order], np.arange(size + 1))
    frontier = order[: begin[0]]
    found: list[Int64] = []
    seen = 0
    while len(frontier):
        found.append(frontier)
        seen += len(frontier)
        counts = begin[frontier + 1] - begin[frontier]
        ends = np.cumsum(counts)
        total = int(ends[-1])
        inside = np.arange(total) - np.repeat(ends - counts, counts)
        frontier = order[np.repeat(begin[frontier], counts) + inside]
    if seen != size:
        raise BadInput(f"{size - seen} nodes do not hang on a root: the parents form a cycle")
    return found


def _parents(parents: ArrayLike) -> Int64:
    above = np.asarray(parents, dtype=np.int64).ravel()
    if len(above) and (above.min() < -1 or above.max() >= len(above)):
        raise BadInput(f"a parent index lies outside -1 .. {len(above) - 1}", where="rollout tree")
    return above


def _checked(parents: ArrayLike, outcomes: ArrayLike) -> tuple[Int64, Float64]:
    above = _parents(parents)
    graded = np.asarray(outcomes, dtype=np.float64).ravel()
    if len(above) != len(graded):
        raise BadInput(f"{len(above)} parents but {len(graded)} outcomes", where="rollout tree")
    if np.isinf(graded).any():
        raise BadInput("an outcome is infinite", where="rollout tree")
    inner = np.zeros(len(above), dtype=bool)
    inner[above[above >= 0]] = True
    if np.isfinite(graded[inner]).any():
        raise BadInput("an inner node has an outcome; only leaves are graded", where="rollout tree")
    return above, graded


def visit_counts(parents: ArrayLike, outcomes: ArrayLike) -> Int64:
    """Graded leaves at or below each node, [n]."""
    above, graded = _checked(parents, outcomes)
    counts = np.isfinite(graded).astype(np.int64)
    for level in reversed(levels(above)[1:]):
        # Not counts[above[level]] += ...: that would add a parent that occurs twice only once.
        np.add.at(counts, above[level], counts[level])
    return counts


def leaf_mean_values(parents: ArrayLike, outcomes: ArrayLike) -> Float64:
    """Mean outcome of the graded leaves at or below each node, [n]; NaN where none is graded.

    Every leaf weighs the same, so a point that was forked often dominates the nodes above it.
    """
    above, graded = _checked(parents, outcomes)
    known = np.isfinite(graded)
    counts, sums = np.where(known, 1, 0), np.where(known, graded, 0.0)
    for level in reversed(levels(above)[1:]):
        np.add.at(counts, above[level], counts[level])
        np.add.at(sums, above[level], sums[level])
    values = np.full(len(above), np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values


def child_mean_values(parents: ArrayLike, outcomes: ArrayLike) -> Float64:
    """Mean of the known values of each node's children, recursively, [n]; NaN where none is known.

    Every child weighs the same however often it was forked below: the estimate for trees that were
    grown unevenly (a swept trajectory), where the mean over leaves would favour the forked path.
    """
    above, graded = _checked(parents, outcomes)
    values = graded.copy()
    sums = np.zeros(len(above))
    counts = np.zeros(len(above))
    for depth_level in reversed(levels(above)):
        inner = depth_level[counts[depth_level] > 0]
        values[inner] = sums[inner] / counts[inner]
        heard = depth_level[np.isfinite(values[depth_level]) & (above[depth_level] >= 0)]
        np.add.at(sums, above[heard], values[heard])
        np.add.at(counts, above[heard], 1)
    return values


def node_values(parents: ArrayLike, outcomes: ArrayLike, estimator: Estimator = "leaves") -> Float64:
    """Node values [n] by a named estimator: ``leaves`` or ``children``."""
    if estimator == "leaves":
        return leaf_mean_values(parents, outcomes)
    if estimator == "children":
        return child_mean_values(parents, outcomes)
    raise BadInput(f"unknown value estimator {estimator!r}", hint="known: leaves, children")


def step_credit(parents: ArrayLike, values: ArrayLike) -> Float64:
    """V(node) - V(parent), [n]: what the step gained; NaN for roots and unknown values.

    Along a path the credits telescope: they sum to V(leaf) - V(root).
    """
    above = _parents(parents)
    known = np.asarray(values, dtype=np.float64).ravel()
    credit = np.full(len(above), np.nan)
    below = above >= 0
    credit[below] = known[below] - known[above[below]]
    return credit


def sibling_credit(parents: ArrayLike, values: ArrayLike) -> Float64:
    """V(node) minus the mean of its siblings' values, [n]; NaN where no sibling has one.

    The baseline leaves the node itself out, so it does not depend on what the node drew.
    """
    above = _parents(parents)
    known = np.asarray(values, dtype=np.float64).ravel()
    heard = np.flatnonzero((above >= 0) & np.isfinite(known))
    sums = np.zeros(len(above))
    counts = np.zeros(len(above))
    np.add.at(sums, above[heard], known[heard])
    np.add.at(counts, above[heard], 1)
    credit = np.full(len(above), np.nan)
    rated = heard[counts[above[heard]] > 1]
    others = counts[above[rated]] - 1
    credit[rated] = known[rated] - (sums[above[rated]] - known[rated]) / others
    return credit


def curve_credit(potential: ArrayLike) -> Float64:
    """V[t] - V[t-1] of a potential curve V [m + 1], [m]; the credits sum to V[m] - V[0].

    NaN wherever either end of the difference is unknown.
    """
    curve = np.asarray(potential, dtype=np.float64).ravel()
    if not len(curve):
        raise BadInput("a potential curve needs at least its starting value")
    return np.diff(curve)
