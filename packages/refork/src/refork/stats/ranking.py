"""Area under the ROC curve."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats.results import Array, Interval, finite, normal_quantile


def auroc(scores: Shaped[Array, "cases"], labels: Shaped[Array, cases], level: float = 0.95) -> Interval:
    """Chance that a positive case scores above a negative one, ties counted half, with its interval.

    DeLong's interval, cut to [0, 1]. Where every comparison agrees its variance is 0 and Newcombe's
    score interval stands in, so perfect separation is never reported as certain.

    Raises: BadInput for NaN scores, labels other than 0 and 1, or fewer than two cases of a kind.
    Source: DeLong, DeLong and Clarke-Pearson, Comparing the areas under two or more correlated
    receiver operating characteristic curves (1988); ranks as in Sun and Xu (2014).
    """
    from scipy.stats import rankdata

    x, y = finite(scores, "scores"), finite(labels, "labels")
    if x.shape != y.shape or not np.isin(y, (0.0, 1.0)).all():
        raise BadInput("every score needs one label, 0 or 1")
    positive, negative = x[y == 1], x[y == 0]
    m, n = positive.size, negative.size
    if min(m, n) < 2:
        raise BadInput(f"{m} positive and {n} negative cases: at least two of each are needed")
    ranks = rankdata(np.concatenate([positive, negative]))
    above = (ranks[:m] - rankdata(positive)) / n  # share of negatives each positive beats
    below = (ranks[m:] - rankdata(negative)) / m  # share of positives each negative beats
    area = float(above.mean())
    variance = float(above.var(ddof=1) / m + below.var(ddof=1) / n)
    if variance <= 0:
        return _newcombe(area, m, n, level)
    half = normal_quantile(level) * math.sqrt(variance)
    return Interval(area, max(0.0, area - half), min(1.0, area + half), level, "DeLong")


def _newcombe(area: float, m: int, n: int, level: float) -> Interval:
    """Score-like interval of an area from its value alone.

    Source: Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney
    statistic, part 2 (2006), method 5.
    """
    from scipy.optimize import brentq

    z, mean = normal_quantile(level), (m + n) / 2 - 1

    def excess(theta: float) -> float:
        shape = 1 + mean * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        return (area - theta) ** 2 - z * z * theta * (1 - theta) * shape / (m * n)

    # An area of 0 or 1 is a root itself, and the end of its own side: the other side looks just past it.
    low, high = brentq(excess, 0.0, min(area, 1.0 - 1e-12)), brentq(excess, max(area, 1e-12), 1.0)
    return Interval(area, float(low), float(high), level, "Newcombe area")
