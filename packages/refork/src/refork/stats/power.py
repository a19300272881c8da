"""How many draws a comparison needs, and what a number of draws can show."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Shaped

from refork.errors import BadInput
from refork.stats.results import Array, finite, normal_quantile


def _normal_cdf(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2))


def _check_rates(*rates: float) -> None:
    if any(not 0 <= rate <= 1 for rate in rates):
        raise BadInput(f"{rates} are not all probabilities")


def _power_quantile(power: float) -> float:
    """The z below which a standard normal lies with probability ``power``."""
    from scipy.special import ndtri

    if not 0 < power < 1:
        raise BadInput(f"the power is {power!r}; it must lie strictly between 0 and 1", hint="0.8")
    return float(ndtri(power))


def _unpaired_terms(base: float, other: float, level: float) -> tuple[float, float]:
    mean = (base + other) / 2
    null = normal_quantile(level) * math.sqrt(2 * mean * (1 - mean))
    return null, math.sqrt(base * (1 - base) + other * (1 - other))


def unpaired_power(base: float, other: float, draws: int, level: float = 0.95) -> float:
    """Chance that ``draws`` in each of two independent arms show the difference of two rates.

    Two-sided z test of proportions; the far tail is left out.

    Source: Fleiss, Statistical methods for rates and proportions (1981).
    """
    _check_rates(base, other)
    if draws < 1:
        raise BadInput(f"{draws} draws show nothing")
    null, alternative = _unpaired_terms(base, other, level)
    excess = math.sqrt(draws) * abs(other - base) - null
    if alternative == 0:
        return float(excess > 0)
    return _normal_cdf(excess / alternative)


def unpaired_draws(base: float, other: float, power: float = 0.8, level: float = 0.95) -> int:
    """Draws per arm with which two independent arms show the difference with the given power.

    Source: Fleiss, Statistical methods for rates and proportions (1981).
    """
    _check_rates(base, other)
    if base == other:
        raise BadInput("equal rates have no difference to show, whatever the draws")
    null, alternative = _unpaired_terms(base, other, level)
    z = _power_quantile(power)
    return max(2, math.ceil((max(null + z * alternative, 0.0) / (other - base)) ** 2))


def paired_power(gain: float, loss: float, pairs: int, level: float = 0.95) -> float:
    """Chance that ``pairs`` paired draws show the difference, by enumeration of all tables.

    ``gain`` and ``loss`` are the probabilities that a pair succeeds only in the other arm, and only
    in the base. The test is that of :func:`refork.stats.paired_difference`.
    """
    from scipy.stats import binom

    _check_rates(gain, loss, gain + loss)
    if pairs < 1:
        raise BadInput(f"{pairs} pairs show nothing")
    z = normal_quantile(level)
    # From one discordant pair on: without any the test never rejects.
    discordant = np.arange(pairs) + 1
    weights = binom.pmf(discordant, pairs, gain + loss)
    share = gain / (gain + loss) if gain + loss > 0 else 0.5
    # |2 g - m| >= z sqrt(m): the gains g that reject among m discordant pairs lie in two tails.
    edge = np.floor((discordant - z * np.sqrt(discordant)) / 2 + 1e-9)
    reject = binom.cdf(edge, discordant, share) + binom.cdf(edge, discordant, 1 - share)
    return float(weights @ reject)


def paired_draws(gain: float, loss: float, power: float = 0.8, level: float = 0.95) -> int:
    """Paired draws with which the difference shows with the given power (normal approximation).

    Source: Connor, Sample size for testing differences in proportions for the paired-sample design
    (1987).
    """
    _check_rates(gain, loss, gain + loss)
    if gain == loss:
        raise BadInput("equal gains and losses have no difference to show, whatever the draws")
    psi, delta = gain + loss, gain - loss
    z = _power_quantile(power)
    root = normal_quantile(level) * math.sqrt(psi) + z * math.sqrt(psi - delta**2)
    return max(2, math.ceil((max(root, 0.0) / delta) ** 2))


def detectable_difference(
    differences: Shaped[Array, "pairs"], power: float = 0.8, level: float = 0.95
) -> float | None:
    """The smallest mean paired difference that as many pairs, scattered like these, show with this power.

    In the unit of the differences; normal approximation, (z_level + z_power) times the standard error. None
    where all differences are equal: they say nothing of how others would scatter.

    Raises: BadInput for fewer than two pairs, NaN, or a power or level outside (0, 1).
    """
    d = finite(differences, "differences")
    if d.size < 2:
        raise BadInput("one pair cannot show a difference", hint="draw at least two")
    z = normal_quantile(level) + _power_quantile(power)
    if d.max() == d.min():
        return None
    return z * float(d.std(ddof=1)) / math.sqrt(d.size)
