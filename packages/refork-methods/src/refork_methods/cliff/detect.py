"""From a potential curve to cliffs: screen, test again on fresh draws, control false discoveries. Pure.

The curve that a cliff is found on cannot also prove it: the largest of many noisy drops is large by
selection. So screening only nominates tokens. Each nominee is drawn afresh on both sides and tested
against the claim "the true drop is at most delta0"; Benjamini and Hochberg's step-up over all nominees
keeps the share of false cliffs below ``fdr``.

Source: the screening rule ``paper`` is arXiv 2606.25524; the paired rule, the re-test and the control
of false discoveries are our own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from refork import stats
from refork.errors import BadInput
from refork_methods.cliff.bound import can_fall, max_drop
from refork_methods.cliff.curve import Curve
from refork_methods.cliff.table import DELTA0, LEAST_DRAWS, is_cliff

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Rule = Literal["paired", "paper"]
Count = tuple[int, int]


def z_of(alpha: float) -> float:
    """The normal quantile of a one-sided test at level ``alpha``: 1.645 for 0.05."""
    from scipy.special import ndtri

    if not 0 < alpha < 0.5:
        raise BadInput(f"alpha is {alpha!r}; it must lie in (0, 0.5)", hint="0.05")
    return float(-ndtri(alpha))


def screen(
    curve: Curve, *, rule: Rule = "paired", delta0: float = DELTA0, alpha: float = 0.05
) -> NDArray[np.int64]:
    """Tokens that may be cliffs, in order of position.

    ``paired``: drop and standard error from pairs of draws, at tokens with ``pi <= 1 - delta0`` only.
    ``paper``: two independent shares at every token, whatever its probability. Tokens with fewer than
    16 graded draws before them are never nominated.

    Raises: BadInput for an unknown rule or an impossible alpha.
    """
    if rule not in ("paired", "paper"):
        raise BadInput(f"unknown rule {rule!r}", hint="paired or paper")
    z = z_of(alpha)
    enough = curve.draws >= LEAST_DRAWS
    if rule == "paper":
        found = is_cliff(curve.drop, curve.unpaired_error(), delta0, z)
    else:
        # A probability that is not known (NaN) rules nothing out.
        possible = np.isnan(curve.chance) | can_fall(np.nan_to_num(curve.chance), delta0)
        found = is_cliff(curve.paired_drop(), curve.paired_error(), delta0, z) & possible
    return np.flatnonzero(found & enough)


#: Standard errors that a drop must lie below delta0 (or above it) before drawing stops early.
STOP_LOW, STOP_HIGH = 2.0, 3.0


def undecided(curve: Curve, *, delta0: float = DELTA0, confidence: float = 0.95) -> Bools:
    """Tokens that more draws could still turn into nominees or clear of suspicion, [T].

    Not among them: tokens that cannot lose ``delta0``, because the exact upper limit of the value before
    is below it, or because ``(1 - pi) (1 - V)`` is with the exact lower limit of the value V behind; and
    tokens whose drop lies two standard errors below ``delta0`` or three above. Stopping early can lose a
    cliff, never prove one: proof comes from fresh draws.
    """
    pairs = np.maximum(curve.pairs, 2)
    chance = np.nan_to_num(curve.chance)  # not known: nothing is ruled out
    # Few pairs may show no discordance by luck; with pi known, the error is at least of this size.
    least = np.sqrt((1 - chance) / (2 * pairs))
    # Without two pairs the error is infinite, so such a token is never clear.
    drop = np.nan_to_num(curve.paired_drop())
    error = np.maximum(np.nan_to_num(curve.paired_error(), nan=np.inf), least)
    clear = (drop + STOP_LOW * error < delta0) | (drop - STOP_HIGH * error > delta0)
    highest, lowest = _limits(curve, confidence)
    possible = np.minimum(highest, max_drop(chance, lowest))
    return np.asarray(~clear & (possible > delta0))


def _limits(curve: Curve, confidence: float) -> tuple[Floats, Floats]:
    """Exact one-sided limits, [T] each: upper of the value before each token, lower of that behind it."""
    from scipy.special import betaincinv

    wins, lost = curve.wins, curve.draws - curve.wins
    # Of no losses the upper limit is 1 and of no wins the lower one 0: so it is for next to none.
    upper = betaincinv(wins + 1, np.maximum(lost, 1e-9), confidence)
    lower = betaincinv(np.maximum(wins, 1e-9), lost + 1, 1 - confidence)
    # An ungraded end counts as 0, the value behind a token that rules out least.
    return upper, np.append(lower[1:], curve.outcome or 0.0)


def retest_p(before: Count, after: Count, delta0: float = DELTA0) -> float:
    """One-sided p of "the true drop is at most delta0" from fresh ``(successes, draws)`` on both sides.

    The score test: its variance is the likeliest one under that claim, so it stays honest near 0 and 1.

    Raises: BadInput for impossible counts.
    Source: Farrington and Manning, Test statistics and sample size formulae (1990).
    """
    from scipy.special import ndtr

    for wins, draws in (before, after):
        if draws < 1 or not 0 <= wins <= draws:
            raise BadInput(f"{wins} of {draws} is not a count of successes", where="re-test")
    excess = before[0] / before[1] - after[0] / after[1] - delta0
    rate = _likeliest(before, after, delta0)
    variance = (rate + delta0) * (1 - rate - delta0) / before[1] + rate * (1 - rate) / after[1]
    return float(ndtr(-excess / math.sqrt(variance)))


def _likeliest(before: Count, after: Count, drop: float) -> float:
    """The rate behind a token that makes the counts likeliest, where the rate before it is ``drop`` higher.

    Never quite 0 or 1, so that no variance is 0. (statsmodels 0.15 solves the same equation with a wrong
    coefficient where the drop is not 0: its #10269.)
    """
    from scipy.optimize import bisect

    (wins, draws), (less, other) = before, after

    def slope(rate: float) -> float:
        """Of the log-likelihood, which is concave."""
        gain = _over(wins, rate + drop) + _over(less, rate)
        return gain - _over(draws - wins, 1 - drop - rate) - _over(other - less, 1 - rate)

    # Above 1 - drop the slope is minus infinity, so the root has both rates within [0, 1].
    return float(bisect(slope, 0.0, 1.0))


def _over(count: int, rate: float) -> float:
    # Infinite even for a count of 0: bisect needs a change of sign between the two ends.
    return count / rate if rate > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Re-tests of some nominees together: p, FDR-adjusted q, and which survive."""

    p: Floats
    q: Floats
    survives: Bools
    fdr: float


def survivors(
    before: Sequence[Count], after: Sequence[Count], *, delta0: float = DELTA0, fdr: float = 0.1
) -> Verdicts:
    """Which nominees are cliffs on fresh draws, at false-discovery rate ``fdr`` over all of them."""
    p = np.array([retest_p(b, a, delta0) for b, a in zip(before, after, strict=True)])
    adjusted = stats.benjamini_hochberg(p, fdr)
    return Verdicts(p, adjusted.p, adjusted.rejected, fdr)
