"""Intervals and tests on counts, against published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramify.core import stats
from ramify.core.errors import BadInput

# Newcombe, Two-sided confidence intervals for the single proportion (1998), table I.
SINGLE = [
    (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
    (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
    (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
    (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
]


@pytest.mark.parametrize(("k", "n", "score", "exact"), SINGLE)
def test_single_proportion_published(k, n, score, exact):
    for found, wanted in ((stats.wilson(k, n), score), (stats.clopper_pearson(k, n), exact)):
        assert (found.low, found.high) == pytest.approx(wanted, abs=6e-5)
        assert found.estimate == k / n


# Newcombe, Interval estimation for the difference between independent proportions (1998), table II.
INDEPENDENT = [
    ((56, 70), (48, 80), 0.0524, 0.3339),
    ((9, 10), (3, 10), 0.1705, 0.8090),
    ((6, 7), (2, 7), 0.0582, 0.8062),
    ((5, 56), (0, 29), -0.0381, 0.1926),
    ((0, 10), (0, 20), -0.1611, 0.2775),
    ((0, 10), (0, 10), -0.2775, 0.2775),
    ((10, 10), (0, 20), 0.6791, 1.0),
    ((10, 10), (0, 10), 0.6075, 1.0),
]


@pytest.mark.parametrize(("first", "second", "low", "high"), INDEPENDENT)
def test_independent_difference_published(first, second, low, high):
    found = stats.newcombe(second, first).interval
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


# Cavo et al. (2012) as analysed in Fagerland, Lydersen and Laake, Statistical analysis of contingency
# tables (2017), chapter 8; printed by their R package contingencytables: 59, 6, 16 and 80 pairs.
def test_paired_difference_published():
    newcombe = stats.newcombe_paired(59, 6, 16, 80)
    assert (newcombe.estimate, newcombe.low, newcombe.high) == pytest.approx(
        (-0.0621, -0.1186, -0.0046), abs=6e-5
    )
    tango = stats.tango(6, 16, 161).interval
    assert (tango.estimate, tango.low, tango.high) == pytest.approx((-0.0621, -0.1240, -0.0054), abs=6e-5)
    assert stats.mcnemar(6, 16, mid=True).p == pytest.approx(0.034690, abs=6e-7)
    # Airway reactivity of 21 children (Bentur et al., 2009), ibid.: 7 and 1 discordant pairs.
    bentur = stats.tango(1, 7, 21).interval
    assert (bentur.low, bentur.high) == pytest.approx((-0.517, -0.026), abs=6e-4)


def test_mcnemar_is_the_binomial_sum():
    for gains in range(8):
        tail = sum(math.comb(7, i) for i in range(min(gains, 7 - gains) + 1)) / 2**7
        assert stats.mcnemar(gains, 7 - gains).p == pytest.approx(min(1.0, 2 * tail))
    assert stats.mcnemar(0, 0).p == 1.0
    assert stats.mcnemar(3, 3, mid=True).p == pytest.approx(1.0)


def test_fisher_published():
    # Fisher's tea: three of four cups right, two-sided p = 34 / 70.
    assert stats.fisher((1, 4), (3, 4)).p == pytest.approx(34 / 70)
    # Fagerland, Lydersen and Laake (2017), chapter 4: 0 of 16 against 15 of 72.
    assert stats.fisher((15, 72), (0, 16)).p == pytest.approx(0.06287, abs=6e-6)


def test_cochran_armitage_published():
    # Reasoning about the task, levels 1 to 5, and cheating (the model-forensics paper prints Z = 6.55).
    k, n = np.array([57, 82, 94, 152, 122]), np.array([118, 122, 127, 181, 152])
    assert stats.cochran_armitage(k, n, np.arange(1, 6)).statistic == pytest.approx(6.554, abs=6e-4)


def test_cochran_armitage_of_two_groups_is_the_pooled_z():
    found = stats.cochran_armitage(np.array([3, 9]), np.array([20, 25]), np.array([0.0, 1.0]))
    pooled = 12 / 45
    z = (9 / 25 - 3 / 20) / math.sqrt(pooled * (1 - pooled) * (1 / 20 + 1 / 25))
    assert found.statistic == pytest.approx(z)
    assert stats.cochran_armitage(np.zeros(3), np.ones(3), np.arange(3)).p == 1.0


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_tango_properties(gains, losses, rest, level):
    pairs = max(1, gains + losses + rest)
    found = stats.tango(gains, losses, pairs, level)
    interval, mirror = found.interval, stats.tango(losses, gains, pairs, level).interval
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    assert interval.width > 0
    assert (mirror.low, mirror.high) == pytest.approx((-interval.high, -interval.low), abs=1e-9)
    if abs(found.p - (1 - level)) > 1e-9:
        assert (0.0 in interval) == (found.p > 1 - level)


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.8, 0.95, 0.999]))
def test_newcombe_agrees_with_its_p(k, m, level):
    found = stats.newcombe((k, 40), (m, 40), level)
    interval = found.interval
    assert -1 <= interval.low <= interval.estimate <= interval.high <= 1
    if abs(found.p - (1 - level)) > 1e-9:
        assert (0.0 in interval) == (found.p > 1 - level)


def test_no_discordant_pair_still_has_width():
    z2 = 1.959963984540054**2
    found = stats.tango(0, 0, 64).interval
    assert (found.low, found.high) == pytest.approx((-z2 / (64 + z2), z2 / (64 + z2)))
    assert stats.tango(10, 0, 10).interval.high == 1.0
    assert stats.newcombe_paired(0, 0, 0, 5).estimate == 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.wilson(3, 2),
        lambda: stats.wilson(-1, 2),
        lambda: stats.clopper_pearson(0, 0),
        lambda: stats.wilson(1, 2, level=1.0),
        lambda: stats.tango(3, 3, 5),
        lambda: stats.newcombe((1, 2), (3, 2)),
        lambda: stats.newcombe_paired(-1, 0, 0, 5),
        lambda: stats.mcnemar(-1, 2),
        lambda: stats.cochran_armitage(np.array([1, 2]), np.array([3, 3]), np.array([1, 1])),
        lambda: stats.cochran_armitage(np.array([4, 2]), np.array([3, 3]), np.array([1, 2])),
        lambda: stats.cochran_armitage(np.array([1]), np.array([3]), np.array([1])),
    ],
)
def test_impossible_counts_are_refused(call):
    with pytest.raises(BadInput):
        call()
