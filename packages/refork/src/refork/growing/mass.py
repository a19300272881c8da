"""What a group of outcomes tells a group-relative trainer: its gradient mass, or nothing.

A group is the rewards of several rollouts of one prompt. Where all are equal every advantage is 0 and the
group teaches nothing, however large it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput

Float64 = NDArray[np.float64]
Kind = Literal["all-fail", "all-pass", "mixed"]

#: Rewards whose spread is below this share of the largest count as equal: rounding is no signal.
EQUAL = 1e-9


def group_rewards(rewards: ArrayLike, *, where: str = "group", graded: bool = False) -> Float64:
    """Rewards of one group as float64 [G], checked.

    ``graded`` allows any scale; otherwise a group that holds -1, 0 and 1 together is refused, for its 0
    may be a failure on one scale and a draw on the other.

    Raises:
        BadInput: fewer than two rollouts, NaN or infinite rewards, or two scales in one group.
    """
    values = np.asarray(rewards, dtype=np.float64).reshape(-1)
    if len(values) < 2:
        raise BadInput(
            f"a group of {len(values)} has nothing to be compared with",
            where=where,
            hint="draw at least 2 rollouts per prompt",
        )
    if not np.isfinite(values).all():
        raise BadInput(
            f"{int((~np.isfinite(values)).sum())} of {len(values)} rewards are NaN or infinite",
            where=where,
            hint="leave ungraded rollouts out; ungraded is not 0",
        )
    if not graded and np.isin(values, (-1, 0, 1)).all() and {-1.0, 0.0} <= set(values.tolist()):
        raise BadInput(
            "the rewards mix the scales 0/1 and -1/+1: they hold both -1 and 0",
            where=where,
            hint="use one scale per group, or say that the rewards are graded",
        )
    return values


def is_constant(rewards: ArrayLike, tolerance: float = EQUAL) -> bool:
    """Whether all rewards of a group are equal up to rounding, whatever their scale.

    Compares the largest with the smallest: the mean does not tell (a group of 0.5 is as constant as one
    of 1), and a standard deviation that should be 0 often comes out as 1e-17.
    """
    values = np.asarray(rewards, dtype=np.float64)
    return bool(np.ptp(values) <= tolerance * max(float(np.abs(values).max()), np.finfo(np.float64).tiny))


@dataclass(frozen=True, slots=True)
class GradientMass:
    """How much non-vanishing gradient one group offers, three ways; all are exactly 0 where it is constant.

    ``squared``: sum of squared advantages, G for any group that is not constant (a step function);
    ``absolute``: sum of absolute advantages; ``centred``: the same without dividing by the deviation.
    """

    squared: float
    absolute: float
    centred: float


def gradient_mass(rewards: ArrayLike, *, graded: bool = False) -> GradientMass:
    """The mass of one group, in advantages (``centred``: in rewards).

    With k of G rewards +1 and the others -1: G, 2 sqrt(k (G - k)) and 4 k (G - k) / G. Advantages are rewards
    minus their mean, over the population standard deviation (arXiv 2402.03300, outcome supervision).

    Raises: what :func:`group_rewards` raises.
    """
    values = group_rewards(rewards, graded=graded)
    if is_constant(values):  # a deviation that should be 0 is often 1e-17, and would be divided by
        return GradientMass(0.0, 0.0, 0.0)
    centred = values - values.mean()
    scaled = centred / values.std()
    return GradientMass(float((scaled**2).sum()), float(np.abs(scaled).sum()), float(np.abs(centred).sum()))


def group_kind(rewards: ArrayLike, passing: float = 1.0, *, graded: bool = False) -> Kind:
    """``all-fail``, ``all-pass`` or ``mixed``: the first two need opposite cures (easier, harder prompts).

    A constant group passes where its reward reaches ``passing``.
    """
    values = group_rewards(rewards, graded=graded)
    if not is_constant(values):
        return "mixed"
    return "all-pass" if values[0] >= passing else "all-fail"
