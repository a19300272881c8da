"""What step scores say to a grower while a rollout goes on: carry on, branch before a step, or stop.

Up to luck, the running sum of implicit advantages is the value gained since the start,
V(now) - V(start) + rewards so far, so its falls are losses in units of reward (times beta in nats). That a
fall beyond a threshold should lead to a branch or an end is ours; neither threshold has a default,
because beta, and with it the unit, is known only for one's own models.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork_methods.implicit.soft_values import Floats


@dataclass(frozen=True, slots=True)
class Signal:
    """``advice``, the step to branch before (None unless ``branch``), and the terms that decided.

    ``total`` is the running sum, ``fall`` how far it lies below its highest point so far (0 or more).
    """

    advice: Literal["go on", "branch", "stop"]
    step: int | None
    total: float
    fall: float


def advise(steps: ArrayLike, *, branch_below: float, stop_fall: float) -> Signal:
    """Advice after some steps; NaN steps (cut ones) are passed over.

    ``stop`` where the running sum lies more than ``stop_fall`` below its highest point (0, the start,
    included); else ``branch`` before the lowest step where that is below ``branch_below``; else ``go on``.

    Raises:
        BadInput: ``branch_below`` not below 0, or ``stop_fall`` not above it.
    """
    if not branch_below < 0 < stop_fall:
        raise BadInput("branch_below must be below 0 and stop_fall above 0", where="stop / branch signal")
    values = np.nan_to_num(np.asarray(steps, dtype=np.float64), nan=0.0)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    total, fall = float(sums[-1]), float(sums.max() - sums[-1])
    if fall > stop_fall:
        return Signal("stop", None, total, fall)
    if len(values) and values.min() < branch_below:
        return Signal("branch", int(values.argmin()), total, fall)
    return Signal("go on", None, total, fall)


def win_chance(total: ArrayLike, prior: float, scale: float = 1.0) -> Floats:
    """A value in (0, 1) of points whose running sum is ``total``, for selectors that expect a success rate.

    logistic(logit(prior) + total / scale): ``prior`` where nothing was gained. NaN stays NaN. Ours: the
    sum is a difference of values, not of log-odds, so only the order is meant; ``scale`` is in its unit.

    Raises:
        BadInput: prior outside (0, 1), or a scale that is not above 0.
    """
    from scipy.special import expit, logit

    if not 0 < prior < 1 or scale <= 0:
        raise BadInput("the prior must lie in (0, 1) and the scale be above 0", where="value of a point")
    found: NDArray[np.float64] = expit(logit(prior) + np.asarray(total, dtype=np.float64) / scale)
    return found
