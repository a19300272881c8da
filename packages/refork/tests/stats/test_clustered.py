"""Clustered means and differences: identities and closed forms, then exact coverage."""

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import binom, norm, t
from statsmodels.stats.proportion import proportion_confint

from refork.errors import BadInput
from refork.stats import (
    clustered_difference,
    clustered_mean,
    macro_mean,
    mean_interval,
    paired_difference,
    wilson,
)
from refork.stats.clustered import cluster_values


def test_clusters_of_one_are_the_plain_statistics():
    y = np.array([1, 0, 1, 1, 0, 1.0])
    found, plain = clustered_mean(y, list(range(6))), wilson(4, 6)
    assert (found.estimate, found.low, found.high) == pytest.approx((plain.estimate, plain.low, plain.high))
    other = np.array([1, 1, 1, 1, 0, 0.0])
    for level in (0.8, 0.95):
        assert clustered_difference(y, other, list(range(6)), level) == paired_difference(y, other, level)


def test_equal_turns_count_once():
    """All turns of a cluster alike: as many as there are clusters, however many turns each has."""
    whole, each = np.repeat([1.0, 1.0, 1.0], 5), [0] * 5 + [1] * 5 + [2] * 5
    found, plain = clustered_mean(whole, each), wilson(3, 3)
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high))
    graded = np.repeat([0.2, 0.5, 0.9, 0.4], 5)
    held = clustered_mean(graded, np.repeat(range(4), 5).tolist())
    by_hand = mean_interval(np.array([0.2, 0.5, 0.9, 0.4]))
    assert (held.low, held.high) == pytest.approx((by_hand.low, by_hand.high))


def test_values_keep_the_mean_and_bad_input_is_refused():
    y = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    assert cluster_values(y, "aabbb").mean() == pytest.approx(y.mean())
    with pytest.raises(BadInput, match="cannot lie"):
        cluster_values(y, "ab")
    with pytest.raises(BadInput, match="one cluster"):
        clustered_difference(y, y, "aaaaa")
    for parts in ([], [wilson(5, 10), wilson(5, 10, 0.8)]):
        with pytest.raises(BadInput, match="at least one, all of one level"):
            macro_mean(parts)
    for call in (cluster_values, clustered_mean):
        with pytest.raises(BadInput, match="there are no outcomes"):
            call(np.zeros(0), [])


def test_macro_of_one_is_itself_and_of_many_is_narrower():
    one = wilson(5, 10)
    assert macro_mean([one]).low == pytest.approx(one.low)
    four = macro_mean([one] * 4)
    assert four.width == pytest.approx(one.width / 2)
    # Distances of each side, squared and added, over their number (Zou and Donner).
    two = macro_mean([one, wilson(1, 10)])
    assert two.estimate == pytest.approx(0.3)
    other = wilson(1, 10)
    assert two.low == pytest.approx(0.3 - math.hypot(0.5 - one.low, 0.1 - other.low) / 2)
    assert two.high == pytest.approx(0.3 + math.hypot(one.high - 0.5, other.high - 0.1) / 2)
    assert (two.level, two.method) == (0.95, "mean of estimates")


SHARES = np.array([1, 1, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1.0])
SIZES = (3, 5, 2, 4)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_share_has_the_cluster_robust_variance_and_the_quantile_of_few_clusters(level):
    """Korn and Graubard by statsmodels: effective number p (1 - p) / variance, times (z / t)^2."""
    clusters = np.repeat(range(4), SIZES)
    fit = sm.OLS(SHARES, np.ones(14)).fit(cov_type="cluster", cov_kwds={"groups": clusters})
    share = SHARES.mean()
    trials = share * (1 - share) / float(fit.bse[0]) ** 2
    assert trials < 14
    trials *= (norm.ppf(0.5 + level / 2) / t.ppf(0.5 + level / 2, 3)) ** 2
    found = clustered_mean(SHARES, clusters.tolist(), level)
    wanted = proportion_confint(share * trials, trials, 1 - level, method="wilson")
    assert (found.low, found.high) == pytest.approx(wanted)
    assert (found.estimate, found.level, found.method) == (pytest.approx(share), level, "Wilson, clustered")


def test_clusters_that_agree_with_each_other_say_no_more_than_all_their_outcomes():
    # Every cluster holds one of each: the variance between clusters is 0, and the outcomes are the limit.
    found = clustered_mean(np.array([1, 0, 0, 1, 1, 0.0]), [0, 0, 1, 1, 2, 2])
    trials = 6 * (norm.ppf(0.975) / t.ppf(0.975, 2)) ** 2
    wanted = proportion_confint(trials / 2, trials, 0.05, method="wilson")
    assert (found.low, found.high) == pytest.approx(wanted)
    # All alike: as many as there are clusters of equal size, fewer where sizes differ: n^2 / sum of squares.
    alike = clustered_mean(np.ones(6), [0, 0, 0, 1, 1, 2])
    assert alike.low == pytest.approx(proportion_confint(36 / 14, 36 / 14, 0.05, method="wilson")[0])
    assert alike.high == 1.0
    never = clustered_mean(np.zeros(6), [0, 0, 0, 1, 1, 2])
    assert (never.low, never.high) == pytest.approx((0.0, 1 - alike.low))
    # Two clusters are few, but not one: of 200 outcomes that agree they leave five.
    trials = 200 * (norm.ppf(0.975) / t.ppf(0.975, 1)) ** 2
    two = clustered_mean(np.tile([1.0, 0.0], 100), [0] * 100 + [1] * 100)
    assert (two.low, two.high) == pytest.approx(proportion_confint(trials / 2, trials, 0.05, "wilson"))
    # One cluster is one outcome, and never less than one.
    assert clustered_mean(np.array([1.0, 0.0, 0.0, 0.0]), [0] * 4).low == pytest.approx(
        proportion_confint(0.25, 1, 0.05, method="wilson")[0]
    )
    far = clustered_mean(np.array([1, 1, 0, 0.0]), [0, 0, 1, 1])
    assert far.low == pytest.approx(proportion_confint(0.5, 1, 0.05, method="wilson")[0])


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_graded_clusters_by_hand(level):
    """Cluster sums against what their sizes lead to expect, two ends more, and Student's t."""
    y, clusters = np.array([0.1, 0.4, 0.9, 0.5, 0.7, 0.2, 0.6, 0.3]), [0, 0, 1, 2, 2, 2, 3, 3]
    mean = y.mean()
    sums = np.array([0.5 - 2 * mean, 0.9 - mean, 1.4 - 3 * mean, 0.9 - 2 * mean])
    values = mean + sums / 2  # two outcomes a cluster on average
    assert cluster_values(y, clusters) == pytest.approx(values)
    more = np.array([*values, values.min(), values.max()])
    half = t.ppf(0.5 + level / 2, 5) * more.std(ddof=1) / math.sqrt(6)
    found = clustered_mean(y, clusters, level)
    assert (found.low, found.high) == pytest.approx((more.mean() - half, more.mean() + half))
    assert (found.estimate, found.method) == (pytest.approx(mean), "adjusted t, clustered")
    wide = clustered_mean(np.array([0.0, 0.1, 0.8, 1.0]), [0, 0, 1, 1], 0.999)
    assert (wide.low, wide.high) == (0.0, 1.0), "within the outcomes' range"
    # The large cluster of them passes it, whose distance counts by its size: each end is held for itself.
    reach = np.array([0.0, 0.5, 1, 1, 1, 1, 1])
    for outcomes in (reach, 1 - reach):
        assert not 0 <= cluster_values(outcomes, list("abccccc"))[2] <= 1
        wide = clustered_mean(outcomes, list("abccccc"), 0.999)
        assert (wide.low, wide.high) == (0.0, 1.0)
    # Outcomes beyond it are not held there.
    free = clustered_mean(np.array([-1.0, -2.0, 3.0, 2.0]), [0, 0, 1, 1])
    assert free.low < -2
    assert free.high > 2
    for reach in (np.array([-0.5, -0.2, 0.9, 0.8]), np.array([0.1, 0.2, 1.5, 1.4])):
        found = clustered_mean(reach, [0, 0, 1, 1], 0.99)
        assert found.low < 0
        assert found.high > 1


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_a_clustered_difference_by_hand(level):
    """Student's t of the clusters' differences after one more each way, at their span where few differ."""
    base = np.array([1, 0, 0, 1, 0, 0, 0.0])
    other = np.array([1, 1, 0, 1, 1, 1, 0.0])
    d = 3 / 7 + np.array([1 - 2 * 3 / 7, 0 - 2 * 3 / 7, 2 - 3 * 3 / 7]) / (7 / 3)
    more = np.array([*d, d.max(), -d.max()])  # all at least 0: their span is the largest where it passes 1
    if d.max() <= 1:
        more[3:] = 1, -1
    half = t.ppf(0.5 + level / 2, 4) * more.std(ddof=1) / math.sqrt(5)
    found = clustered_difference(base, other, [0, 0, 1, 1, 2, 2, 2], level)
    assert found.interval.estimate == pytest.approx(3 / 7)
    span = max(1.0, d.max())
    ends = max(more.mean() - half, -span), min(more.mean() + half, span)
    assert (found.interval.low, found.interval.high) == pytest.approx(ends)
    assert found.p == pytest.approx(2 * t.sf(more.mean() / (half / t.ppf(0.5 + level / 2, 4)), 4))
    assert found.interval.method == "adjusted paired t, clustered"
    # Two clusters are the fewest.
    assert clustered_difference(base[:4], other[:4], [0, 0, 1, 1]).interval.estimate == pytest.approx(0.25)


@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("sizes", [[2] * 8, [1, 2, 3, 10]])
def test_which_arm_is_named_first_changes_the_sign_alone(sizes, level):
    clusters = np.repeat(range(len(sizes)), sizes).tolist()
    for place in (0, len(clusters) - 1):
        base, other = np.zeros(len(clusters)), np.zeros(len(clusters))
        other[place] = 1
        one = clustered_difference(base, other, clusters, level)
        two = clustered_difference(other, base, clusters, level)
        assert (two.interval.low, two.interval.high) == (-one.interval.high, -one.interval.low)
        assert two.interval.estimate == -one.interval.estimate
        assert two.p == one.p


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_outcomes_of_either_arm_say_how_far_two_can_lie_apart(level):
    """One pair each way is added at that span where few differ, whichever arm shows it; all by hand."""
    marks, near, clusters = np.array([4.0, 0, 2, 1]), np.array([3.0, 0, 2, 1]), [0, 0, 1, 1]
    d = np.array([-0.5, 0.0])
    more = np.array([*d, 4, -4])
    half = t.ppf(0.5 + level / 2, 3) * more.std(ddof=1) / 2
    one, two = (clustered_difference(*arms, clusters, level) for arms in ((marks, near), (near, marks)))
    ends = max(more.mean() - half, -4), min(more.mean() + half, 4)
    assert (one.interval.low, one.interval.high) == pytest.approx(ends)
    assert (two.interval.low, two.interval.high) == pytest.approx((-ends[1], -ends[0]))


def exact_coverage(interval, truth, outcomes, chances, clusters):
    """The chance that an interval of so many independent clusters holds the truth: all tables are counted."""
    covered = 0.0
    for table in combinations_with_replacement(range(len(chances)), clusters):
        ways = math.factorial(clusters)
        for kind in set(table):
            ways //= math.factorial(table.count(kind))
        weight = ways * math.prod(chances[kind] for kind in table)
        if weight:
            covered += weight * (truth in interval([outcomes[kind] for kind in table]))
    return covered


# (clusters, outcomes of each); two kinds of cluster: their chances of success, how often the first comes.
# Without the quantile of few clusters the exact coverage of the first is 0.857.
@pytest.mark.parametrize("shape", [(4, 4), (5, 4), (6, 4), (8, 3)])
@pytest.mark.parametrize("law", [(0.9, 0.1, 0.5), (0.95, 0.4, 0.5), (0.8, 0.2, 0.3), (0.5, 0.5, 1.0)])
def test_exact_coverage_of_a_share_with_few_clusters(shape, law):
    clusters, size = shape
    first, second, often = law
    counts = np.arange(size + 1)
    chances = often * binom.pmf(counts, size, first) + (1 - often) * binom.pmf(counts, size, second)
    outcomes = [np.repeat([1.0, 0.0], [k, size - k]) for k in counts]

    def interval(table):
        return clustered_mean(np.concatenate(table), np.repeat(range(clusters), size).tolist())

    truth = often * first + (1 - often) * second
    assert exact_coverage(interval, truth, outcomes, chances, clusters) >= 0.93


# Gains minus losses among the three pairs of a task, and how often each comes. Student's t with no pair added
# covers the last one 0.68 of the time with 4 tasks.
@pytest.mark.parametrize("tasks", [4, 6, 8])
@pytest.mark.parametrize(
    "law",
    [
        {-1: 0.25, 0: 0.5, 1: 0.25},
        {0: 0.5, 3: 0.5},
        {-3: 0.3, 0: 0.4, 3: 0.3},
        {-1: 0.1, 0: 0.3, 1: 0.3, 2: 0.2, 3: 0.1},
        {0: 0.75, 2: 0.25},
    ],
)
def test_exact_coverage_of_a_difference_with_few_tasks(tasks, law):
    kinds = list(law)

    def interval(table):
        y = np.concatenate([np.repeat([1.0, 0.0], [max(k, 0), 3 - max(k, 0)]) for k in table])
        x = np.concatenate([np.repeat([1.0, 0.0], [max(-k, 0), 3 - max(-k, 0)]) for k in table])
        return clustered_difference(x, y, np.repeat(range(tasks), 3).tolist()).interval

    truth = sum(k * chance for k, chance in law.items()) / 3
    assert exact_coverage(interval, truth, kinds, list(law.values()), tasks) >= 0.94
