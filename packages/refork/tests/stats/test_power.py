"""What a number of draws can show, against formulas written out and enumeration."""

import math
import re

import numpy as np
import pytest
from scipy.stats import norm

from refork import stats
from refork.errors import BadInput
from refork.stats.power import detectable_difference


@pytest.mark.parametrize("level", [None, 0.8, 0.95])
@pytest.mark.parametrize(("base", "other"), [(0.5, 0.75), (0.75, 0.5), (0.1, 0.2), (0.0, 0.3)])
def test_unpaired_power_and_draws_written_out(base, other, level):
    """Fleiss: sqrt(n) |d| = z_level sqrt(2 m (1 - m)) + z_power sqrt(sum of p (1 - p)), m the mean rate."""
    given = {} if level is None else {"level": level}
    z = norm.ppf(0.5 + (level or 0.95) / 2)
    mean = (base + other) / 2
    null, other_law = z * math.sqrt(2 * mean * (1 - mean)), math.sqrt(base * (1 - base) + other * (1 - other))
    for draws in (1, 7, 50):
        wanted = norm.cdf((math.sqrt(draws) * abs(other - base) - null) / other_law)
        assert stats.unpaired_power(base, other, draws, **given) == pytest.approx(wanted)
    for power in (None, 0.2, 0.5, 0.8, 0.9):
        n = ((null + norm.ppf(power or 0.8) * other_law) / (other - base)) ** 2
        more = {} if power is None else {"power": power}
        assert stats.unpaired_draws(base, other, **more, **given) == max(2, math.ceil(n))


def test_certain_outcomes_show_their_difference_from_two_draws_on():
    # All 0 against all 1: the pooled z of n draws each is sqrt(2 n), above 1.96 from the second on.
    assert [stats.unpaired_power(0.0, 1.0, n) for n in (1, 2)] == [0.0, 1.0]
    assert stats.unpaired_power(1.0, 0.0, 2) == 1.0
    assert stats.unpaired_draws(0.0, 1.0) == stats.unpaired_draws(0.0, 1.0, level=0.5) == 2, "never fewer"
    assert stats.unpaired_draws(0.5, 0.6, power=0.01) == stats.paired_draws(0.1, 0.2, power=0.01) == 2
    assert stats.unpaired_power(0.0, 0.0, 20) == stats.unpaired_power(1.0, 1.0, 20) == 0.0, "nothing to show"


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(("gain", "loss"), [(0.3, 0.1), (0.05, 0.4), (0.5, 0.5), (0.0, 1.0), (0.0, 0.0)])
def test_paired_power_by_all_tables(gain, loss, level):
    pairs, total = 9, 0.0
    for g in range(pairs + 1):
        for k in range(pairs - g + 1):
            weight = math.comb(pairs, g) * math.comb(pairs - g, k)
            weight *= gain**g * loss**k * (1 - gain - loss) ** (pairs - g - k)
            total += weight * (stats.tango(g, k, pairs, level).p <= 1 - level)
    assert stats.paired_power(gain, loss, pairs, level) == pytest.approx(total, abs=1e-12)
    if level == 0.95:
        assert stats.paired_power(gain, loss, pairs) == stats.paired_power(gain, loss, pairs, 0.95)


def test_a_table_on_the_very_edge_rejects():
    # z = 2: of four discordant pairs, all one way is just enough; of fewer, nothing is.
    level = math.erf(math.sqrt(2))
    assert stats.paired_power(0.5, 0.5, 4, level) == pytest.approx(2 / 16)
    assert stats.paired_power(0.5, 0.5, 3, level) == 0.0
    assert stats.paired_power(0.5, 0.5, 1, 0.5) == pytest.approx(1.0), "z = 0.67: one pair is enough"


@pytest.mark.parametrize("level", [None, 0.8])
@pytest.mark.parametrize(("gain", "loss"), [(0.2, 0.05), (0.05, 0.2), (0.3, 0.0), (0.6, 0.3)])
def test_paired_draws_written_out(gain, loss, level):
    """Connor: sqrt(n) |d| = z_level sqrt(psi) + z_power sqrt(psi - d^2), psi the share that differs."""
    z = norm.ppf(0.5 + (level or 0.95) / 2)
    psi, d = gain + loss, gain - loss
    given = {} if level is None else {"level": level}
    for power in (None, 0.2, 0.5, 0.9):
        n = ((z * math.sqrt(psi) + norm.ppf(power or 0.8) * math.sqrt(psi - d * d)) / d) ** 2
        more = {} if power is None else {"power": power}
        assert stats.paired_draws(gain, loss, **more, **given) == math.ceil(n)
    assert stats.paired_draws(1.0, 0.0, level=0.5) == stats.paired_draws(0.0, 1.0, level=0.5) == 2, (
        "never fewer"
    )


def test_the_detectable_difference_written_out():
    d = np.array([0.0, 1.0, 0.5, 2.0])
    error = d.std(ddof=1) / 2
    assert detectable_difference(d) == pytest.approx((norm.ppf(0.975) + norm.ppf(0.8)) * error)
    assert detectable_difference(d[:2], 0.3, 0.9) == pytest.approx((norm.ppf(0.95) + norm.ppf(0.3)) / 2)
    for equal in (np.zeros(9), np.full(9, 0.1)):
        assert detectable_difference(equal) is None, "no scatter was seen, which is not that there is none"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.unpaired_power(-0.1, 0.5, 9), "(-0.1, 0.5) are not all probabilities"),
        (lambda: stats.unpaired_power(0.5, 1.5, 9), "(0.5, 1.5) are not all probabilities"),
        (lambda: stats.unpaired_power(0.5, 0.6, 0), "0 draws show nothing"),
        (lambda: stats.unpaired_draws(1.5, 0.5), "(1.5, 0.5) are not all probabilities"),
        (lambda: stats.unpaired_draws(0.5, 0.5), "equal rates have no difference to show"),
        (lambda: stats.unpaired_draws(0.5, 0.6, power=0.0), "the power is 0.0"),
        (lambda: stats.unpaired_draws(0.5, 0.6, power=1.0), "the power is 1.0"),
        (lambda: stats.paired_power(0.5, 0.75, 9), "(0.5, 0.75, 1.25) are not all probabilities"),
        (lambda: stats.paired_power(-0.5, 0.75, 9), "(-0.5, 0.75, 0.25) are not all probabilities"),
        (lambda: stats.paired_power(0.5, 0.25, 0), "0 pairs show nothing"),
        (lambda: stats.paired_draws(0.5, 0.75), "(0.5, 0.75, 1.25) are not all probabilities"),
        (lambda: stats.paired_draws(0.75, -0.25), "(0.75, -0.25, 0.5) are not all probabilities"),
        (lambda: stats.paired_draws(0.1, 0.1), "equal gains and losses have no difference to show"),
        (lambda: stats.paired_draws(0.1, 0.2, power=1.0), "the power is 1.0"),
        (lambda: detectable_difference(np.array([1.0])), "one pair cannot show a difference"),
        (lambda: detectable_difference(np.zeros(0)), "there are no differences"),
        (lambda: detectable_difference(np.array([1.0, 2.0]), power=1.0), "the power is 1.0"),
    ],
)
def test_nonsense_shows_nothing(call, message):
    with pytest.raises(BadInput, match=re.escape(message)):
        call()


def test_the_detectable_difference_is_found_four_times_in_five():
    # Paired t tests at exactly that difference; 2,000 repetitions, 4 standard errors of the share.
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 100))
    exact = detectable_difference(np.concatenate([np.full(50, -1.0), np.full(50, 1.0)]) * np.sqrt(99 / 100))
    found = ttest_1samp(noise + exact, 0, axis=1).pvalue < 0.05
    assert abs(found.mean() - 0.8) < 4 * np.sqrt(0.16 / 2000)
