"""How often a group of rollouts collapses (all fail or all pass), by budget: exact, estimated, and fitted.

Of B independent draws with success rate p, all agree with probability ``p**B + (1-p)**B``. On a hard
prompt more draws help only linearly in B while difficulty acts exponentially: with h decisions, each right
with probability q, the mixed share is at most ``B * q**h``. Over prompts of all difficulties the curve is
therefore flat.

Source of the question: arXiv 2605.05262; formulas and estimators here are ours, from the binomial
distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork import stats
from refork.errors import BadInput

Float64 = NDArray[np.float64]

#: A group larger than this is not a plan.
_MOST = 10**12
_FIT = {"xatol": 1e-6, "fatol": 1e-9}


def _rates(p: ArrayLike) -> Float64:
    rates = np.asarray(p, dtype=np.float64)
    if not (np.isfinite(rates).all() and (rates >= 0).all() and (rates <= 1).all()):
        raise BadInput("a success rate lies outside [0, 1]", where="collapse")
    return rates


def _size(n: int) -> int:
    if n < 1:
        raise BadInput(f"a group of {n} rollouts", where="collapse", hint="at least 1")
    return n


def collapse_probability(p: ArrayLike, n: int) -> Float64:
    """Chance that ``n`` independent draws with success rate ``p`` all agree, in the shape of ``p``.

    Raises: BadInput for a rate outside [0, 1] or n below 1.
    """
    rates = _rates(p)
    return np.asarray(rates ** _size(n) + (1.0 - rates) ** n)


def mixed_probability(p: ArrayLike, n: int) -> Float64:
    """One minus :func:`collapse_probability`, accurate for tiny rates too."""
    rates = _rates(p)
    small = np.minimum(rates, 1.0 - rates)
    with np.errstate(divide="ignore"):
        # 1 - (1 - p)^n has no digits left for a tiny p; the share is the same for p and 1 - p.
        some = -np.expm1(_size(n) * np.log1p(-small))
    return np.asarray(np.maximum(some - small**n, 0.0))


def required_group_size(p: float, target: float) -> int | None:
    """The smallest group that is mixed with probability ``target`` or more; None where none is (p is 0 or 1).

    Raises: BadInput for a rate outside [0, 1] or a target outside (0, 1).
    """
    rate = float(_rates(p))
    if not 0 < target < 1:
        raise BadInput(f"the target is {target}; it must lie strictly between 0 and 1")
    if rate in {0.0, 1.0}:
        return None
    return _smallest(lambda n: float(mixed_probability(rate, n)), target)


def _smallest(mixed: Callable[[int], float], target: float) -> int | None:
    """The least n >= 2 at which a function that grows with n reaches the target; None beyond 1e12."""
    high = 2
    while mixed(high) < target:
        high *= 2
        if high > _MOST:
            return None
    low = max(high // 2, 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mixed(middle) >= target else (middle, high)
    return high


def mixed_estimate(successes: int, draws: int, n: int) -> float:
    """Unbiased estimate of the mixed share at group size ``n <= draws``, from one prompt's recorded draws.

    The share of all size-n subsets of the recorded draws that are mixed; closed form.

    Raises: BadInput where n exceeds the draws: that would be extrapolation.
    Source: as pass@k, arXiv 2107.03374, applied to successes and failures (ours).
    """
    some_pass = stats.pass_at_k(successes, draws, n)
    some_fail = stats.pass_at_k(draws - successes, draws, n)
    return max(some_pass + some_fail - 1.0, 0.0)


@dataclass(frozen=True, slots=True)
class BetaDistribution:
    """Success rates of prompts as a Beta(a, b) law; ``prompts`` it was fitted to (0: given, not fitted)."""

    a: float
    b: float
    prompts: int = 0

    def mixed(self, n: int) -> float:
        """Mean mixed share at group size ``n`` over prompts of this distribution."""
        from scipy.special import betaln

        base = float(betaln(self.a, self.b))
        fail = math.exp(float(betaln(self.a, self.b + _size(n))) - base)
        succeed = math.exp(float(betaln(self.a + n, self.b)) - base)
        return max(1.0 - fail - succeed, 0.0)

    def required(self, target: float) -> int | None:
        """Group size at which the mean mixed share reaches ``target``; None beyond 1e12."""
        if not 0 < target < 1:
            raise BadInput(f"the target is {target}; it must lie strictly between 0 and 1")
        return _smallest(self.mixed, target)


def fit_beta(successes: ArrayLike, draws: ArrayLike) -> BetaDistribution:
    """Maximum-likelihood Beta law of success rates, from successes and draws per prompt (beta-binomial).

    A weak prior (log a and log b normal, deviation 2) keeps the fit finite where all prompts agree.

    Raises: BadInput for fewer than two prompts or impossible counts.
    """
    from scipy.optimize import minimize
    from scipy.special import betaln

    won = np.asarray(successes, dtype=np.float64).reshape(-1)
    n = np.asarray(draws, dtype=np.float64).reshape(-1)
    if len(won) < 2 or won.shape != n.shape or (won < 0).any() or (won > n).any() or (n < 1).any():
        raise BadInput("to fit success rates takes counts of at least two prompts", where="fit_beta")

    def loss(log: Float64) -> float:
        a, b = np.exp(log)
        return float(-(betaln(a + won, b + n - won) - betaln(a, b)).sum() + (log**2).sum() / 8)

    found = minimize(
        loss, np.array([-0.5, -0.5]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9}
    )
    a, b = np.exp(np.clip(found.x, -12, 12))
    return BetaDistribution(float(a), float(b), len(won))


@dataclass(frozen=True, slots=True)
class MixedSharePoint:
    """The mean mixed share at a group size; the interval is over prompts, None where it is extrapolated."""

    size: int
    mixed: float
    low: float | None
    high: float | None
    extrapolated: bool


def budget_curve(
    successes: ArrayLike, draws: ArrayLike, sizes: Sequence[int], distribution: BetaDistribution | None = None
) -> list[MixedSharePoint]:
    """Mean mixed share over prompts at each group size, from recorded counts.

    Up to the smallest recorded group the estimate is unbiased, with an interval over prompts; beyond it a
    fitted Beta distribution is used, and the point says so.
    """
    won = np.asarray(successes, dtype=np.int64).reshape(-1)
    n = np.asarray(draws, dtype=np.int64).reshape(-1)
    points = []
    for size in sizes:
        if size <= int(n.min()):
            each = [mixed_estimate(int(k), int(m), size) for k, m in zip(won, n, strict=True)]
            found = stats.mean_interval(np.array(each))
            points.append(MixedSharePoint(size, found.estimate, found.low, found.high, False))
            continue
        distribution = distribution or fit_beta(won, n)
        points.append(MixedSharePoint(size, distribution.mixed(size), None, None, True))
    return points
