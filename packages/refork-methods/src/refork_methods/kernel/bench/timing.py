"""The speed-up that pairs of samples speak for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput

RESAMPLES = 4000


def speedup(
    reference: Sequence[float] | Float[np.ndarray, "pairs"],
    candidate: Sequence[float] | Float[np.ndarray, "pairs"],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
) -> tuple[float, float, float]:
    """Least reference time over least candidate time, with a bootstrap interval; seconds in, ratios out.

    Pairs are resampled whole, so that what slowed both down stays together. The bootstrap of a minimum sees
    only minima that were drawn: the interval is too narrow where samples are few, so what is claimed must
    beat the machine's noise besides.

    Raises:
        BadInput: fewer than 3 pairs, or times that are not above 0.
    """
    x, y = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    if x.size < 3 or x.shape != y.shape or not (x > 0).all() or not (y > 0).all():
        raise BadInput(f"{x.size} and {y.size} samples", where="speed-up", hint="3 pairs or more, above 0")
    drawn = rng.integers(0, x.size, (RESAMPLES, x.size))
    ratios = x[drawn].min(axis=1) / y[drawn].min(axis=1)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2])
    point = float(x.min() / y.min())
    return point, min(point, float(low)), max(point, float(high))
