"""Intervals and tests on counts, against published values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork import stats
from refork.errors import BadInput

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
    found = stats.tango(6, 16, 161)
    tango = found.interval
    assert (tango.estimate, tango.low, tango.high) == pytest.approx((-0.0621, -0.1240, -0.0054), abs=6e-5)
    # The same book's asymptotic McNemar test: 4.5455 on one degree of freedom, p = 0.0330.
    assert found.test.statistic == pytest.approx(-math.sqrt(100 / 22))
    assert found.test.p == pytest.approx(0.0330, abs=6e-5)
    assert stats.mcnemar(6, 16, mid=True).p == pytest.approx(0.034690, abs=6e-7)
    # Airway reactivity of 21 children (Bentur et al., 2009), ibid.: 7 and 1 discordant pairs.
    bentur = stats.tango(1, 7, 21).interval
    assert (bentur.low, bentur.high) == pytest.approx((-0.517, -0.026), abs=6e-4)


def test_all_or_none_reach_the_very_end():
    for n in range(1, 60):
        for level in (0.5, 0.8, 0.95, 0.99):
            assert stats.wilson(0, n, level).low == 0.0
            assert stats.wilson(n, n, level).high == 1.0
    assert stats.wilson(1, 60).low > 0
    assert stats.wilson(59, 60).high < 1


def test_the_statistic_of_an_interval_turned_round():
    for rate, z in ((0.3, 0.0), (0.0, 40.0)):
        few, many = (round(10_000 * rate), 10_000), (round(10_000 * (rate or 1)), 10_000)
        found = stats.newcombe(few, many)
        assert (found.test.statistic, found.p) == (z, float(z == 0))
        assert stats.newcombe(many, few).test.statistic == -z
    # At the statistic as quantile the interval ends at 0, whichever way the difference lies.
    for base, other in (((3, 10), (9, 12)), ((9, 12), (3, 10))):
        z = stats.newcombe(base, other).test.statistic
        assert (z > 0) == (other == (9, 12))
        touching = stats.newcombe(base, other, math.erf(abs(z) / math.sqrt(2))).interval
        assert min(abs(touching.low), abs(touching.high)) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(
    ("both", "gains", "losses", "neither"),
    [
        (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 5), (5, 0, 0, 0), (1, 0, 0, 1), (0, 2, 1, 0), (2, 2, 2, 2),
        (6, 2, 1, 7), (4, 1, 2, 3), (0, 3, 0, 4),
    ],
)  # fmt: skip
def test_newcombes_paired_interval_written_out(both, gains, losses, neither, level):
    """Square and add with the correlation: phi of the table, n / 2 taken off where it is positive."""
    from statsmodels.stats.proportion import proportion_confint

    n = both + gains + losses + neither
    first, second = both + gains, both + losses
    (l1, u1), (l2, u2) = (
        proportion_confint(count, n, 1 - level, method="wilson") for count in (first, second)
    )
    cross = both * neither - gains * losses
    if cross > 0:
        cross = max(0, cross - n / 2)
    rows = first * (n - first) * second * (n - second)
    phi = cross / math.sqrt(rows) if rows else 0
    p, q = first / n, second / n
    low = p - q - math.sqrt((p - l1) ** 2 - 2 * phi * (p - l1) * (u2 - q) + (u2 - q) ** 2)
    high = p - q + math.sqrt((u1 - p) ** 2 - 2 * phi * (u1 - p) * (q - l2) + (q - l2) ** 2)
    found = stats.newcombe_paired(both, gains, losses, neither, level)
    assert (found.estimate, found.low, found.high) == pytest.approx((p - q, low, high), abs=1e-12)


def test_mcnemar_is_the_binomial_sum():
    for gains in range(8):
        tail = sum(math.comb(7, i) for i in range(min(gains, 7 - gains) + 1)) / 2**7
        assert stats.mcnemar(gains, 7 - gains).p == pytest.approx(min(1.0, 2 * tail))
        assert stats.mcnemar(gains, 7 - gains).statistic == gains
    assert stats.mcnemar(0, 0) == stats.Test(0.0, 1.0, "McNemar exact")
    assert all(stats.mcnemar(n, n, mid=True).p == pytest.approx(1.0) for n in range(1, 20))
    assert all(stats.mcnemar(n, n, mid=True).p <= 1.0 for n in range(1, 20)), "whatever is rounded"


def test_fisher_published():
    # Fisher's tea: three of four cups right, two-sided p = 34 / 70.
    assert stats.fisher((1, 4), (3, 4)).p == pytest.approx(34 / 70)
    # Fagerland, Lydersen and Laake (2017), chapter 4: 0 of 16 against 15 of 72.
    assert stats.fisher((15, 72), (0, 16)).p == pytest.approx(0.06287, abs=6e-6)


@pytest.mark.parametrize(
    ("base", "other", "odds"),
    [((0, 4), (0, 3), None), ((4, 4), (3, 3), None), ((0, 4), (1, 3), math.inf), ((1, 4), (0, 3), 0.0)],
)
def test_the_odds_ratio_where_counts_are_zero(base, other, odds):
    found = stats.fisher(base, other)
    assert found.statistic == odds
    assert found.p <= 1


def test_cochran_armitage_published():
    # Reasoning about the task, levels 1 to 5, and cheating (the model-forensics paper prints Z = 6.55).
    k, n = np.array([57, 82, 94, 152, 122]), np.array([118, 122, 127, 181, 152])
    assert stats.cochran_armitage(k, n, np.arange(1, 6)).statistic == pytest.approx(6.554, abs=6e-4)


def test_cochran_armitage_of_two_groups_is_the_pooled_z():
    found = stats.cochran_armitage(np.array([3, 9]), np.array([20, 25]), np.array([0.0, 1.0]))
    pooled = 12 / 45
    z = (9 / 25 - 3 / 20) / math.sqrt(pooled * (1 - pooled) * (1 / 20 + 1 / 25))
    assert found.statistic == pytest.approx(z)
    for alike in (np.zeros(3), np.ones(3)):
        found = stats.cochran_armitage(alike, np.ones(3), np.arange(3))
        assert found == stats.Test(0.0, 1.0, "Cochran-Armitage")
    assert stats.cochran_armitage(np.array([2, 1]), np.array([2, 3]), np.array([0, 1])).statistic < 0


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
    # So narrow an interval asks for a variance far below that of one whole pair.
    z2, found = 0.012533469508069276**2, stats.tango(0, 0, 1, level=0.01).interval
    assert (found.low, found.high) == pytest.approx((-z2 / (1 + z2), z2 / (1 + z2)))
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
        lambda: stats.newcombe_paired(5, -1, 0, 0),
        lambda: stats.newcombe_paired(5, 0, -1, 0),
        lambda: stats.newcombe_paired(5, 0, 0, -1),
        lambda: stats.newcombe_paired(0, 0, 0, 0),
        lambda: stats.mcnemar(-1, 2),
        lambda: stats.cochran_armitage(np.array([1, 2]), np.array([3, 3]), np.array([1, 1])),
        lambda: stats.cochran_armitage(np.array([4, 2]), np.array([3, 3]), np.array([1, 2])),
        lambda: stats.cochran_armitage(np.array([1]), np.array([3]), np.array([1])),
        lambda: stats.cochran_armitage(np.array([0, 2]), np.array([0, 3]), np.array([1, 2])),
        lambda: stats.cochran_armitage(np.array([-1, 2]), np.array([3, 3]), np.array([1, 2])),
    ],
)
def test_impossible_counts_are_refused(call):
    with pytest.raises(BadInput):
        call()


def test_groups_need_all_three_figures(unchecked):
    three, two = np.array([1, 2, 3]), np.array([4, 4])
    for groups in ((three, two, three), (two, three, three), (three, three, two)):
        with pytest.raises(BadInput, match="must be of one length"):
            stats.cochran_armitage(*groups)
