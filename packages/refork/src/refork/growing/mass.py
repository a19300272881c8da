"""What a group of outcomes tells a group-relative trainer: advantages, gradient mass, or nothing.

A group is the rewards of several rollouts of one prompt. Where all are equal every advantage is 0 and the
group teaches nothing, however large it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]
Norm = Literal["std", "mean", "none"]
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


def group_advantages(rewards: ArrayLike, norm: Norm = "std", *, graded: bool = False) -> Float64:
    """Advantages of one group, [G]: reward minus the mean, over the population standard deviation.

    ``mean`` leaves the deviation out, ``none`` also the mean. A constant group gives zeros, bit for bit.

    Raises:
        BadInput: what :func:`group_rewards` refuses, or an unknown norm.
    Source: arXiv 2402.03300 (GRPO), outcome supervision; ``mean`` is arXiv 2503.20783.
    """
    values = group_rewards(rewards, graded=graded)
    if norm not in ("std", "mean", "none"):
        raise BadInput(f"unknown norm {norm!r}", hint="known: std, mean, none")
    if norm == "none":
        return values
    if is_constant(values):
        # Not centred / std: rounding would leave 1e-17 / 1e-17 where there is no signal.
        return np.zeros_like(values)
    centred = values - values.mean()
    return np.asarray(centred / values.std() if norm == "std" else centred, dtype=np.float64)


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

    With k of G rewards +1 and the others -1: G, 2 sqrt(k (G - k)) and 4 k (G - k) / G.

    Raises: what :func:`group_rewards` raises.
    """
    scaled = group_advantages(rewards, "std", graded=graded)
    centred = group_advantages(rewards, "mean", graded=graded)
    return GradientMass(float((scaled**2).sum()), float(np.abs(scaled).sum()), float(np.abs(centred).sum()))


def group_kind(rewards: ArrayLike, passing: float = 1.0, *, graded: bool = False) -> Kind:
    """``all-fail``, ``all-pass`` or ``mixed``: the first two need opposite cures (easier, harder prompts).

    A constant group passes where its reward reaches ``passing``.
    """
    values = group_rewards(rewards, graded=graded)
    if not is_constant(values):
        return "mixed"
    return "all-pass" if values[0] >= passing else "all-fail"


def informative(groups: Sequence[ArrayLike], *, graded: bool = False) -> Bools:
    """Which groups teach anything, [groups]: those whose rewards are not all equal.

    A group is kept or left out as a whole. So a lone failure among successes stays, with its group.
    """
    checked = [group_rewards(g, where=f"group {i}", graded=graded) for i, g in enumerate(groups)]
    return np.array([not is_constant(values) for values in checked], dtype=bool)


def check_filter(groups: Sequence[ArrayLike], keep: Sequence[ArrayLike], *, graded: bool = False) -> None:
    """Refuse a filter (one flag per rollout) that is none: it tears a group apart or keeps the wrong ones.

    Masks made by leaving each rollout out in turn do so: among successes the one failure sees equal
    others and is dropped, and what is left of its group has no advantage.

    Raises:
        BadInput: a group is kept in part, a mixed one is dropped, or a constant one is kept.
    """
    wanted = informative(groups, graded=graded)
    for i, flags in enumerate(keep):
        kept = np.asarray(flags, dtype=bool)
        if kept.any() != kept.all():
            raise BadInput(
                f"the mask keeps {int(kept.sum())} of {len(kept)} rollouts of one group",
                where=f"group {i}",
                hint="keep or drop whole groups; a leave-one-out mask is no group filter",
            )
        if bool(kept.all()) != bool(wanted[i]):
            state = "mixed group is dropped" if wanted[i] else "constant group is kept"
            raise BadInput(f"a {state}", where=f"group {i}", hint="filter with `informative`")
