"""How much of the true credit graph, anchor and group credit explain on other people's environments.

The truth of a step is its advantage under the policy that made the rollouts: by forks on draws of their own,
and for Gymnasium's tables, whose chances are known, by backward induction, which says how good the forks are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from parts import credit_truth
from parts.foreign_boards import Board, Policy, Tabled, Truth, exact_values, rollout
from refork.stats import mean_interval, paired_bootstrap
from refork.types import Json

Float64 = NDArray[np.float64]
#: Sides and the settings that stand for each: a peer at the better of its two, as in graph_credit.
SIDES = credit_truth.SIDES
ESTIMATORS = tuple(name for names in SIDES.values() for name in names)


def recorded(
    board: Board, error: float, groups: int, draws: int, seed: int
) -> tuple[credit_truth.Rollouts, Float64]:
    """Groups of rollouts of the erring expert with each step's advantage by forks, and by induction."""
    policy = Policy(board, error)
    rng = random.Random(f"rollouts {seed}")
    truth = Truth(policy, draws, random.Random(f"forks {seed}"))
    known = exact_values(board, error) if isinstance(board, Tabled) else None
    states, lengths, won, forked, exact = [], [], [], [], []
    for _ in range(groups * credit_truth.ROLLOUTS):
        steps, win = rollout(policy, rng)
        lengths.append(len(steps))
        won.append(float(win))
        for turn, (state, action) in enumerate(steps):
            states.append(state)
            # Where the truth is known, forks are measured on the first task only, to be compared with it.
            forked.append(truth.advantage(state, action, turn) if known is None or seed == 0 else 0.0)
            if known is not None:
                value, after = known
                exact.append(after[turn, state, action] - value[turn, state])
    seen = credit_truth.Rollouts(
        np.array(states), np.array(lengths), np.array(won), credit_truth.WIN * np.array(forked)
    )
    return seen, credit_truth.WIN * np.array(exact)


def credit(boards: Sequence[Board], error: float, groups: int, draws: int) -> Json:
    """What each side explains, per environment: mean over tasks, intervals by resampling tasks."""
    sides = credit_truth.estimators()
    shares: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    success, merged, forks = [], [], []
    for number, board in enumerate(boards):
        seen, exact = recorded(board, error, groups, draws, number)
        success.append(float(seen.won.mean()))
        merged.append(1 - len(set(seen.states.tolist())) / len(seen.states))
        if len(exact) and number == 0:
            forks.append(credit_truth.explained(seen.truth, exact))
        for name in ESTIMATORS:
            # Where the truth is exact it is the truth; forks stand in for it elsewhere.
            truth = exact if len(exact) else seen.truth
            shares[name].append(credit_truth.explained(sides[name](seen), truth))
    values = {name: np.array(found) for name, found in shares.items()}
    best = {side: max(names, key=lambda name: values[name].mean()) for side, names in SIDES.items()}
    told: Json = {
        "tasks": len(boards),
        "success": round(float(np.mean(success)), 4),
        "merged": round(float(np.mean(merged)), 4),
    }
    if forks:
        told["forks_explain_exact"] = round(float(np.mean(forks)), 4)
    for side, name in best.items():
        low = mean_interval(values[name])
        told[side] = round(low.estimate, 4)
        told[f"{side}_low"], told[f"{side}_high"] = round(low.low, 4), round(low.high, 4)
    for peer in ("gigpo", "trl"):
        gain = paired_bootstrap(values[best[peer]], values[best["g2po"]], np.random.default_rng(165))
        told[f"over_{peer}"] = round(gain.estimate, 4)
        told[f"over_{peer}_low"], told[f"over_{peer}_high"] = round(gain.low, 4), round(gain.high, 4)
    return told
