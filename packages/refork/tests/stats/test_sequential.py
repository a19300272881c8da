"""Tests and intervals that may be looked at after every draw."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln

from refork import stats
from refork.errors import BadInput


def krichevsky_trofimov(gains, losses):
    """The beta-binomial e-value of discordant pairs, in closed form."""
    return math.exp((gains + losses) * math.log(2) + betaln(gains + 0.5, losses + 0.5) - betaln(0.5, 0.5))


@pytest.mark.parametrize(("gains", "losses", "same"), [(0, 0, 5), (1, 0, 0), (7, 2, 50), (300, 210, 10)])
def test_binary_e_value_closed_form(gains, losses, same):
    d = np.repeat([1.0, -1.0, 0.0], [gains, losses, same])
    found = stats.anytime_test(d)
    assert found.statistic == pytest.approx(krichevsky_trofimov(gains, losses), rel=1e-9)
    assert found.p == pytest.approx(min(1.0, 1 / found.statistic))


def test_error_rate_of_looking_after_every_pair_exactly():
    """The chance that a fair path of 512 discordant pairs is ever called biased, by dynamic programming."""
    error, horizon = 0.05, 512
    alive, crossed = {0: 1.0}, 0.0
    for step in range(1, horizon + 1):
        fresh: dict[int, float] = {}
        for gains, weight in alive.items():
            for more in (0, 1):
                fresh[gains + more] = fresh.get(gains + more, 0.0) + weight / 2
        alive = {}
        for gains, weight in fresh.items():
            if krichevsky_trofimov(gains, step - gains) >= 1 / error:
                crossed += weight
            else:
                alive[gains] = weight
    assert crossed + sum(alive.values()) == pytest.approx(1.0)
    assert 0.005 < crossed <= error


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=12),
    st.floats(-0.9, 0.9),
    st.floats(0.05, 0.95),
)
def test_capital_is_a_fair_game(past, null, split):
    """One more difference with mean ``null``, however distributed, leaves the expected capital as it is."""
    low, high = null - (1 + null) * split, null + (1 - null) * split
    weight = (high - null) / (high - low)
    now = stats.anytime_test(np.array(past), null).statistic
    then = [stats.anytime_test(np.array([*past, x]), null).statistic for x in (low, high)]
    assert weight * then[0] + (1 - weight) * then[1] == pytest.approx(now, rel=1e-9)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.3, 1.0]), min_size=1, max_size=60))
def test_sequence_is_the_test_turned_round(d):
    found = stats.confidence_sequence(np.array(d))
    assert -1 <= found.low <= found.estimate <= found.high <= 1
    for end, outside in ((found.low, found.low - 0.01), (found.high, found.high + 0.01)):
        if abs(end) < 0.99:
            assert stats.anytime_test(np.array(d), end).p == pytest.approx(0.05, rel=1e-3)
            assert stats.anytime_test(np.array(d), outside).p < 0.05
    shuffled = stats.confidence_sequence(np.array(d[::-1]))
    assert (shuffled.low, shuffled.high) == pytest.approx((found.low, found.high))


@pytest.mark.parametrize("mean", [0.0, 0.1, -0.6])
@pytest.mark.parametrize("change", [0.2, 0.8])
def test_time_uniform_coverage_exactly(mean, change):
    """The chance that the true mean is ever called wrong at a look after every fifth of 40 pairs: all paths.

    ``change``: how often a pair differs at all, at least; gains minus losses are ``mean``.
    """
    change = max(change, abs(mean))
    gain, loss = (change + mean) / 2, (change - mean) / 2
    alive, missed = np.zeros((42, 42)), 0.0  # by gains and losses
    alive[0, 0] = 1.0
    for pairs in range(1, 41):
        fresh = (1 - gain - loss) * alive
        fresh[1:] += gain * alive[:-1]
        fresh[:, 1:] += loss * alive[:, :-1]
        alive = fresh
        if pairs % 5 == 0:
            for gains, losses in np.argwhere(alive > 0).tolist():
                d = np.repeat([1.0, -1.0, 0.0], [gains, losses, pairs - gains - losses])
                if stats.anytime_test(d, mean).p <= 0.05:
                    missed += alive[gains, losses]
                    alive[gains, losses] = 0.0
    assert missed + alive.sum() == pytest.approx(1.0)
    assert 0 < missed <= 0.05


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30), st.sampled_from([0.05, 0.3])
)
def test_the_sequence_of_a_mean_is_its_test_turned_round(scores, error):
    x = np.array(scores)
    found = stats.mean_sequence(x, error)
    assert 0 <= found.low <= found.estimate <= found.high <= 1
    assert found.estimate == pytest.approx(x.mean())
    assert found.level == 1 - error
    for end in {found.low, found.high} - {0.0, 1.0}:
        assert stats.anytime_test(2 * x - 1, 2 * end - 1).p == pytest.approx(error, rel=1e-4)
    lost = stats.mean_sequence(1 - x, error)
    assert (lost.low, lost.high) == pytest.approx((1 - found.high, 1 - found.low), abs=1e-8)


def test_all_equal_and_certain_differences():
    wide = stats.confidence_sequence(np.zeros(256))
    assert -0.1 < wide.low < 0 < wide.high < 0.1
    assert wide.low == pytest.approx(-wide.high)
    sure = stats.confidence_sequence(np.ones(64))
    assert sure.high == sure.estimate == 1.0
    assert sure.low > 0
    assert stats.anytime_test(np.array([1.0, 1.0]), null=-1.0).p == pytest.approx(0.0, abs=1e-300)
    assert stats.anytime_test(np.array([-1.0, -1.0]), null=-1.0).p == 1.0


def test_names_limits_and_what_is_huge():
    d = np.array([1.0, 0.0, -0.5])
    assert stats.anytime_test(d).method == "betting e-value"
    assert stats.confidence_sequence(d).method == stats.mean_sequence(np.abs(d)).method
    assert stats.confidence_sequence(d).method == "betting confidence sequence"
    assert stats.confidence_sequence(d) == stats.confidence_sequence(d, 0.05)
    assert stats.mean_sequence(np.abs(d)) == stats.mean_sequence(np.abs(d), 0.05)
    assert stats.anytime_test(d, null=1.0).p == 0.0
    assert stats.anytime_test(np.ones(4), null=1.0).p == 1.0
    assert stats.anytime_test(np.ones(3000)).statistic == math.exp(700), "as large as a float can show"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stats.anytime_test(np.zeros(0)), "there are no differences"),
        (lambda: stats.anytime_test(np.array([2.0])), "a difference is 2; "),
        (lambda: stats.anytime_test(np.array([0.5, -1.5, 1.2])), "a difference is -1.5; "),
        (lambda: stats.anytime_test(np.zeros(3), null=1.5), "the null is 1.5"),
        (lambda: stats.anytime_test(np.zeros(3), null=-1.5), "the null is -1.5"),
        (lambda: stats.confidence_sequence(np.array([0.0, -1.5])), "a difference is -1.5"),
        (lambda: stats.confidence_sequence(np.zeros(3), error=0.0), "the error rate is 0.0"),
        (lambda: stats.confidence_sequence(np.zeros(3), error=1.0), "the error rate is 1.0"),
        (lambda: stats.mean_sequence(np.array([0.5, -0.1])), "a score is -0.1; "),
        (lambda: stats.mean_sequence(np.array([0.5, 1.1])), "a score is 1.1; "),
        (lambda: stats.mean_sequence(np.zeros(0)), "there are no scores"),
        (lambda: stats.mean_sequence(np.zeros(2), error=1.0), "the error rate is 1.0"),
    ],
)
def test_nonsense_is_refused(call, message):
    with pytest.raises(BadInput, match=message.replace(".", "[.]")):
        call()
