"""Bootstrap of paired differences."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats.results import Array, Interval, check_level, paired


def paired_bootstrap(
    base: Shaped[Array, "pairs"],
    other: Shaped[Array, "pairs"],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    method: Literal["bca", "percentile"] = "bca",
) -> Interval:
    """Mean paired difference, other minus base; whole pairs are resampled, by ``rng`` alone.

    Without width where all differences are equal: the bootstrap cannot see what was not drawn.

    Raises: BadInput for fewer than two pairs, fewer than 100 resamples, or an unknown method.
    Source: Efron, Better bootstrap confidence intervals (1987).
    """
    from scipy.stats import bootstrap

    if method not in ("bca", "percentile"):
        raise BadInput(f"unknown bootstrap method {method!r}", hint="'bca' or 'percentile'")
    if resamples < 100:
        raise BadInput(f"{resamples} resamples cannot carry an interval", hint="at least 100")
    x, y = paired(base, other)
    d, name = y - x, f"bootstrap {method}"
    mean = float(d.mean())
    # BCa is not defined here: its acceleration divides by the spread of the jackknife means, which is 0.
    if np.ptp(d) == 0:
        return Interval(mean, mean, mean, check_level(level), name)
    found = bootstrap(
        (d,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 2_000_000 // d.size),  # so many numbers in memory at a time
        confidence_level=check_level(level),
        method=method,
        rng=rng,
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high), level, name)
