"""Closed forms of hitting times on the path-star maze, as exact rationals.

Source: the graph and the two rates are those of arXiv 2606.22938; the closed forms are ours, checked against
the linear system. The paper states Theta(W K) against Theta(W L^K); exactly, each diamond multiplies the way
out of a dead branch by (L + 1)^2 / L, which is of the order of L only while K = O(L).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from refork.errors import BadInput
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.rows import BACKWARD, FORWARD, RowPolicy


def base_hitting_time(branches: int, diamonds: int, edges: int) -> Fraction:
    """Expected moves of the uniform walk: a polynomial of order W K^2 L.

    Raises:
        BadInput: W, K or L below 1.
    """
    PathStar(branches, diamonds, edges)
    w, k, wide = Fraction(branches), Fraction(diamonds), Fraction(edges)
    per_branch = k * (wide + 1) + 1
    inner = k * ((w - 1) * per_branch + 1) + (wide + 1) * k * (k - 1) / 2
    return 2 + 2 * (w - 1) * per_branch + 2 * (wide + 1) / wide * inner + 2 * k * (wide + 1)


def optimal_hitting_time(branches: int, diamonds: int) -> int:
    """Expected moves of a trajectory that never turns but at dead leaves: 4 W K + 2 (W - K).

    The often quoted 4 W K is the case W = K.

    Raises:
        BadInput: W or K below 1.
    """
    return PathStar(branches, diamonds, 1).optimal_hitting_time


def exit_times(diamonds: int, edges: int) -> tuple[Fraction, ...]:
    """Expected moves from a dead leaf out through 0, 1, .. K diamonds, where forward moves are sure.

    Rows b and d are those of the uniform walk. The last entry is the way back to the fork.

    Raises:
        BadInput: K or L below 1.
    """
    PathStar(1, diamonds, edges)
    wide = Fraction(edges)
    times = [Fraction(1)]
    for i in range(1, diamonds + 1):
        crossed = (wide + 1) / wide * times[-1] + (2 * i - 1) / wide + 1
        times.append((wide + 1) * crossed + 2 * i * wide + 1)
    return tuple(times)


def sft_limit_hitting_time(branches: int, diamonds: int, edges: int) -> Fraction:
    """Expected moves after endless training on shortest paths: 2 + 2 K + (W - 1) (g_K + 2 K + 1).

    Raises:
        BadInput: W, K or L below 1.
    """
    PathStar(branches, diamonds, edges)
    return 2 + 2 * diamonds + (branches - 1) * (exit_times(diamonds, edges)[-1] + 2 * diamonds + 1)


def growth_per_diamond(edges: int) -> Fraction:
    """By how much each diamond multiplies the way out after training on shortest paths: (L + 1)^2 / L."""
    return Fraction((edges + 1) ** 2, edges)


def search_cost(policy: RowPolicy) -> float:
    """Expected proposals of a search agent that refuses states it has seen; exact for sure forward moves.

    A proposal that leads to a state already seen is refused and drawn again, and each costs 1, at the fork
    too. So a step back costs 1/p proposals instead of sending the trajectory forward again:
    1 + W + 2 K + (W - 1)/2 (2 K + 1 + sum_j (1/p_b + 1/p_d)), where the inner term is (L + 1)^2 / L a diamond
    for rows b and d of the uniform walk and 2 for sure ones.

    Raises:
        BadInput: forward moves (rows a and c) that are not sure: then a search can lose the target for good.

    Source: our reading of Corollary 1 of arXiv 2606.22938, which gives orders only.
    """
    graph, odds = policy.graph, policy.odds
    if bool((odds[list(FORWARD)] > 0).any()):
        raise BadInput(
            "the closed form holds where rows a and c always go on",
            where="search agent",
            hint="simulate it: simulate_search",
        )
    back = float(np.sum(1 + odds[list(BACKWARD)]))
    dead = (graph.branches - 1) / 2
    # A single branch has no dead end; a policy that never goes back would make it 0 times infinity.
    lost = dead * (2 * graph.diamonds + 1 + back) if dead else 0.0
    return 1 + graph.branches + 2 * graph.diamonds + lost
