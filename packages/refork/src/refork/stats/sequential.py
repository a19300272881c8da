"""Looking as often as one likes: tests and intervals that stay valid at every look.

A gambler who starts with 1 bets on every paired difference against the claim "their mean is
``null``". If the claim is true nobody can expect to gain, so the capital reaches ``1 / error`` at
*any* time with probability at most ``error`` (Ville). The stake is not chosen: capital is averaged
over stakes with the arcsine distribution on (-1, 1), a fixed mixture. So the result depends on the
differences drawn, not on their order or on when one looked; and for differences in {-1, 0, 1}
and ``null = 0`` the capital is the Krichevsky-Trofimov beta-binomial e-value of the discordant pairs.

Source: Waudby-Smith and Ramdas, arXiv:2010.09686; Orabona and Jun, arXiv:2110.14099 (the mixture).
Deviates in the fixed quadrature (a mixture over finitely many stakes, so exactly as valid).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array, Interval, Test, finite

#: Stakes of the mixture: Gauss-Chebyshev nodes, exact for polynomials up to degree 1023.
_STAKES = np.cos((2 * np.arange(1, 257) - 1) * np.pi / 1024)


def _bounded(differences: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Distinct differences and how often each came."""
    d = finite(differences, "differences")
    if np.abs(d).max() > 1:
        raise BadInput(
            f"a difference is {d[np.abs(d).argmax()]:g}; sequential tests need differences in [-1, 1]",
            hint="divide the scores by their range",
        )
    values, counts = np.unique(d, return_counts=True)
    return values, counts.astype(np.float64)


def _log_capital(values: NDArray[np.float64], counts: NDArray[np.float64], null: float) -> float:
    """Natural log of the mixture's capital against ``null``; infinite where ``null`` is ruled out."""
    # Scaled to be 0 or more with mean 1 under the claim, so that a stake below 1 never loses all.
    up = (1 + values) / (1 + null) if null > -1 else np.where(values > -1, np.inf, 1.0)
    down = (1 - values) / (1 - null) if null < 1 else np.where(values < 1, np.inf, 1.0)
    stakes = _STAKES[:, None]
    logs = np.concatenate([np.log1p(stakes * (up - 1)) @ counts, np.log1p(stakes * (down - 1)) @ counts])
    most = float(logs.max())
    # Plain numpy: an interval asks some dozen times, and scipy's logsumexp takes five times as long.
    return most if math.isinf(most) else most + math.log(float(np.exp(logs - most).mean()))


def anytime_test(differences: Shaped[Array, "pairs"], null: float = 0.0) -> Test:
    """Test that the mean of differences in [-1, 1] is ``null``, valid however often one looks.

    The statistic is the e-value (capital); p is its inverse, at most 1. If the null is true, p falls
    to ``a`` or below at any look with probability at most ``a``.

    Raises: BadInput for no differences, or one outside [-1, 1].
    """
    if not -1 <= null <= 1:
        raise BadInput(f"the null is {null!r}; a mean of differences in [-1, 1] lies there too")
    log = _log_capital(*_bounded(differences), null)
    return Test(math.exp(min(log, 700.0)), math.exp(-max(log, 0.0)), "betting e-value")


def confidence_sequence(differences: Shaped[Array, "pairs"], error: float = 0.05) -> Interval:
    """Interval of the mean of differences in [-1, 1] that may be looked at after every draw.

    It covers the true mean at *all* looks together with probability at least ``1 - error``.

    Raises: BadInput for no differences, one outside [-1, 1], or an error outside (0, 1).
    """
    from scipy.optimize import brentq

    if not 0 < error < 1:
        raise BadInput(f"the error rate is {error!r}; it must lie strictly between 0 and 1")
    values, counts = _bounded(differences)
    mean = float(values @ counts / counts.sum())

    def excess(null: float) -> float:
        return min(_log_capital(values, counts, null), 1e9) + math.log(error)

    def bound(end: float) -> float:
        # The capital is convex in the null, at most 1 at the mean, and infinite at an end that not all
        # differences lie at: one root each way.
        return end if mean == end else float(brentq(excess, *sorted((mean, end))))

    return Interval(mean, bound(-1.0), bound(1.0), 1 - error, "betting confidence sequence")


def mean_sequence(scores: Shaped[Array, "draws"], error: float = 0.05) -> Interval:
    """Interval of the mean of scores in [0, 1] that may be looked at after every draw.

    It covers the true mean at *all* looks together with probability at least ``1 - error``.

    Raises: BadInput for no scores, one outside [0, 1], or an error outside (0, 1).
    """
    x = finite(scores, "scores")
    if x.min() < 0 or x.max() > 1:
        raise BadInput(
            f"a score is {x[np.abs(x - 0.5).argmax()]:g}; sequential intervals need scores in [0, 1]",
            hint="divide the scores by their range",
        )
    # Scores on [0, 1] are differences on [-1, 1], stretched and moved; so is the mean.
    found = confidence_sequence(2 * x - 1, error)
    low, high = (found.low + 1) / 2, (found.high + 1) / 2
    return Interval(float(x.mean()), low, high, found.level, found.method)
