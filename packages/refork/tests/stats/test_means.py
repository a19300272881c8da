"""Means, bootstrap, multiple testing, power, ranking and unbiased estimates."""

import itertools
import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap, norm, t, ttest_ind

from refork import stats
from refork.errors import BadInput
from refork.stats.means import adjusted_paired_t, adjusted_welch, span, with_ends

# Student's sleep data (1908), as in R's datasets; R prints the intervals below for t.test.
DRUG_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
DRUG_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_student_and_welch_published():
    found = stats.paired_t(DRUG_2, DRUG_1)
    assert found.test.statistic == pytest.approx(-4.0621, abs=6e-5)
    assert found.p == pytest.approx(0.002833, abs=6e-7)
    assert (found.interval.low, found.interval.high) == pytest.approx((-2.4598858, -0.7001142), abs=6e-8)
    found = stats.welch(DRUG_2, DRUG_1)
    assert found.test.statistic == pytest.approx(-1.8608, abs=6e-5)
    assert found.p == pytest.approx(0.07939, abs=6e-6)
    assert (found.interval.low, found.interval.high) == pytest.approx((-3.3654832, 0.2054832), abs=6e-8)


def test_equal_differences_plain_and_adjusted():
    base = np.full(64, 0.25)
    assert stats.paired_t(base, base).p == 1.0
    assert stats.paired_t(base, base + 0.5).p == 0.0
    same = stats.paired_difference(base, base)
    assert same.p == 1.0
    assert same.interval.low < 0 < same.interval.high
    moved = stats.paired_difference(base, base + 0.5).interval
    assert 0 < moved.low < moved.estimate == 0.5 < moved.high
    assert stats.unpaired_difference(base, base).interval.width > 0
    assert stats.mean_interval(base).width > 0
    assert stats.mean_interval(np.full(8, -2.0)).width > 0


def test_no_scatter_is_no_doubt():
    one = np.full(3, 0.25)
    for found in (stats.paired_t(one, one), stats.welch(one, one)):
        assert found.test == stats.Test(0.0, 1.0, found.test.method)
        assert (found.interval.low, found.interval.high) == (0.0, 0.0)
    for found in (stats.paired_t(one, one - 0.5), stats.welch(one, one[:2] - 0.5)):
        assert found.test == stats.Test(-math.inf, 0.0, found.test.method)
        assert (found.interval.low, found.interval.high) == (-0.5, -0.5)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(
    ("base", "other"),
    [([0.25, 1.0], [0.5, 0.75]), ([0.5, 0.75], [0.25, 1.0, 4.0]), ([-1.0, 2.0, 0.0], [0.5, 0.75])],
)
def test_welch_is_that_of_scipy(base, other, level):
    x, y = np.array(base), np.array(other)
    for found, a, b in (
        (stats.welch(x, y, level), x, y),
        (adjusted_welch(x, y, level), with_ends(x), with_ends(y)),
    ):
        known = ttest_ind(b, a, equal_var=False)
        wanted = known.confidence_interval(level)
        assert (found.interval.low, found.interval.high) == pytest.approx((wanted.low, wanted.high))
        assert (found.test.statistic, found.p) == pytest.approx((known.statistic, known.pvalue))
        assert found.interval.estimate == pytest.approx(y.mean() - x.mean())


@pytest.mark.parametrize(
    ("values", "apart", "ends"),
    [
        ([0.25, 0.25], 1.0, (0.0, 1.0)),
        ([0.0, 0.0], 1.0, (0.0, 1.0)),
        ([1.0, 1.0], 1.0, (0.0, 1.0)),
        ([3.0, 3.0], 3.0, (0.0, 3.0)),
        ([-0.5, -0.5], 0.5, (-0.5, 0.0)),
        ([0.0, 0.5], 1.0, (0.0, 0.5)),
        ([0.5, 1.5], 1.5, (0.5, 1.5)),
        ([-2.0, 0.5], 2.5, (-2.0, 0.5)),
        ([-2.0, -0.5], 2.0, (-2.0, -0.5)),
        ([-1.0, 1.5], 2.5, (-1.0, 1.5)),
    ],
)
def test_how_far_outcomes_lie_apart_and_what_they_may_not_have_shown(values, apart, ends):
    x = np.array(values)
    assert span(x) == span(x[:1], x[1:]) == apart
    assert with_ends(x).tolist() == [*values, *ends]


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(("differ", "reach"), [(0, 1.0), (1, 3.0), (5, 1.0), (5, 3.0), (6, 3.0), (7, 1.0)])
def test_the_adjusted_paired_interval_by_hand(differ, reach, level):
    x, y = np.full(9, 0.25), np.full(9, 0.25)
    y[:differ] = [reach, 0.75, 0.0, 0.5, 1.0, 0.375, 0.125][:differ]  # in one arm alone it may lie far out
    d = y - x
    more = reach
    if differ >= 6:
        sizes = sorted(abs(one) for one in d if one)
        more = math.sqrt(sizes[-1] * math.sqrt(math.fsum(one * one for one in sizes) / differ))
    all_of_them = [*d, more, -more]
    centre = math.fsum(all_of_them) / 11
    error = math.sqrt(math.fsum((one - centre) ** 2 for one in all_of_them) / 10 / 11)
    for found, sign in ((adjusted_paired_t(d, reach, level), 1), (adjusted_paired_t(-d, reach, level), -1)):
        half = t.ppf(0.5 + level / 2, 10) * error
        ends = max(sign * centre - half, -reach), min(sign * centre + half, reach)
        assert (found.interval.low, found.interval.high) == pytest.approx(ends)
        assert found.interval.estimate == pytest.approx(sign * d.mean())
        assert found.p == pytest.approx(2 * t.sf(abs(centre) / error, 10))
        assert found.test.statistic == pytest.approx(sign * centre / error)
    wide, narrow = np.array([2.0, 0.0]), np.array([0.5, 0.5])
    for arms in ((wide, narrow), (narrow, wide)):
        held = stats.paired_difference(*arms, 0.999).interval
        assert (held.low, held.high) == (-2.0, 2.0), "within the span of both arms"


@pytest.mark.parametrize("values", [[0.01, 0.0, 0.0, 0.02], [0.99, 1.0, 1.0, 0.98]])
def test_the_mean_of_scores_between_0_and_1_lies_there(values):
    found = stats.mean_interval(np.array(values))
    assert 0 <= found.low < found.estimate < found.high <= 1
    shifted = stats.mean_interval(np.array(values) + 1)
    assert shifted.high - shifted.low > found.high - found.low, "other scores have no such bounds"


def test_binary_and_graded_take_their_methods():
    bits, grades = np.array([0, 1, 1, 0]), np.array([0.0, 0.5, 1.0, 0.0])
    assert stats.paired_difference(bits, bits == 1).interval.method == "Tango score"
    assert stats.paired_difference(bits, grades).interval.method == "adjusted paired t"
    assert stats.unpaired_difference(bits, bits[:3]).interval.method == "Newcombe"
    assert stats.unpaired_difference(bits, grades).interval.method == "adjusted Welch t"
    assert stats.mean_interval(bits).method == "Wilson"
    assert stats.mean_interval(grades).method == "adjusted t"


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40),
    st.sampled_from([0.5, 0.95]),
)
def test_difference_properties(rows, level):
    base, other = np.array(rows).T
    found, mirror = stats.paired_difference(base, other, level), stats.paired_difference(other, base, level)
    assert found.interval.low <= found.interval.high
    assert mirror.interval.low == pytest.approx(-found.interval.high, abs=1e-9)
    assert 0 <= found.p <= 1
    if abs(found.p - (1 - level)) > 1e-9:
        assert (0.0 in found.interval) == (found.p > 1 - level)


def exact_bootstrap(d):
    """All resamples of d, equally likely, sorted."""
    return np.sort([np.mean(r) for r in itertools.product(d, repeat=len(d))])


def test_percentile_bootstrap_against_all_resamples():
    d = np.array([0.1, -0.3, 0.8, 0.45, 0.2, -0.05])
    means = exact_bootstrap(d)
    found = stats.paired_bootstrap(
        np.zeros(6), d, np.random.default_rng(1), resamples=200_000, method="percentile"
    )
    # The distribution has atoms about 1e-3 apart; 200,000 resamples place a 2.5 % quantile to about as much.
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=0.01)


def test_bca_bootstrap_against_all_resamples():
    d = np.array([0.1, -0.3, 0.8, 0.45, 0.2, -0.05])
    means, mean = exact_bootstrap(d), d.mean()
    shift = norm.ppf((np.mean(means < mean) + np.mean(means <= mean)) / 2)
    jack = np.array([np.delete(d, i).mean() for i in range(6)])
    gap = jack.mean() - jack
    acceleration = (gap**3).sum() / (6 * (gap**2).sum() ** 1.5)
    wanted = []
    for q in (0.025, 0.975):
        z = shift + norm.ppf(q)
        wanted.append(np.quantile(means, norm.cdf(shift + z / (1 - acceleration * z))))
    found = stats.paired_bootstrap(np.zeros(6), d, np.random.default_rng(2), resamples=200_000)
    assert (found.low, found.high) == pytest.approx(tuple(wanted), abs=0.01)


def test_bootstrap_is_its_generator_and_refuses_nonsense():
    x, y = np.arange(5.0), np.array([1.0, 0.0, 4.0, 3.5, 7.0])
    twice = [stats.paired_bootstrap(x, y, np.random.default_rng(3), resamples=500) for _ in range(2)]
    assert twice[0] == twice[1]
    still = stats.paired_bootstrap(x, x + 1, np.random.default_rng(3))
    assert (still.low, still.high) == (1.0, 1.0)
    with pytest.raises(BadInput):
        stats.paired_bootstrap(x, y, np.random.default_rng(0), resamples=10)


@pytest.mark.parametrize(("method", "scipys"), [("bca", "BCa"), ("percentile", "percentile")])
def test_the_bootstrap_is_scipys(method, scipys):
    x, y = np.arange(5.0), np.array([1.0, 0.0, 4.0, 3.5, 7.0])
    found = stats.paired_bootstrap(x, y, np.random.default_rng(3), level=0.8, resamples=100, method=method)
    known = bootstrap(
        (y - x,), np.mean, n_resamples=100, confidence_level=0.8, method=scipys, rng=np.random.default_rng(3)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((known.low, known.high))


@pytest.mark.parametrize(("size", "batch"), [(3, 666_666), (1_500_000, 1), (2_500_000, 1)])
def test_the_bootstrap_keeps_no_more_than_two_million_numbers_in_memory(monkeypatch, size, batch):
    told = {}
    result = mock.Mock(confidence_interval=mock.Mock(low=0.0, high=1.0))
    monkeypatch.setattr("scipy.stats.bootstrap", lambda *_, **options: told.update(options) or result)
    stats.paired_bootstrap(np.zeros(size), np.arange(size) / size, np.random.default_rng(0))
    assert (told["batch"], told["n_resamples"]) == (batch, 10_000)


def test_an_unknown_bootstrap_is_refused(unchecked):
    with pytest.raises(BadInput, match="unknown bootstrap method 'basic'"):
        stats.paired_bootstrap(np.zeros(3), np.ones(3), np.random.default_rng(0), method="basic")


def test_benjamini_hochberg_published():
    # Benjamini and Hochberg (1995), section 4: fifteen p-values, four discoveries at 0.05, Bonferroni-type
    # procedures find three.
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p = np.array([*p, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0])
    assert stats.benjamini_hochberg(p).rejected.sum() == 4
    assert stats.holm(p).rejected.sum() == 3


def test_adjusted_p_values_by_hand():
    p = np.array([0.04, 0.01, 0.03])
    assert stats.holm(p).p == pytest.approx([0.06, 0.03, 0.06])
    assert stats.benjamini_hochberg(p).p == pytest.approx([0.04, 0.03, 0.04])
    assert stats.holm(np.zeros(0)).p.size == 0
    for bad in (np.array([0.5, 1.5]), np.array([np.nan])):
        with pytest.raises(BadInput):
            stats.holm(bad)
    for rate in (0.0, 1.0, 1.5):
        with pytest.raises(BadInput, match=f"the rate is {rate}"):
            stats.holm(p, rate=rate)
        with pytest.raises(BadInput, match=f"the rate is {rate}"):
            stats.benjamini_hochberg(p, rate=rate)
    for adjust in (stats.holm, stats.benjamini_hochberg):
        assert adjust(np.array([0.25], dtype=np.float32)).p.dtype == np.float64


@given(
    st.lists(
        st.sampled_from([0.0, 0.001, 0.01, 0.0125, 0.02, 0.03, 0.05, 0.5, 1.0]), min_size=1, max_size=20
    ),
    st.sampled_from([0.01, 0.05, 0.2]),
)
def test_adjusted_p_values_are_those_of_statsmodels(p, rate):
    from statsmodels.stats.multitest import multipletests

    for name, code in (("holm", "holm"), ("benjamini_hochberg", "fdr_bh")):
        found = getattr(stats, name)(np.array(p), rate)
        with mock.patch("gc.collect"):  # it collects all garbage on every call, which takes most of a second
            rejected, adjusted, _, _ = multipletests(p, alpha=rate, method=code)
        np.testing.assert_allclose(found.p, adjusted, rtol=1e-12)
        # At p = rate / m itself one rounding decides; elsewhere both say the same.
        sure = np.abs(adjusted - rate) > 1e-12
        np.testing.assert_array_equal(found.rejected[sure], rejected[sure])
        np.testing.assert_array_equal(found.rejected, found.p <= rate)


def test_unpaired_power_published():
    # R documentation of power.prop.test: power 0.740 at n = 50, n = 76.7 for power 0.90.
    assert stats.unpaired_power(0.5, 0.75, 50) == pytest.approx(0.740, abs=6e-4)
    assert stats.unpaired_draws(0.5, 0.75, power=0.9) == 77


@pytest.mark.parametrize(("gain", "loss"), [(0.2, 0.05), (0.12, 0.06), (0.05, 0.2)])
def test_paired_draws_reach_their_power(gain, loss):
    pairs = stats.paired_draws(gain, loss, power=0.8)
    assert stats.paired_power(gain, loss, pairs) == pytest.approx(0.81, abs=0.03)


def test_pairing_saves_draws():
    assert stats.paired_draws(0.12, 0.02) < stats.unpaired_draws(0.5, 0.6) / 2


def test_auroc_published_with_ties():
    # Hanley and McNeil (1982), 109 CT images rated 1 to 5; Stata's manual entry for roctab prints
    # area 0.8932 and DeLong's interval 0.83295 to 0.95339.
    normal, abnormal = [33, 6, 6, 11, 2], [3, 2, 2, 11, 33]
    ratings = np.repeat(np.tile(np.arange(1, 6), 2), normal + abnormal)
    labels = np.repeat([0, 1], [58, 51])
    found = stats.auroc(ratings, labels)
    assert found.estimate == pytest.approx(0.8932, abs=6e-5)
    assert (found.low, found.high) == pytest.approx((0.83295, 0.95339), abs=6e-6)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=4, max_size=30))
def test_auroc_is_the_share_of_pairs_in_order(rows):
    scores, labels = np.array([r[0] for r in rows]), np.array([int(r[1]) for r in rows])
    if min(labels.sum(), (1 - labels).sum()) < 2:
        with pytest.raises(BadInput):
            stats.auroc(scores, labels)
        return
    gap = scores[labels == 1][:, None] - scores[labels == 0][None, :]
    found = stats.auroc(scores, labels)
    assert found.estimate == pytest.approx(np.mean((gap > 0) + 0.5 * (gap == 0)))
    assert 0 <= found.low <= found.estimate + 1e-12
    assert found.estimate - 1e-12 <= found.high <= 1
    flipped = stats.auroc(-scores, labels)
    assert (flipped.low, flipped.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-9)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize(
    ("scores", "labels", "area"),
    [
        ([1, 2, 3, 4, 5], [0, 0, 1, 1, 1], 1.0),
        ([1, 2, 3, 4, 5, 6], [1, 1, 1, 1, 0, 0], 0.0),
        ([7, 7, 7, 7, 7], [0, 0, 0, 1, 1], 0.5),
    ],
)
def test_an_area_without_variance_has_newcombes_interval(scores, labels, area, level):
    """Ends t with |area - t| = z times the standard error at t, of Hanley and McNeil with Newcombe's mean."""
    m, n = sum(labels), len(labels) - sum(labels)
    found = stats.auroc(np.array(scores), np.array(labels), level)
    assert (found.estimate, found.method) == (area, "Newcombe area")

    def error(t):
        each = (m + n) / 2 - 1
        return math.sqrt(t * (1 - t) * (1 + each * (1 - t) / (2 - t) + each * t / (1 + t)) / (m * n))

    z = norm.ppf(0.5 + level / 2)
    assert found.low == (0.0 if area == 0 else pytest.approx(area - z * error(found.low)))
    assert found.high == (1.0 if area == 1 else pytest.approx(area + z * error(found.high)))
    assert (found.low < area, found.high > area) == (area > 0, area < 1)


def test_every_score_needs_a_label(unchecked):
    with pytest.raises(BadInput, match="every score needs one label, 0 or 1"):
        stats.auroc(np.arange(5.0), np.array([0, 1, 0, 1]))
    with pytest.raises(BadInput, match="every score needs one label, 0 or 1"):
        stats.auroc(np.arange(5.0), np.array([0, 1, 0, 1, 2]))


def test_perfect_separation_is_not_certainty():
    found = stats.auroc(np.arange(40.0), (np.arange(40) >= 20).astype(int))
    assert found.estimate == found.high == 1.0
    assert 0.8 < found.low < 1
    with pytest.raises(BadInput):
        stats.auroc(np.arange(4.0), np.array([0, 1, 2, 1]))


@pytest.mark.parametrize(("c", "n", "k"), [(0, 5, 2), (1, 5, 2), (3, 5, 2), (4, 5, 2), (2, 9, 9), (3, 9, 1)])
def test_pass_at_k_counts_subsets(c, n, k):
    draws = [1] * c + [0] * (n - c)
    subsets = list(itertools.combinations(draws, k))
    assert stats.pass_at_k(c, n, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_unbiased_estimates_have_the_right_mean(p, n):
    weights = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    variance = sum(w * stats.outcome_variance(k, n) for k, w in enumerate(weights))
    assert variance == pytest.approx(4 * p * (1 - p))
    passed = sum(w * stats.pass_at_k(k, n, 2) for k, w in enumerate(weights))
    assert passed == pytest.approx(1 - (1 - p) ** 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.pass_at_k(1, 3, 4),
        lambda: stats.pass_at_k(4, 3, 1),
        lambda: stats.outcome_variance(1, 1),
        lambda: stats.paired_difference(np.array([1.0]), np.array([0.0])),
        lambda: stats.paired_difference(np.array([1.0, np.nan]), np.array([0.0, 1.0])),
        lambda: stats.unpaired_difference(np.zeros(0), np.array([0.0])),
        lambda: stats.unpaired_difference(np.array([0.5]), np.array([0.0, 0.2])),
        lambda: stats.welch(np.array([0.5]), np.array([0.0, 0.2])),
        lambda: stats.mean_interval(np.zeros(0)),
        lambda: stats.paired_difference(np.zeros(3), np.zeros(3), level=0.0),
    ],
)
def test_bad_outcomes_are_refused(call):
    with pytest.raises(BadInput):
        call()


def test_unequal_lengths_are_refused(unchecked):
    with pytest.raises(BadInput, match="3 base outcomes cannot be paired with 4 others"):
        stats.paired_difference(np.zeros(3), np.zeros(4))
