"""Means of times that were cut: Kaplan-Meier, the restricted mean, and a tail with a stated assumption.

A trajectory that was cut after c moves says only that its time exceeds c; averaging c as if it were the time
makes a stuck policy look fast.

Source: Kaplan and Meier (1958), through ``scipy.stats.ecdf``. The exponential tail, with the hazard of the
later half of the observed times, is our choice: it is right where, late in a trajectory, how long it has
lasted says nothing of how long it will, as in any finite chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats as scipy_stats

from refork import stats
from refork.errors import BadInput
from refork_methods.recovery.rows import Float64


@final
@dataclass(frozen=True, slots=True)
class CensoredMean:
    """What ``count`` times, ``censored`` of them cut, say about their mean.

    ``restricted`` is the mean of min(time, horizon), with its 95 % interval; it is a lower bound of the mean.
    ``mean`` adds the exponential tail beyond the horizon; None where no trajectory ended in the later half,
    so that nothing is known of the tail. ``median`` is Kaplan-Meier's; None where fewer than half ended.
    """

    count: int
    censored: int
    horizon: float
    restricted: float
    low: float
    high: float
    median: float | None
    mean: float | None


def _checked(times: ArrayLike, ended: ArrayLike) -> tuple[Float64, NDArray[np.bool_]]:
    t, done = np.asarray(times, dtype=np.float64).reshape(-1), np.asarray(ended, dtype=bool).reshape(-1)
    if t.shape != done.shape or not len(t):
        raise BadInput(f"{t.size} times but {done.size} marks of whether they ended", where="censored times")
    if not bool((np.isfinite(t) & (t > 0)).all()):
        raise BadInput("times must be finite and above 0", where="censored times")
    return t, done


def survival(times: ArrayLike, ended: ArrayLike) -> tuple[Float64, Float64]:
    """Kaplan-Meier: the distinct times [m] and the share that lasts longer than each [m].

    Args:
        times: moves made, [n].
        ended: whether each reached its end, [n]; the others were cut there.
    """
    t, done = _checked(times, ended)
    data = scipy_stats.CensoredData.right_censored(t, ~done)
    curve = scipy_stats.ecdf(data).sf
    return np.asarray(curve.quantiles, dtype=np.float64), np.asarray(curve.probabilities, dtype=np.float64)


def _restricted(times: Float64, ended: NDArray[np.bool_], horizon: float) -> float:
    at, share = survival(times, ended)
    inside = at < horizon
    ends = np.concatenate([[0.0], at[inside], [horizon]])
    return float(np.diff(ends) @ np.concatenate([[1.0], share[inside]]))


def censored_mean(times: ArrayLike, ended: ArrayLike, level: float = 0.95) -> CensoredMean:
    """The mean of times some of which were cut.

    The interval of the restricted mean is Student's t where every cut lies at the horizon (then each
    min(time, horizon) is known), else Greenwood's variance with a normal quantile.

    Raises:
        BadInput: lengths that differ, no times, or times not above 0.
    """
    t, done = _checked(times, ended)
    horizon = float(t.max())
    at, share = survival(t, done)
    if bool((t[~done] == horizon).all()):
        interval = stats.mean_interval(t, level) if len(t) > 1 else None
        value = float(t.mean())
        low, high = (max(0.0, interval.low), min(interval.high, horizon)) if interval else (0.0, horizon)
    else:
        value = _restricted(t, done, horizon)
        reach = float(scipy_stats.norm.ppf((1 + level) / 2)) * _greenwood(t, done, horizon)
        low, high = max(0.0, value - reach), min(horizon, value + reach)
    below = np.flatnonzero(share <= 0.5)
    left = float(share[-1])
    late = t > horizon / 2
    # Ends in the later half over the time that was spent in it.
    hazard = float((late & done).sum()) / float((t[late] - horizon / 2).sum())
    # Whoever is left at the horizon goes on for 1 / hazard moves on average.
    # Exactly 0 where the longest time ended: the last factor of Kaplan-Meier is then 1 - 1/1.
    mean = value if left == 0 else (value + left / hazard if hazard > 0 else None)
    return CensoredMean(
        count=len(t),
        censored=int((~done).sum()),
        horizon=horizon,
        restricted=value,
        low=low,
        high=high,
        median=float(at[below[0]]) if len(below) else None,
        mean=mean,
    )


def _greenwood(times: Float64, ended: NDArray[np.bool_], horizon: float) -> float:
    """Standard error of the restricted mean."""
    at, share = survival(times, ended)
    events = np.array([float((ended & (times == x)).sum()) for x in at])
    risk = np.array([float((times >= x).sum()) for x in at])
    widths = np.diff(np.concatenate([at, [horizon]]))
    rest = np.cumsum((widths * share)[::-1])[::-1]
    # Where all at risk ended nothing lasts longer: that term is 0 / 0 and counts as 0.
    free = risk - events
    return float(np.sqrt(np.sum(np.where(free > 0, rest**2 * events / (risk * np.maximum(free, 1)), 0.0))))
