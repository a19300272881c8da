"""How often states merge, and whether that is enough for graph credit to matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from refork_methods.credit.graph.edges import distinct_trajectories, edges
from refork_methods.credit.graph.state_graph import StateGraph

Float64 = NDArray[np.float64]

#: Below this share of merged steps behind the start, step credit is close to none. Ours.
RARE = 0.1
#: A state that holds more than this share of a graph's steps says little about where one is. Ours.
CROWDED = 0.5


@dataclass(frozen=True, slots=True)
class CollisionReport:
    """Counts and shares (0 to 1) of how states merge, over all graphs.

    ``merged``: share of steps that leave a state which at least two trajectories saw; ``merged_later``: the
    same of steps that are not a trajectory's first, which mostly share their start (None: there are
    none). ``compared``: share of steps that leave a state from where at least two different ones were
    reached: for all others the part of the advantage that compares siblings is 0. ``crowded``: share of a
    graph's steps in its most visited state, at most. ``by_place``: ``merged`` of the steps at each place.
    """

    graphs: int
    trajectories: int
    alone: int
    mixed: int
    steps: int
    states: int
    visits_per_state: float
    merged: float
    merged_later: float | None
    compared: float
    crowded: float
    by_place: tuple[float, ...]
    warnings: tuple[str, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether nothing was found that makes graph credit pointless here."""
        return not self.warnings


def merged_steps(graph: StateGraph) -> NDArray[np.bool_]:
    """Whether each step leaves a state that at least two trajectories saw, [steps]."""
    return distinct_trajectories(graph, graph.nodes, len(graph.graphs))[graph.nodes] > 1


def compared_steps(graph: StateGraph) -> NDArray[np.bool_]:
    """Whether each step leaves a state from where at least two different nodes were reached, [steps]."""
    different = np.bincount(edges(graph).sources)
    return different[graph.nodes] > 1


def collision_report(graph: StateGraph, *, rare: float = RARE, top: int = 20) -> CollisionReport:
    """How often states merge, with a warning in words for every reason not to use graph credit.

    Worth a look on the first batch: it needs no training.

    Args:
        graph: the graph.
        rare: warn where a smaller share of the steps behind the start merges.
        top: how many places of trajectories to tell apart in ``by_place``.
    """
    merged, compared = merged_steps(graph), compared_steps(graph)
    later = graph.positions > 0
    visits = np.bincount(graph.nodes, minlength=len(graph.graphs))
    size = np.bincount(graph.step_graphs)
    # A graph of a few steps has no crowd.
    large = (size >= 20)[graph.graphs]
    share = np.where(large, visits / size[graph.graphs], 0.0)
    group_size = np.bincount(graph.groups)
    low, high = np.full(len(group_size), np.inf), np.full(len(group_size), -np.inf)
    np.minimum.at(low, graph.groups, graph.outcomes)
    np.maximum.at(high, graph.groups, graph.outcomes)
    place = np.minimum(graph.positions, top - 1)
    at_place = np.bincount(place, merged) / np.bincount(place)
    report = CollisionReport(
        graphs=len(size),
        trajectories=len(graph.outcomes),
        alone=int((group_size == 1).sum()),
        mixed=int((high - low > 1e-9 * np.maximum(np.abs(high), np.abs(low))).sum()),
        steps=len(graph),
        states=graph.states,
        visits_per_state=len(graph) / graph.states,
        merged=float(merged.mean()),
        merged_later=float(merged[later].mean()) if later.any() else None,
        compared=float(compared.mean()),
        crowded=float(share.max()),
        by_place=tuple(at_place.tolist()),
    )
    return _warned(report, rare)


def _warned(report: CollisionReport, rare: float) -> CollisionReport:
    from dataclasses import replace

    found = []
    if report.alone:
        found.append(
            f"{report.alone} groups have one trajectory: its outcome has nothing to be compared with"
        )
    if not report.mixed:
        found.append("no group has two different outcomes: there is nothing to learn from yet")
    if report.compared == 0:
        found.append(
            "no state was left in two ways: the comparison of siblings is 0 everywhere; "
            "merge more (--anchor normalised) or fork, which shares states by construction"
        )
    elif report.merged_later is not None and report.merged_later < rare:
        found.append(
            f"only {report.merged_later:.1%} of the steps behind the start leave a state that another "
            "trajectory saw: merging is too rare to matter, expect little over grpo"
        )
    if report.crowded > CROWDED:
        found.append(
            f"one state holds {report.crowded:.0%} of a graph's steps: the anchor merges too much, "
            "and its value says little; try --history 2 or another anchor"
        )
    return replace(report, warnings=tuple(found))
