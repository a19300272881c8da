"""``corridor``: a toy agent whose every quantity is known, to try step scores on.

Ten steps to get from 0 to +5. ``forward`` goes one on (and slips, staying, with probability 0.15), ``back``
goes one back, ``jump`` goes two on with probability 0.3 and is the end otherwise, ``wait`` stays. Reward 1
on arrival, else 0.
"""

from __future__ import annotations

import numpy as np

from refork_methods.implicit.soft_values import FiniteMdp

ACTIONS = ("forward", "back", "jump", "wait")
JUMP = ACTIONS.index("jump")
REFERENCE = (0.3, 0.3, 0.1, 0.3)
STEPS, GOAL, SLIP, LUCKY = 10, 5, 0.15, 0.3
#: State numbers: positions -STEPS .. GOAL, then dead. An episode begins at START.
START, DEAD = STEPS, STEPS + GOAL + 1
ARRIVED = START + GOAL


def corridor() -> FiniteMdp:
    """The problem; states are START + position, the goal and death are over."""
    count = DEAD + 1
    chances = np.zeros((count, len(ACTIONS), count))
    for state in range(ARRIVED):
        chances[state, 0, state + 1], chances[state, 0, state] = 1 - SLIP, SLIP
        chances[state, 1, max(state - 1, 0)] = 1.0
        chances[state, 2, min(state + 2, ARRIVED)], chances[state, 2, DEAD] = LUCKY, 1 - LUCKY
        chances[state, 3, state] = 1.0
    over = np.zeros(count, dtype=bool)
    over[[ARRIVED, DEAD]] = True
    chances[ARRIVED, :, ARRIVED] = chances[DEAD, :, DEAD] = 1.0
    rewards = np.zeros_like(chances)
    rewards[:ARRIVED, :, ARRIVED] = 1.0
    return FiniteMdp(chances, rewards, over, STEPS)
