"""Group credit from a world's rewards, turn by turn: partial marks count, later turns count less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork.tree.node import Trajectory
from refork_methods.credit.methods import spoken

Floats = NDArray[np.float64]
#: A group whose rewards deviate less than this has nothing to teach.
FLOOR = 1e-6


def round_advantages(
    rewards: ArrayLike, turns: ArrayLike, *, discount: float = 1.0, floor: float = FLOOR
) -> Floats:
    """Advantage of every turn of some paths of one task, [paths, turns]; NaN where a path has no such turn.

    A turn is compared with the same turn of the other trajectories that have it: reward minus their mean,
    over their (population) deviation, times ``discount`` to the power of the turn (from 0). A deviation below
    ``floor`` gives exactly 0. An ungraded reward (NaN) takes no part and stays NaN.

    Args:
        rewards: floats [trajectories].
        turns: how many turns each trajectory has, [trajectories], at least 1.
        discount: in [0, 1].
        floor: above 0.

    Raises: BadInput for lengths that do not fit, or a discount or floor out of range.
    Source: arXiv:2512.04388 (a second round discounted by 0.2, normalised for itself); the floor is ours.
    """
    earned = np.asarray(rewards, dtype=np.float64).ravel()
    count = np.asarray(turns).ravel()
    if earned.shape != count.shape or (count < 1).any():
        raise BadInput("every trajectory needs one reward and at least one turn", where="credit")
    if not 0 <= discount <= 1 or not floor > 0:
        raise BadInput(f"discount {discount} must lie in [0, 1] and floor {floor} above 0", where="credit")
    given = np.full((len(earned), int(count.max(initial=0))), np.nan)
    for turn in range(given.shape[1]):
        rows = np.flatnonzero((count > turn) & np.isfinite(earned))
        # Trajectories only drop out from turn to turn: where none is left, none comes back.
        if not len(rows):
            break
        centred = earned[rows] - earned[rows].mean()
        spread = centred.std()
        given[rows, turn] = 0.0 if spread < floor else discount**turn * centred / spread
    return given


def reward_credit(
    trajectories: Sequence[Trajectory], outcomes: ArrayLike, *, discount: float = 1.0, floor: float = FLOOR
) -> list[Floats]:
    """Every token of a turn gets the turn's advantage, from the rewards on the trajectories' verdicts.

    ``outcomes`` (successes, 0 or 1) only say which trajectories were graded: a world that gives half marks,
    or takes off costs, says so in its rewards. For :func:`refork_methods.train.loop.train_policy` as
    ``credit``.

    Raises: BadInput as :func:`round_advantages`.
    """
    known = np.isfinite(np.asarray(outcomes, dtype=np.float64).ravel())
    if len(known) != len(trajectories):
        raise BadInput(f"{len(trajectories)} trajectories but {len(known)} outcomes", where="credit")
    rewards = [
        _reward(trajectory) if graded else np.nan
        for trajectory, graded in zip(trajectories, known, strict=True)
    ]
    turns = [_turns(trajectory) for trajectory in trajectories]
    by_turn = round_advantages(
        rewards, [int(t.max(initial=0)) + 1 for t in turns], discount=discount, floor=floor
    )
    return [by_turn[row][turn] for row, turn in enumerate(turns)]


def _reward(trajectory: Trajectory) -> float:
    given = trajectory.leaf.extra.get("reward") if trajectory.leaf.kind == "verdict" else None
    return float(np.nan if given is None else given)


def _turns(trajectory: Trajectory) -> NDArray[np.int64]:
    """The turn (from 0) that each token of a path belongs to; what comes before an action is of its turn.

    What comes after the last one is of the last turn: only actions make turns.
    """
    found: list[int] = []
    turn, acted = 0, False
    for node, size in spoken(trajectory):
        if node.kind == "action":
            acted = True
        elif acted:
            turn, acted = turn + 1, False
        found += [turn] * size
    last = turn if acted else max(turn - 1, 0)
    return np.minimum(np.array(found, dtype=np.int64), last)
