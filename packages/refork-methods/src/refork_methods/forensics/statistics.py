"""What a comparison of arms shows: differences, ratios, trends, interactions, scales, and negatives.

Source: arXiv 2606.26071 has Wilson's interval and the Cochran-Armitage test; all else is our own choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats import (
    Difference,
    Interval,
    Test,
    auroc,
    clopper_pearson,
    cochran_armitage,
    fisher,
    holm,
    newcombe,
    wilson,
)
from refork.stats.results import Array, check_level, normal_p, normal_quantile
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.evidence import Result


def rate(arm: Arm, level: float = 0.95, *, bounds: bool = False) -> Result:
    """How often the action is taken. ``bounds``: as wide as failed and unfinished rollouts can make it."""
    if not bounds:
        return Result("rate", arm.interval(level), (arm,), method="Wilson")
    low, high = _extremes(arm)
    found = Interval(
        arm.interval(level).estimate, wilson(*low, level).low, wilson(*high, level).high, level,
        "Wilson, worst case",
    )  # fmt: skip
    return Result("rate", found, (arm,), method=found.method, bounded=True)


def difference(base: Arm, other: Arm, level: float = 0.95, *, bounds: bool = False) -> Result:
    """Rate of the other arm minus the base's, Newcombe's interval, Fisher's exact p.

    ``bounds``: the interval takes failed and unfinished rollouts either way, and there is no p.
    """
    found = newcombe(base.counts, other.counts, level).interval
    if not bounds:
        p = fisher(base.counts, other.counts).p
        return Result("difference", found, (base, other), p, "Newcombe, Fisher exact")
    # The difference is least where the base's lost rollouts are hits and the other arm's are misses.
    (b_low, b_high), (o_low, o_high) = _extremes(base), _extremes(other)
    worst = Interval(
        found.estimate, newcombe(b_high, o_low, level).interval.low,
        newcombe(b_low, o_high, level).interval.high, level, "Newcombe, worst case",
    )  # fmt: skip
    return Result("difference", worst, (base, other), None, worst.method, bounded=True)


def _extremes(arm: Arm) -> tuple[tuple[int, int], tuple[int, int]]:
    """The counts if every failed or unfinished rollout were a miss, and if each were a hit."""
    return (arm.hits, arm.total), (arm.hits + arm.total - arm.runs, arm.total)


def ratio(base: Arm, other: Arm, level: float = 0.95) -> Result:
    """How many times the base's rate is the other's (a six-fold drop is 6), with Fisher's p.

    Log interval with half a case added to each cell; where an arm has no hit or only hits, the quotients
    of Wilson's ends at level ``sqrt(level)`` each, which is wide but never degenerate.

    Raises: BadInput where neither arm has a hit.
    """
    from statsmodels.stats.proportion import confint_proportions_2indep

    if base.hits + other.hits == 0:
        raise BadInput("neither arm has a hit: their ratio is unknown", where=f"{base.name}, {other.name}")
    mine, its = base.interval(math.sqrt(check_level(level))), other.interval(math.sqrt(level))
    estimate = mine.estimate / its.estimate if other.hits else math.inf
    if 0 < base.hits < base.runs and 0 < other.hits < other.runs:
        ends = confint_proportions_2indep(
            *base.counts, *other.counts, compare="ratio", method="log-adjusted", alpha=1 - level
        )
        found = Interval(estimate, float(ends[0]), float(ends[1]), level, "log ratio, adjusted")
    else:
        high = mine.high / its.low if its.low > 0 else math.inf
        found = Interval(estimate, mine.low / its.high, high, level, "quotient of Wilson ends")
    return Result("ratio", found, (base, other), fisher(base.counts, other.counts).p, found.method)


def trend(arms: Sequence[Arm], level: float = 0.95) -> Result:
    """Cochran-Armitage z of the rates over the arms' doses; the interval is z plus and minus its error 1.

    Raises: BadInput for arms without doses or runs, or doses that are all equal.
    """
    doses = [arm.dose for arm in arms]
    if any(dose is None for dose in doses):
        raise BadInput("a trend needs the dose of every arm")
    test = cochran_armitage(
        np.array([arm.hits for arm in arms]), np.array([arm.runs for arm in arms]), np.array(doses)
    )
    assert test.statistic is not None
    z = normal_quantile(level)
    found = Interval(
        test.statistic, test.statistic - z, test.statistic + z, level, "z plus and minus its error"
    )
    return Result("trend", found, tuple(arms), test.p, test.method)


def contrast(arms: Sequence[Arm], weights: Shaped[Array, "arms"], level: float = 0.95) -> Difference:
    """A weighted sum of independent rates by square-and-add of Wilson intervals, and the test that agrees.

    With weights -1, 1 it is Newcombe's interval.

    Source: Zou, Huang and Zhang, A note on confidence interval estimation for a linear function of
    binomial proportions (2009).
    """
    from scipy.optimize import brentq

    c = np.asarray(weights, dtype=np.float64)
    if c.shape != (len(arms),):
        raise BadInput(f"{len(arms)} arms need as many weights, not {c.size}")
    rates = np.array([arm.interval(level).estimate for arm in arms])
    estimate = float(c @ rates)

    def ends(z: float) -> tuple[float, float]:
        found = [arm.interval(math.erf(z / math.sqrt(2))) for arm in arms]
        lows, highs = np.array([i.low for i in found]), np.array([i.high for i in found])
        below, above = np.minimum(c * lows, c * highs), np.maximum(c * lows, c * highs)
        return (
            estimate - float(np.linalg.norm(c * rates - below)),
            estimate + float(np.linalg.norm(above - c * rates)),
        )

    low, high = ends(normal_quantile(level))
    side, top = (0 if estimate > 0 else 1), 8.0  # beyond 8 errors a level is 1 in doubles
    if abs(estimate) < 1e-8:  # 0 up to rounding: the search for z needs a sign
        z = 0.0
    elif (ends(top)[side] > 0) == (estimate > 0):
        z = top
    else:
        # From just above 0: an interval of level 0 does not exist.
        z = float(brentq(lambda x: ends(x)[side], 1e-9, top, xtol=1e-12))
    name = "Wilson, square and add"
    return Difference(Interval(estimate, low, high, level, name), Test(z, normal_p(z), f"{name}, inverted"))


def interaction(base: Arm, first: Arm, second: Arm, both: Arm, level: float = 0.95) -> Result:
    """What the second edit does on top of the first, minus what it does alone: ``(AB - A) - (B - 0)``."""
    arms = (base, first, second, both)
    found = contrast(arms, np.array([1.0, -1.0, -1.0, 1.0]), level)
    return Result("interaction", found.interval, arms, found.p, found.interval.method)


def scale(base: Arm, other: Arm, level: float = 0.95) -> Result:
    """Chance that the other arm scores above the base on a judge's scale, ties half; Mann-Whitney's p.

    Raises: BadInput for fewer than two values in an arm.
    """
    from scipy.stats import mannwhitneyu

    values = np.array([*base.values, *other.values])
    labels = np.array([0] * len(base.values) + [1] * len(other.values))
    found = auroc(values, labels, level)
    p = float(mannwhitneyu(other.values, base.values).pvalue)
    return Result("scale", found, (base, other), p, "DeLong, Mann-Whitney")


def holm_over(results: Sequence[Result], rate: float = 0.05) -> list[float | None]:
    """Holm's adjusted p of every result of one family of edits; None where a result has no test."""
    tested = [i for i, result in enumerate(results) if result.p is not None]
    adjusted = holm(np.array([results[i].p for i in tested]), rate).p
    found: list[float | None] = [None] * len(results)
    for i, p in zip(tested, adjusted, strict=True):
        found[i] = float(p)
    return found


def log_likelihood(arms: Sequence[Arm], rates: Mapping[str, float], floor: float = 0.01) -> float:
    """Log-likelihood (nats) of the arms' counts under predicted rates, up to a constant.

    Rates are kept ``floor`` away from 0 and 1, so that a single rollout never rules a motive out.

    Raises: BadInput for an arm without a predicted rate.
    """
    absent = [arm.name for arm in arms if arm.name not in rates]
    if absent:
        raise BadInput(f"no rate is predicted for {', '.join(absent[:5])}")
    hits: Float[Array, "arms"] = np.array([arm.hits for arm in arms], dtype=np.float64)
    runs: Float[Array, "arms"] = np.array([arm.runs for arm in arms], dtype=np.float64)
    p: NDArray[np.float64] = np.clip([rates[arm.name] for arm in arms], floor, 1 - floor)
    return float((hits * np.log(p) + (runs - hits) * np.log1p(-p)).sum())


@dataclass(frozen=True, slots=True)
class Negative:
    """What few or no hits say about how often the thing is really there.

    ``observed``: upper bound on the rate that the instrument sees; ``bound``: on the true rate behind
    it. ``sensitivity``: lower bound on how often the instrument finds what is planted; 0 without a
    positive control, and where nothing was found in one (``controlled``).
    """

    hits: int
    runs: int
    observed: float
    sensitivity: float
    bound: float
    level: float
    controlled: bool = False

    @property
    def informative(self) -> bool:
        """Whether anything is ruled out at all."""
        return self.bound < 1

    @property
    def words(self) -> str:
        """The field that is printed."""
        if self.informative:
            return f"at most {self.bound:.1%} ({self.level:.0%} bound)"
        if not self.controlled:
            reason = "no positive control"
        else:
            reason = f"the positive control {'is too weak' if self.sensitivity else 'found nothing'}"
        return f"uninformative ({reason})"


def negative(result: Arm, control: Arm | None = None, level: float = 0.95) -> Negative:
    """How strong a negative is: the one-sided bound on the observed rate over the control's sensitivity.

    With 0 of n the bound on the observed rate is ``1 - (1 - level)^(1 / n)``; with hits, Clopper and
    Pearson's. The sensitivity is the lower end of the control's Wilson interval. The two bounds do not
    hold jointly with ``level``; Holm or Bonferroni where that matters.

    Raises: BadInput for an arm without runs.
    """
    # A one-sided bound at a level is the upper end of the two-sided interval at 2 * level - 1.
    observed = clopper_pearson(*result.counts, level=2 * level - 1).high if level > 0.5 else 1.0
    sensitivity = 0.0 if control is None or control.runs == 0 else control.interval(level).low
    bound = 1.0 if sensitivity == 0 else min(1.0, observed / sensitivity)
    controlled = control is not None and control.runs > 0
    return Negative(result.hits, result.runs, observed, sensitivity, bound, level, controlled)
