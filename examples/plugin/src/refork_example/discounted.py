"""A credit: what came late counts more."""

import numpy as np


def discounted(trajectories, outcomes, *, gamma: float = 0.9):
    """The outcome less the mean of its group, times ``gamma`` for every turn that came after.

    Returns one float64 array per trajectory, one number per token of its events, verdicts left out.
    """
    gains = np.asarray(outcomes, dtype=float)
    gains = gains - np.nanmean(gains)  # NaN is ungraded, and stays so
    given = []
    for trajectory, gain in zip(trajectories, gains, strict=True):
        steps = [step for step in trajectory if step.node.kind != "verdict" and step.tokens is not None]
        turn = np.cumsum([step.node.kind == "action" for step in steps])
        worth = gain * gamma ** (turn[-1] - turn)
        given.append(np.repeat(worth, [len(step.tokens) for step in steps]))
    return given
