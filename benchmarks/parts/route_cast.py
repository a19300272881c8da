"""Role rows of a head, taught by evolution: a planted loop of turns whose best cast is known exactly.

Three workers: one whose plan helps, one who solves, one who can tell right from wrong. Nothing says so but
the reward of whole loops. From zeros, six seeds; the weight of workers' use is that of the published run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refork.types import Json
from refork_methods.route.evolve import EvolveSettings, evolve
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Greedy
from refork_methods.route.turn_rollouts import TurnRollouts
from refork_methods.route.turns import ROLES
from refork_testbed.trials.casting import CAST, WIDTH, Numbers, cast_pool, read, value, value_of

DIVERSITY = 0.15


def figures(seeds: Sequence[int]) -> Json:
    """Exact chances of a right answer of evolved heads, beside what roles and their absence allow."""
    pool = cast_pool()
    sides = (TurnRollouts.of(pool, Numbers(), read, held_out=side, count=256) for side in (False, True))
    train, held = sides
    zero = SelectionHead.zero(pool.names, WIDTH, ROLES)
    exact, sampled, loops = [], [], 0
    for seed in seeds:
        made = evolve(zero, train, EvolveSettings(seed=seed, diversity=DIVERSITY))
        exact.append(value_of(made.head))
        sampled.append(float(held(Greedy(made.head), np.arange(512) % held.size, seed).reward.mean()))
        loops = made.rollouts
    alone = value(lambda sight: ("maker", "worker"))
    best = value(CAST.__getitem__)
    print("\nturns with roles: exact chance of a right answer of heads evolved from zeros, seed by seed")
    print("  ".join(f"{one:.3f}" for one in exact), f"({loops:,} loops each)")
    print(f"exact: the best worker without roles {alone:.3f}, the best cast of all {best:.3f}")
    return {
        "cast_least": round(min(exact), 4),
        "cast_mean": round(float(np.mean(exact)), 4),
        "cast_sampled": round(float(np.mean(sampled)), 4),
        "cast_alone": round(alone, 4),
        "cast_best": round(best, 4),
    }
