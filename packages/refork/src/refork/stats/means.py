"""Intervals for means and differences of means of graded outcomes."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.proportions import wilson
from refork.stats.results import (
    Array,
    Difference,
    Interval,
    Test,
    check_level,
    finite,
    is_binary,
    paired,
)


def t_difference(
    estimate: float, centre: float, error: float, freedom: float, *, level: float, method: str
) -> Difference:
    """Interval ``centre +- t * error`` and the t test of 0 that agrees with it.

    An error of 0 gives an interval without width and p = 0 (or 1, where the centre is 0).
    """
    from scipy.special import stdtr, stdtrit

    half = float(stdtrit(freedom, 0.5 + check_level(level) / 2)) * error
    if error > 0:
        t = centre / error
        p = float(2 * stdtr(freedom, -abs(t)))
    else:
        t, p = (0.0, 1.0) if centre == 0 else (math.copysign(math.inf, centre), 0.0)
    return Difference(Interval(estimate, centre - half, centre + half, level, method), Test(t, p, method))


def paired_t(base: Shaped[Array, "pairs"], other: Shaped[Array, pairs], level: float = 0.95) -> Difference:
    """Mean of the paired differences, other minus base, by Student's t.

    Without width where all differences are equal: :func:`refork.stats.paired_difference` mends that.

    Source: Student, The probable error of a mean (1908).
    """
    x, y = paired(base, other)
    d = y - x
    mean, error = float(d.mean()), float(d.std(ddof=1)) / math.sqrt(d.size)
    return t_difference(mean, mean, error, float(d.size - 1), level=level, method="paired t")


def welch(base: Shaped[Array, "base"], other: Shaped[Array, other], level: float = 0.95) -> Difference:
    """Difference of two independent means, other minus base, variances not assumed equal.

    Source: Welch, The generalization of Student's problem (1947).
    """
    x, y = finite(base, "base outcomes"), finite(other, "other outcomes")
    return _welch(x, y, float(y.mean() - x.mean()), level, "Welch t")


def _welch(
    x: NDArray[np.float64], y: NDArray[np.float64], estimate: float, level: float, method: str
) -> Difference:
    if min(x.size, y.size) < 2:
        raise BadInput("a difference of means needs at least two outcomes in each arm")
    a, b = float(x.var(ddof=1)) / x.size, float(y.var(ddof=1)) / y.size
    freedom = (
        (a + b) ** 2 / (a * a / (x.size - 1) + b * b / (y.size - 1))
        if a + b > 0
        else math.inf  # any will do: the quantile is multiplied by 0
    )
    return t_difference(
        estimate, float(y.mean() - x.mean()), math.sqrt(a + b), freedom, level=level, method=method
    )


def span(*arms: NDArray[np.float64]) -> float:
    """How far two outcomes can lie apart: 1 where all are in [0, 1], else their range with 0 counted in."""
    values = np.concatenate(arms)
    low, high = float(values.min()), float(values.max())
    # Scores of [0, 1] that lie close together could still have been 0 and 1: their range will not do.
    return max(high, 1.0 if low >= 0 else 0.0) - min(low, 0.0)


def with_ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values and two more: their least and greatest, or the span's ends where all are equal.

    What a sample of few or equal values has not shown yet is thus not taken to be impossible.
    """
    low, high = float(values.min()), float(values.max())
    if low == high:
        reach = span(values)
        low, high = (0.0, reach) if low >= 0 else (-reach, 0.0)
    return np.concatenate([values, [low, high]])


def adjusted_welch(x: NDArray[np.float64], y: NDArray[np.float64], level: float) -> Difference:
    """Welch's interval after two more outcomes in each arm, for graded outcomes.

    Source: Agresti and Caffo, Simple and effective confidence intervals for proportions and
    differences of proportions (2000); deviates in taking graded outcomes and t quantiles.
    """
    if min(x.size, y.size) < 2:
        raise BadInput("a difference of means needs at least two outcomes in each arm")
    return _welch(with_ends(x), with_ends(y), float(y.mean() - x.mean()), level, "adjusted Welch t")


#: Below this many differing pairs, the differences seen say little about those there are.
FEW = 6


def adjusted_paired_t(d: NDArray[np.float64], reach: float, level: float) -> Difference:
    """Student's interval of paired differences ``d`` after one more pair each way, for graded outcomes.

    ``reach`` is how far two outcomes can lie apart (:func:`span`).

    The two lie at plus and minus the geometric mean of the largest difference and of the root mean
    square of those that are not 0; or, where fewer than six pairs differ, of the outcomes' span.
    (The largest alone covers too often at symmetric differences, the root mean square alone too
    seldom at skewed ones.) The estimate stays the plain mean.

    Source: Bonett and Price, Confidence intervals for a ratio (and difference) of binomial
    proportions based on paired data (2012); deviates in taking graded outcomes and t quantiles.
    """
    size, apart = reach, np.abs(d[d != 0])
    if apart.size >= FEW:
        size = math.sqrt(float(apart.max()) * math.sqrt(float((apart**2).mean())))
    more = np.concatenate([d, [size, -size]])
    error = float(more.std(ddof=1)) / math.sqrt(more.size)
    found = t_difference(
        float(d.mean()),
        float(more.mean()),
        error,
        float(more.size - 1),
        level=level,
        method="adjusted paired t",
    )
    # The two added pairs may push a bound further out than two outcomes can lie apart.
    interval = found.interval
    clipped = Interval(
        interval.estimate, max(interval.low, -reach), min(interval.high, reach), level, interval.method
    )
    return Difference(clipped, found.test)


def mean_interval(values: Shaped[Array, "draws"], level: float = 0.95) -> Interval:
    """Mean of one arm's outcomes: Wilson where all are 0 or 1, else Student's t with the ends added.

    Within [0, 1] where all outcomes are.
    """
    x = finite(values, "outcomes")
    if is_binary(x):
        return wilson(int(x.sum()), x.size, level)
    more = with_ends(x)
    error = float(more.std(ddof=1)) / math.sqrt(more.size)
    found = t_difference(
        float(x.mean()), float(more.mean()), error, float(more.size - 1), level=level, method="adjusted t"
    ).interval
    if x.min() < 0 or x.max() > 1:
        return found
    return Interval(found.estimate, max(found.low, 0.0), min(found.high, 1.0), level, found.method)
