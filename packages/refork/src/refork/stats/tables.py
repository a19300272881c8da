"""Tests on tables of counts."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats.results import Array, Test, check_count, normal_p


def mcnemar(gains: int, losses: int, *, mid: bool = False) -> Test:
    """Exact test that pairs change as often one way as the other; the statistic is ``gains``.

    ``mid`` counts the observed table half: less conservative, no longer exact.

    Source: McNemar, Note on the sampling error of the difference between correlated proportions
    (1947); mid-p as in Fagerland, Lydersen and Laake (2013).
    """
    from scipy.stats import binom, binomtest

    if min(gains, losses) < 0:
        raise BadInput(f"{gains} gains and {losses} losses are not counts")
    name = "McNemar mid-p" if mid else "McNemar exact"
    n = gains + losses
    if n == 0:
        return Test(0.0, 1.0, name)
    p = float(binomtest(int(gains), int(n)).pvalue)
    if mid:
        p = min(1.0, float(2 * binom.cdf(min(gains, losses), n, 0.5) - binom.pmf(gains, n, 0.5)))
    return Test(float(gains), p, name)


def fisher(base: tuple[int, int], other: tuple[int, int]) -> Test:
    """Exact test of two independent proportions ``(successes, trials)``; the statistic is the odds ratio.

    It is None where all trials succeeded or none did, and infinite where its denominator alone is 0.

    Source: Fisher, The design of experiments (1935).
    """
    from scipy.stats import fisher_exact

    check_count(*base)
    check_count(*other)
    rows = [[other[0], other[1] - other[0]], [base[0], base[1] - base[0]]]
    odds, p = fisher_exact(rows)
    return Test(None if math.isnan(odds) else float(odds), float(p), "Fisher exact")


def cochran_armitage(
    successes: Shaped[Array, "groups"], trials: Shaped[Array, groups], doses: Shaped[Array, groups]
) -> Test:
    """Test of a linear trend of proportions over doses; the statistic is a standard normal z.

    Raises: BadInput where counts are impossible or all doses are equal.
    Source: Armitage, Tests for linear trends in proportions and frequencies (1955).
    """
    k, n, x = (np.asarray(a) for a in (successes, trials, doses))
    if not k.shape == n.shape == x.shape or k.size < 2:
        raise BadInput("successes, trials and doses must be of one length, two groups or more")
    if (n < 1).any() or (k < 0).any() or (k > n).any():
        raise BadInput("a group has successes outside 0 .. trials, or no trials")
    p = k.sum() / n.sum()
    spread = float((n * (x - np.average(x, weights=n)) ** 2).sum())
    if spread == 0:
        raise BadInput("all doses are equal: there is no trend to test")
    # The variance below is 0, and so is every deviation: no group differs from another.
    if p in (0.0, 1.0):
        return Test(0.0, 1.0, "Cochran-Armitage")
    z = float((x * (k - n * p)).sum() / math.sqrt(p * (1 - p) * spread))
    return Test(z, normal_p(z), "Cochran-Armitage")
