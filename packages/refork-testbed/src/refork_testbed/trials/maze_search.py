"""A search agent that refuses states it has seen, simulated on the whole maze (no branch stands for another).

Each proposal of the policy costs 1. One that leads to a state already seen is refused and drawn again, so
turning round in a dead branch cannot send the walk forward once more.

Source: our reading of Corollary 1 of arXiv 2606.22938. A state is a directed edge, parallel edges merged;
coming back to the fork from another branch is another state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput
from refork_methods.recovery.chain import Int64
from refork_methods.recovery.rows import A, B, C, D, RowPolicy


@final
@dataclass(frozen=True, eq=False)
class Searches:
    """``cost`` [n] proposals made, ``reached`` [n] whether the target was found.

    The others were cut at the cap, or ran into states (``stuck`` [n]) all of whose successors were seen.
    """

    cost: Int64
    reached: NDArray[np.bool_]
    stuck: NDArray[np.bool_]


def _tables(policy: RowPolicy) -> tuple[Int64, Int64, NDArray[np.float64]]:
    """Wanted and other successor and the chance of the first, for the states of one branch.

    Rows a, b, c, d by diamond, then the leaf, then the fork as reached from this branch.
    """
    k = policy.graph.diamonds
    leaf, fork = 4 * k, 4 * k + 1
    wanted, other = np.zeros(4 * k + 2, dtype=np.int64), np.zeros(4 * k + 2, dtype=np.int64)
    for j in range(k):
        onward = C * k + j + 1 if j + 1 < k else leaf
        inward = B * k + j - 1 if j else fork
        wanted[A * k + j], other[A * k + j] = onward, D * k + j
        wanted[B * k + j], other[B * k + j] = D * k + j, onward
        wanted[C * k + j], other[C * k + j] = A * k + j, inward
        wanted[D * k + j], other[D * k + j] = inward, A * k + j
    wanted[leaf] = other[leaf] = B * k + k - 1
    chance = np.ones(4 * k + 2)
    chance[: 4 * k] = policy.desired.reshape(-1)
    return wanted, other, chance


def simulate_search(
    policy: RowPolicy, episodes: int, rng: np.random.Generator, *, cap: int = 100_000
) -> Searches:
    """Independent searches from the source; branch 0 holds the target.

    Raises:
        BadInput: no episodes.
    """
    if episodes < 1:
        raise BadInput(f"{episodes} episodes were asked for", where="search agent")
    graph = policy.graph
    wanted, other, chance = _tables(policy)
    leaf, fork, entry = 4 * graph.diamonds, 4 * graph.diamonds + 1, C * graph.diamonds
    seen = np.zeros((episodes, graph.branches, fork + 1), dtype=bool)
    branch, place = np.zeros(episodes, dtype=np.int64), np.full(episodes, fork)
    cost = np.ones(episodes, dtype=np.int64)
    reached, stuck = np.zeros(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    active = np.arange(episodes)
    while len(active) and int(cost[active[0]]) < cap:
        b, at = branch[active], place[active]
        at_fork = at == fork
        # Where everything around was seen, no proposal can ever be taken.
        open_fork = ~seen[active, :, entry].all(axis=1)
        open_here = ~(seen[active, b, wanted[at]] & seen[active, b, other[at]])
        lost = ~np.where(at_fork, open_fork, open_here)
        stuck[active[lost]] = True
        luck = rng.random(len(active))
        next_branch = np.where(at_fork, (luck * graph.branches).astype(np.int64), b)
        inside = np.where(luck < chance[at], wanted[at], other[at])
        there = np.where(at_fork, entry, inside)
        taken = ~seen[active, next_branch, there] & ~lost
        cost[active[~lost]] += 1
        moved = active[taken]
        branch[moved], place[moved] = next_branch[taken], there[taken]
        seen[moved, branch[moved], place[moved]] = True
        reached[moved] = (branch[moved] == 0) & (place[moved] == leaf)
        active = active[~lost & ~reached[active]]
    return Searches(cost, reached, stuck)
