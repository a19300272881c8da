import numpy as np
import pytest
from scipy.stats import beta

from refork.errors import BadInput
from refork_methods.decide import BetaRate


def test_the_posterior_mean_under_a_uniform_prior():
    assert BetaRate(9, 44).mean == 10 / 46
    assert BetaRate(10, 68).mean == 11 / 70
    assert BetaRate(0, 0).mean == 0.5


def test_interval_and_tail_are_the_beta_law():
    rate = BetaRate(9, 44)
    interval = rate.interval(0.9)
    assert interval.low == pytest.approx(beta.ppf(0.05, 10, 36))
    assert rate.above(interval.low) == pytest.approx(0.95)
    assert rate.above(0) == 1
    assert rate.above(1) == 0


def test_one_more_trial_is_the_same_as_counting_it_at_once():
    assert BetaRate(2, 5).plus(True).plus(False) == BetaRate(3, 7)


def test_credible_intervals_cover_what_is_drawn_from_the_prior():
    # 2,000 rates from the prior: 95 % coverage has a standard error of .0049; four fail once in 16,000.
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=2000)
    counts = rng.binomial(20, truth)
    tables = {k: BetaRate(k, 20).interval() for k in range(21)}
    inside = np.mean(
        [tables[int(k)].low <= p <= tables[int(k)].high for k, p in zip(counts, truth, strict=True)]
    )
    assert abs(inside - 0.95) < 4 * 0.0049


@pytest.mark.parametrize("bad", [(-1, 3), (4, 3), (0, float("nan")), (0, float("inf"))])
def test_counts_that_do_not_fit_are_refused(bad):
    with pytest.raises(BadInput):
        BetaRate(*bad)


def test_an_improper_prior_is_refused():
    with pytest.raises(BadInput, match="prior"):
        BetaRate(1, 2, a=0)


def test_to_json_holds_counts_and_prior():
    assert BetaRate(1, 2).to_json() == {"successes": 1, "trials": 2, "a": 1.0, "b": 1.0}


def test_a_rate_comes_back_from_json():
    rate = BetaRate(9, 44, 2.0, 0.5)
    assert BetaRate.from_json(rate.to_json()) == rate
    assert BetaRate.from_json({"successes": 9, "trials": 44}) == BetaRate(9, 44)
    for broken in ({}, {"successes": 1}, {"successes": "x", "trials": 2}, {"successes": 3, "trials": 2}, []):
        with pytest.raises(BadInput):
            BetaRate.from_json(broken)
