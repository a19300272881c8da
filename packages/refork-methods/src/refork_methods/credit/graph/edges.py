"""Edges of a state graph: how often each was taken, what it gained, and which ones decided.

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork_methods.credit.graph.advantages import group_mean, node_values
from refork_methods.credit.graph.state_graph import StateGraph

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The different edges of a graph, [edges]: where from, where to, how often, by how many trajectories.

    ``of`` [steps] is each step's edge, ``example`` [edges] the first step that took it.
    """

    sources: Int64
    targets: Int64
    visits: Int64
    trajectories: Int64
    of: Int64
    example: Int64


def edges(graph: StateGraph) -> Edges:
    """The different edges of a graph."""
    width = np.int64(len(graph.graphs))
    keys, example, of = np.unique(graph.nodes * width + graph.nexts, return_index=True, return_inverse=True)
    of = of.astype(np.int64)
    return Edges(
        sources=keys // width,
        targets=keys % width,
        visits=np.bincount(of),
        trajectories=distinct_trajectories(graph, of, len(keys)),
        of=of,
        example=example,
    )


def distinct_trajectories(graph: StateGraph, member: Int64, count: int) -> Int64:
    """How many trajectories have a step in each group 0 .. count - 1 of ``member`` [steps], [count]."""
    pairs = np.unique(member * np.int64(len(graph.outcomes)) + graph.trajectories)
    return np.bincount(pairs // len(graph.outcomes), minlength=count)


def gain_variance(
    spread: ArrayLike, visits: ArrayLike, passing: ArrayLike, reached: ArrayLike | None = None
) -> Float64:
    """Variance of V(n') - V(n), each a mean of independent returns of one variance; shape of the arguments.

    v (1/M + 1/n - 2 m / (M n)) for n visits to the source, of which m pass on to the target, and M visits
    to the target in all. Where the target is reached from here only, M = m, it is v (1/m - 1/n): less than
    the v (1/m + 1/n) of independent estimates, and 0 where every visit passes.

    Args:
        spread: v, the variance of one return.
        visits: n.
        passing: m, at most n and at most M.
        reached: M; None: m.

    Raises:
        BadInput: counts that cannot be.

    Source: ours.
    """
    v, n, m = (np.asarray(x) for x in (spread, visits, passing))
    whole = m if reached is None else np.asarray(reached)
    if (m < 1).any() or (m > n).any() or (m > whole).any() or (v < 0).any():
        raise BadInput("passing visits are at least 1 and at most those of both ends", where="gain variance")
    # Cancellation may end a hair below 0, and the root of that would be NaN.
    return np.asarray(np.maximum(v * (1 / whole + 1 / n - 2 * m / (whole * n)), 0.0))


@dataclass(frozen=True, slots=True)
class CriticalEdge:
    """An edge that gained or lost much: from where, to where, V(n') - V(n) and its standard error.

    ``error`` is None where the source was seen once. ``step`` is the first step that took the edge.
    """

    graph: int
    source: int
    target: int
    source_name: str
    target_name: str
    visits: int
    trajectories: int
    value: float
    gain: float
    error: float | None
    step: int


def critical_edges(
    graph: StateGraph, top: int = 10, *, least: int = 1, gamma: float = 0.95, win: float | None = None
) -> list[CriticalEdge]:
    """The edges with the largest gain in absolute value, largest first.

    Args:
        graph: the graph.
        top: at most so many.
        least: edges whose source was visited less often are left out.
        gamma: discount per turn of the node values.
        win: see :class:`refork_methods.credit.graph.advantages.CreditSettings`.
    """
    values = node_values(graph, gamma, "every", win)
    found = edges(graph)
    gains = values[found.targets] - values[found.sources]
    visits = graph.visits()
    errors = _errors(graph, found, gamma, visits)
    kept = np.flatnonzero(visits[found.sources] >= least)
    # Ties are broken by the edge's own numbers, so the list does not depend on the order of steps.
    order = kept[np.lexsort((found.targets[kept], found.sources[kept], -np.abs(gains[kept])))][:top]
    return [
        CriticalEdge(
            graph=int(graph.graphs[found.sources[i]]),
            source=int(found.sources[i]),
            target=int(found.targets[i]),
            source_name=graph.name(int(found.sources[i])),
            target_name=graph.name(int(found.targets[i])),
            visits=int(found.visits[i]),
            trajectories=int(found.trajectories[i]),
            value=float(values[found.targets[i]]),
            gain=float(gains[i]),
            error=None if np.isnan(errors[i]) else float(errors[i]),
            step=int(found.example[i]),
        )
        for i in order.tolist()
    ]


def _errors(graph: StateGraph, found: Edges, gamma: float, visits: Int64) -> Float64:
    """Standard error of each gain, [edges]; NaN where the source was visited once.

    An end is worth what it is worth: only the source's mean is uncertain there.
    """
    seen = gamma**graph.togo * graph.outcomes[graph.trajectories]
    mean = group_mean(seen, graph.nodes)
    square = np.bincount(graph.nodes, (seen - mean[graph.nodes]) ** 2)
    n = visits[found.sources]
    spread = square[found.sources] / np.maximum(n - 1, 1)
    ends = graph.labels[found.targets] < 0
    inner = gain_variance(spread, n, found.visits, np.maximum(visits[found.targets], found.visits))
    variance = np.where(ends, spread / n, inner)
    # Back to the same state nothing is gained, whatever its value.
    variance = np.where(found.sources == found.targets, 0.0, variance)
    return np.where(n > 1, np.sqrt(variance), np.nan)
