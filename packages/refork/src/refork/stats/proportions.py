"""Intervals for proportions and their differences, from counts."""

from __future__ import annotations

import math
from collections.abc import Callable

from refork.errors import BadInput
from refork.stats.results import (
    Difference,
    Interval,
    Test,
    check_count,
    check_level,
    normal_p,
    normal_quantile,
)


def wilson_bounds(successes: float | int, trials: float | int, z: float) -> tuple[float, float]:
    """Wilson's bounds, unchecked; ``trials`` may be an effective number and no whole one."""
    p, z2 = successes / trials, z * z
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z / (1 + z2 / trials) * math.sqrt(p * (1 - p) / trials + z2 / (4 * trials**2))
    # Said outright at both ends, where centre and half cancel but for a rounding that may leave [0, 1].
    return 0.0 if successes == 0 else centre - half, 1.0 if successes == trials else centre + half


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Score interval of one proportion; good at every size, exact at neither end.

    Raises: BadInput where the counts or the level are impossible.
    Source: Wilson, Probable inference, the distribution of succession, and statistical inference (1927).
    """
    check_count(successes, trials)
    low, high = wilson_bounds(successes, trials, normal_quantile(level))
    return Interval(successes / trials, low, high, level, "Wilson")


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Exact interval of one proportion: covers with at least ``level``, so it is wide.

    Raises: BadInput where the counts or the level are impossible.
    Source: Clopper and Pearson, The use of confidence or fiducial limits (1934).
    """
    from scipy.stats import binomtest

    check_count(successes, trials)
    found = binomtest(int(successes), int(trials)).proportion_ci(check_level(level))
    return Interval(successes / trials, float(found.low), float(found.high), level, "Clopper-Pearson")


def newcombe(base: tuple[int, int], other: tuple[int, int], level: float = 0.95) -> Difference:
    """Difference of two independent proportions, other minus base, each ``(successes, trials)``.

    The p-value is one minus the level at which the interval just touches 0, so the two agree.

    Raises: BadInput where the counts or the level are impossible.
    Source: Newcombe, Interval estimation for the difference between independent proportions
    (1998), method 10.
    """
    check_count(*base)
    check_count(*other)
    p, q = base[0] / base[1], other[0] / other[1]

    def bounds(z: float) -> tuple[float, float]:
        (l1, u1), (l2, u2) = wilson_bounds(*base, z), wilson_bounds(*other, z)
        return q - p - math.hypot(q - l2, u1 - p), q - p + math.hypot(u2 - q, p - l1)

    low, high = bounds(normal_quantile(level))
    z = _touching(q - p, bounds)
    return Difference(
        Interval(q - p, low, high, level, "Newcombe"), Test(z, normal_p(z), "Newcombe interval, inverted")
    )


def _touching(estimate: float, bounds: Callable[[float], tuple[float, float]]) -> float:
    """The z at which the interval just touches 0, with the estimate's sign; 0 where it is 0."""
    from scipy.optimize import brentq

    sign = math.copysign(1.0, estimate)

    def gap(z: float) -> float:
        # How far the end next to 0 lies from it; negative where the interval holds 0.
        return min(sign * end for end in bounds(z))

    top = 40.0  # the two-sided p of 40 standard errors is 0 in doubles
    return sign * (top if gap(top) > 0 else float(brentq(gap, 0.0, top)))


def newcombe_paired(both: int, gains: int, losses: int, neither: int, level: float = 0.95) -> Interval:
    """Difference of two paired proportions, other minus base, by square-and-add.

    Counts of pairs: success in both arms, only in the other, only in the base, in neither.

    Raises: BadInput where the counts or the level are impossible.
    Source: Newcombe, Improved confidence intervals for the difference between binomial proportions
    based on paired data (1998), method 10.
    """
    pairs = both + gains + losses + neither
    if min(both, gains, losses, neither) < 0 or pairs < 1:
        raise BadInput(f"({both}, {gains}, {losses}, {neither}) are not counts of pairs")
    first, second = both + gains, both + losses
    z = normal_quantile(level)
    p, q = first / pairs, second / pairs
    (l1, u1), (l2, u2) = wilson_bounds(first, pairs, z), wilson_bounds(second, pairs, z)
    margins = first * (pairs - first) * second * (pairs - second)
    cross: float = both * neither - gains * losses
    cross = max(cross - pairs / 2, min(cross, 0))  # Newcombe's continuity correction where it is positive
    phi = cross / math.sqrt(margins) if margins else 0.0

    def reach(a: float, b: float) -> float:
        return math.sqrt(max(a * a - 2 * phi * a * b + b * b, 0.0))

    low, high = p - q - reach(p - l1, u2 - q), p - q + reach(u1 - p, q - l2)
    return Interval(p - q, low, high, level, "Newcombe paired")


def _tango_z(gains: int, losses: int, pairs: int, delta: float) -> float:
    """Score statistic of the paired difference ``delta``; the variance is the maximum-likelihood one."""
    b = -(gains + losses) + (2 * pairs - gains + losses) * delta
    c = -losses * delta * (1 - delta)
    loss_rate = (math.sqrt(max(b * b - 8 * pairs * c, 0.0)) - b) / (4 * pairs)
    variance = pairs * (2 * loss_rate + delta * (1 - delta))
    distance = gains - losses - pairs * delta
    # At the estimate; with no discordant pair the variance is 0 there too, and 0 / 0 would be NaN.
    if not distance:
        return 0.0
    return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)


def tango(gains: int, losses: int, pairs: int, level: float = 0.95) -> Difference:
    """Difference of two paired proportions, other minus base, by the score test turned round.

    ``gains`` pairs succeed only in the other arm, ``losses`` only in the base. With none of either
    the interval is still honest: plus and minus ``z^2 / (n + z^2)``. Its test of 0 is McNemar's.

    Raises: BadInput where the counts or the level are impossible.
    Source: Tango, Equivalence test and confidence interval for the difference in proportions for
    the paired-sample design (1998).
    """
    from scipy.optimize import brentq

    check_count(gains, pairs)
    check_count(losses, pairs)
    if gains + losses > pairs:
        raise BadInput(f"{gains} gains and {losses} losses are more than {pairs} pairs")
    z, estimate = normal_quantile(level), (gains - losses) / pairs

    def bound(sign: float) -> float:
        if estimate == sign:
            return sign

        def excess(delta: float) -> float:
            # The statistic is infinite at -1 and 1, and a root finder interpolates between finite ends only.
            return max(min(_tango_z(gains, losses, pairs, delta), 1e6), -1e6) + sign * z

        return float(brentq(excess, *sorted((estimate, sign))))

    score = 0.0 if gains == losses else (gains - losses) / math.sqrt(gains + losses)
    return Difference(
        Interval(estimate, bound(-1.0), bound(1.0), level, "Tango score"),
        Test(score, normal_p(score), "McNemar score"),
    )
