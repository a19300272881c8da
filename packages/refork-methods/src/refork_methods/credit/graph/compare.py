"""The estimators side by side on the same trajectories."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refork_methods.credit.graph.advantages import METHODS, CreditSettings, step_advantages
from refork_methods.credit.graph.state_graph import StateGraph


@dataclass(frozen=True, slots=True)
class MethodRow:
    """What one estimator says of all steps.

    ``zero``: share of steps with exactly 0. ``within``: share of its variance that lies inside
    trajectories (0: every step of a trajectory gets the same; None: it does not vary). ``rescued``: share
    of the steps of trajectories below their group's mean that get more than 0. ``agreement``: rank
    correlation with the first method (None: one of them does not vary). ``seconds``: what it took.
    """

    method: str
    mean: float
    deviation: float
    zero: float
    within: float | None
    rescued: float | None
    agreement: float | None
    seconds: float


def compare_methods(
    graph: StateGraph, settings: CreditSettings | None = None, methods: Sequence[str] = tuple(METHODS)
) -> list[MethodRow]:
    """One row per estimator, in the order given; the first is what the others are compared with."""
    from refork_methods.credit.graph.advantages import group_mean

    chosen = settings or CreditSettings()
    base = group_mean(graph.outcomes, graph.groups)[graph.groups]
    largest = np.zeros(graph.groups.max() + 1)
    np.maximum.at(largest, graph.groups, np.abs(graph.outcomes))
    # The mean of equal outcomes may lie above them by rounding.
    lost = (base - graph.outcomes > 1e-9 * largest[graph.groups])[graph.trajectories]
    rows: list[MethodRow] = []
    first = None
    for method in methods:
        started = time.perf_counter()
        given = step_advantages(graph, method, chosen)
        seconds = time.perf_counter() - started
        first = given if first is None else first
        inside = given - group_mean(given, graph.trajectories)[graph.trajectories]
        varies = float(given.var())
        rows.append(
            MethodRow(
                method=method,
                mean=float(given.mean()),
                deviation=float(given.std()),
                zero=float((given == 0).mean()),
                within=float((inside**2).mean()) / varies if varies > 0 else None,
                rescued=float((given[lost] > 0).mean()) if lost.any() else None,
                agreement=_rank_correlation(first, given),
                seconds=seconds,
            )
        )
    return rows


def _rank_correlation(first: np.ndarray, other: np.ndarray) -> float | None:
    from scipy.stats import rankdata

    if np.ptp(first) == 0 or np.ptp(other) == 0:
        return None
    return float(np.corrcoef(rankdata(first), rankdata(other))[0, 1])
