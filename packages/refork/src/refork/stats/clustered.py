"""Means and differences of outcomes that come in clusters (turns of one episode, draws of one task).

Outcomes of one cluster are not independent, so that the clusters are what is counted.

By simulation (12, 30 and 100 clusters of 1 to 12 outcomes, shares 0.1 to 0.9, intraclass correlation 0, 0.1
and 0.5; 1,000 repetitions each), the 95 % interval of a share covers 0.91 to 0.98, the least with few
clusters and a correlation of 0.5; an interval that takes all outcomes as independent covers as little as 0.6.
The mean of graded outcomes covers 0.87 (12 clusters) to 0.98, a difference of two shares 0.94 to 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.difference import paired_difference
from refork.stats.means import adjusted_paired_t, mean_interval, span
from refork.stats.proportions import wilson_bounds
from refork.stats.results import (
    Array,
    Difference,
    Interval,
    finite,
    is_binary,
    normal_quantile,
    paired,
)


def cluster_values(values: Shaped[Array, "outcomes"], clusters: Sequence[object]) -> Float[Array, "clusters"]:
    """One value per cluster, in order of appearance; their plain mean is the mean of all outcomes.

    Raises: BadInput for no outcomes, NaN, or another number of clusters than of outcomes.
    """
    y = finite(values, "outcomes")
    if len(clusters) != y.size:
        raise BadInput(f"{y.size} outcomes cannot lie in {len(clusters)} named clusters")
    place: dict[object, int] = {}
    which = np.array([place.setdefault(name, len(place)) for name in clusters])
    sizes = np.bincount(which).astype(np.float64)
    means = np.bincount(which, weights=y) / sizes
    overall = float(y.mean())
    # Linearised: a large cluster moves the mean of all outcomes further, so its distance counts by its size.
    found: NDArray[np.float64] = overall + sizes / sizes.mean() * (means - overall)
    return found


def clustered_mean(
    values: Shaped[Array, "outcomes"], clusters: Sequence[object], level: float = 0.95
) -> Interval:
    """Mean of all outcomes, with an interval that counts clusters; within [0, 1] where all outcomes are.

    Outcomes that are all 0 or 1 get Wilson's interval of the effective number of outcomes, graded ones an
    adjusted t interval of the clusters.

    Source: Korn and Graubard, Confidence intervals for proportions with small expected number of positive
    counts estimated from survey data (1998), for the effective number; deviates in taking it with Wilson's
    interval, as Dean and Pagano, Evaluating confidence interval methods for binomial proportions in clustered
    surveys (2015), found best.
    """
    y, inside = finite(values, "outcomes"), cluster_values(values, clusters)
    mean = float(y.mean())
    if is_binary(y):
        trials = _effective(mean, y.size, inside, Counter(clusters), level)
        low, high = wilson_bounds(mean * trials, trials, normal_quantile(level))
        return Interval(mean, low, high, level, "Wilson, clustered")
    found = mean_interval(inside, level)
    low, high = found.low, found.high
    if y.min() >= 0 and y.max() <= 1:
        low, high = max(low, 0.0), min(high, 1.0)
    return Interval(mean, low, high, level, "adjusted t, clustered")


def _effective(
    mean: float, outcomes: int, inside: Float[Array, "clusters"], sizes: Mapping[object, int], level: float
) -> float:
    """How many independent outcomes would say as much; where all are alike, how many clusters."""
    from scipy.special import stdtrit

    count = len(sizes)
    if count == outcomes:
        return float(outcomes)
    # No spread can be measured: the number of outcomes as if those of one cluster were always alike (Kish).
    if not 0 < mean < 1:
        return outcomes**2 / sum(size**2 for size in sizes.values())
    if count < 2:
        return 1.0
    spread = float(inside.var(ddof=1)) / count
    # Never more than were drawn, though clusters that differ less than chance would have it.
    trials = min(float(outcomes), mean * (1 - mean) / spread) if spread > 0 else float(outcomes)
    # The spread of few clusters is itself uncertain: Wilson's normal quantile is stretched to Student's.
    return max(1.0, trials * (normal_quantile(level) / float(stdtrit(count - 1, 0.5 + level / 2))) ** 2)


def clustered_difference(
    base: Shaped[Array, "pairs"],
    other: Shaped[Array, "pairs"],
    clusters: Sequence[object],
    level: float = 0.95,
) -> Difference:
    """Mean of ``other - base`` over pairs that come in clusters, with its interval and p.

    Where every pair is a cluster of its own: :func:`refork.stats.paired_difference`.

    Raises: BadInput for fewer than two pairs or two clusters, unequal lengths, NaN.
    """
    x, y = paired(base, other)
    if len(set(clusters)) == len(clusters) == x.size:
        return paired_difference(x, y, level)
    d = cluster_values(y - x, clusters)
    if d.size < 2:
        raise BadInput("one cluster cannot show a difference", hint="compare on at least two")
    # By size alone, so that it does not matter which arm is named first; a large cluster may pass the span.
    reach = max(span(x, y), float(np.abs(d).max()))
    found = adjusted_paired_t(d, reach, level)
    return replace(found, interval=replace(found.interval, method="adjusted paired t, clustered"))


def macro_mean(parts: Sequence[Interval]) -> Interval:
    """Mean of independent estimates, each of the same weight, with the interval that theirs imply.

    Source: Zou and Donner, Construction of confidence limits about effect measures (2008).
    Raises: BadInput for no estimate, or estimates of several levels.
    """
    if not parts or len({part.level for part in parts}) != 1:
        raise BadInput("a mean of estimates needs at least one, all of one level")
    middle = sum(part.estimate for part in parts) / len(parts)
    down = math.hypot(*(part.estimate - part.low for part in parts)) / len(parts)
    up = math.hypot(*(part.high - part.estimate for part in parts)) / len(parts)
    return Interval(middle, middle - down, middle + up, parts[0].level, "mean of estimates")
