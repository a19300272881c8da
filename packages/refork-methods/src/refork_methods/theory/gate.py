"""The design gate: a design enters only where the people kept could tell two theories apart by simulation.

The test is Welch's at the number of people that will be kept, on moments from simulated people. Its level
is that of one attempt; ``attempts`` shares it among several (Bonferroni). A design that does not pass is
refused, and nothing is used in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from refork.errors import BadInput
from refork.stats.results import Test
from refork_methods.theory.metrics import Measured

#: Level of the gate, people simulated on each side, and people planned. Source: arXiv:2606.26448 (code).
ALPHA: Final = 0.01
SIMULATED: Final = 50
PLANNED: Final = 25
#: More people than this are not worth planning for.
MOST_PEOPLE: Final = 100_000


@final
@dataclass(frozen=True, slots=True)
class GateResult:
    """Whether a design passes, and why; ``p``, ``power`` and ``needed`` are None where a moment is missing.

    ``power``: chance that ``kept_people`` people will show a difference of this size at ``alpha``.
    ``needed``: people on each side for a power of 0.8, None where no number is enough.
    """

    accepted: bool
    reason: str
    mine: Measured
    other: Measured
    kept_people: int
    alpha: float
    p: float | None = None
    power: float | None = None
    needed: int | None = None


def welch_from_moments(
    mine: tuple[float, float], other: tuple[float, float], kept_people: int | tuple[int, int]
) -> Test:
    """Welch's two-sided test of two means with their sample variances, at ``kept_people`` people a side.

    NaN gives p = 1. Without any variance p is 0 where the means differ, and 1 where they do not.

    Raises: BadInput for fewer than two people, or a negative variance.
    Source: Welch, The generalization of Student's problem (1947).
    """
    from scipy.special import stdtr

    sizes = (kept_people, kept_people) if isinstance(kept_people, int) else kept_people
    if min(sizes) < 2:
        raise BadInput(f"{min(sizes)} people cannot show a difference", hint="at least two on each side")
    if not all(math.isfinite(x) for x in (*mine, *other)):
        return Test(math.nan, 1.0, "Welch t")
    error, freedom = _error((mine[1], other[1]), sizes)
    gap = mine[0] - other[0]
    if _constant(mine, other):
        return Test(0.0, 1.0, "Welch t")
    if error == 0:
        return Test(math.copysign(math.inf, gap), 0.0, "Welch t")
    t = gap / error
    # The lower tail: 1 less the distribution function would round a small p to 0.
    return Test(t, float(2 * stdtr(freedom, -abs(t))), "Welch t")


def _constant(mine: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether all values are one number, up to rounding."""
    # The mean of fifty times 0.1 is not that of thirty times 0.1, in the last digit.
    rounding = 1e-12 * max(abs(mine[0]), abs(other[0]))
    return abs(mine[0] - other[0]) <= rounding and max(mine[1], other[1]) <= rounding**2


def _error(variances: tuple[float, float], sizes: tuple[int, int]) -> tuple[float, float]:
    """Standard error of a difference of means, and Welch's degrees of freedom."""
    if min(variances) < 0:
        raise BadInput(f"a variance is {min(variances)}")
    a, b = variances[0] / sizes[0], variances[1] / sizes[1]
    if a + b == 0:
        return 0.0, float(sum(sizes) - 2)
    return math.sqrt(a + b), (a + b) ** 2 / (a * a / (sizes[0] - 1) + b * b / (sizes[1] - 1))


def welch_power(
    mine: tuple[float, float], other: tuple[float, float], kept_people: int, alpha: float = ALPHA
) -> float:
    """Chance that Welch's test at ``kept_people`` people a side rejects at ``alpha`` if the moments are true.

    By the noncentral t distribution, which is exact for normal values of equal variance.

    Raises: BadInput for fewer than two people, a negative variance, or a level outside (0, 1).
    """
    from scipy.special import stdtrit

    if not 0 < alpha < 1:
        raise BadInput(f"the level is {alpha}; it must lie in (0, 1)")
    if kept_people < 2:
        raise BadInput(f"{kept_people} people cannot show a difference", hint="at least two on each side")
    error, freedom = _error((mine[1], other[1]), (kept_people, kept_people))
    gap = abs(mine[0] - other[0])
    if _constant(mine, other):
        return 0.0
    if error == 0:
        return 1.0
    if gap / error > 37:  # beyond what the noncentral distribution is computed for
        return 1.0
    edge = float(stdtrit(freedom, 1 - alpha / 2))
    # Rejection on the right side, and on the wrong one.
    return min(1.0, 1 - _below(edge, freedom, gap / error) + _below(-edge, freedom, gap / error))


def _below(edge: float, freedom: float, shift: float) -> float:
    """The chance of a noncentral t below an edge."""
    from scipy.special import nctdtr, ndtr

    found = float(nctdtr(freedom, shift, edge))
    if math.isfinite(found):
        return found
    # The library gives NaN at single points far from the edge; there the normal approximation of Johnson and
    # Welch (1940) is off by less than any power is read to.
    bent = edge * (1 - 1 / (4 * freedom)) - shift
    return float(ndtr(bent / math.sqrt(1 + edge**2 / (2 * freedom))))


def people_needed(
    mine: tuple[float, float], other: tuple[float, float], *, power: float = 0.8, alpha: float = ALPHA
) -> int | None:
    """The fewest people on each side that reach a power; None where equal means or 100,000 people forbid it.

    Raises: BadInput for a power outside (0, 1), and as :func:`welch_power`.
    """
    if not 0 < power < 1:
        raise BadInput(f"the power is {power}; it must lie in (0, 1)")
    if welch_power(mine, other, MOST_PEOPLE, alpha) < power:
        return None
    low, high = 1, MOST_PEOPLE
    while high - low > 1:
        middle = (low + high) // 2
        if welch_power(mine, other, middle, alpha) >= power:
            high = middle
        else:
            low = middle
    return high


def gate(
    mine: Measured,
    other: Measured,
    *,
    kept_people: int = PLANNED,
    alpha: float = ALPHA,
    attempts: int = 1,
) -> GateResult:
    """Whether ``kept_people`` people on each side could tell two theories apart by a metric.

    ``kept_people`` is what is left after exclusions, not what is recruited. ``attempts`` designs tried under
    one level are tested at ``alpha / attempts`` each. Compared are the means of the persons' values.

    Raises: BadInput for fewer than two people kept, or no attempt.
    Source: arXiv:2606.26448 (code) takes 25 whoever is left, pooled values, and population variances.
    """
    if attempts < 1:
        raise BadInput(f"{attempts} attempts", hint="at least one")
    level = alpha / attempts
    sides = [moments(one) for one in (mine, other)]
    if sides[0] is None or sides[1] is None:
        reason = f"{mine.metric!r} is not defined for two people or more of each theory"
        return GateResult(False, reason, mine, other, kept_people, level)
    one, two = sides[0], sides[1]
    if _constant(one, two):
        reason = f"{mine.metric!r} is the same for everybody"
        return GateResult(False, reason, mine, other, kept_people, level, 1.0, 0.0)
    p = welch_from_moments(one, two, kept_people).p
    power, needed = welch_power(one, two, kept_people, level), people_needed(one, two, alpha=level)
    accepted = p < level
    said = f"p = {p:.3g} {'<' if accepted else '>='} {level:g} at {kept_people} people on each side"
    return GateResult(accepted, said, mine, other, kept_people, level, p, power, needed)


def moments(measured: Measured) -> tuple[float, float] | None:
    """Mean and sample variance of the persons' values; None for fewer than two people who have one."""
    if measured.mean is None or measured.sample_variance is None:
        return None
    return measured.mean, measured.sample_variance
