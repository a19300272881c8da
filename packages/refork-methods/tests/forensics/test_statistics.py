from __future__ import annotations

import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork.stats import newcombe, wilson
from refork_methods.forensics import Arm, golden
from refork_methods.forensics.statistics import (
    contrast,
    difference,
    holm_over,
    interaction,
    log_likelihood,
    negative,
    rate,
    ratio,
    scale,
    trend,
)


def arm(hits, runs, name="a", **more):
    return Arm(name, hits, runs, **more)


def test_printed_brackets_come_out():
    assert golden.max_deviation() <= 0.05  # a tenth of a point is the last printed digit
    for one in golden.PRINTED:
        assert one.deviation <= 0.05, one


def test_printed_trends_come_out():
    assert trend(golden.arms(golden.META_REASONING)).interval.estimate == pytest.approx(6.554, abs=5e-4)
    assert 8.8 < trend(golden.arms(golden.TYPE_ERRORS)).interval.estimate < 9.1
    assert trend(golden.arms(golden.ORACLE_NOISE)).p < 1e-60
    assert golden.resampling_test().p == pytest.approx(0.015, abs=5e-4)


def test_the_released_sweep_is_flat_up_to_fifty_errors():
    early = [arm for arm in golden.arms(golden.TYPE_ERRORS) if arm.dose <= 51]
    assert sum(arm.hits for arm in early) == 0
    assert len(early) == 4


def test_a_contrast_of_two_is_newcombe():
    base, other = arm(12, 40), arm(25, 50)
    mine = contrast([base, other], np.array([-1.0, 1.0]))
    theirs = newcombe(base.counts, other.counts)
    assert (mine.interval.low, mine.interval.high) == pytest.approx(
        (theirs.interval.low, theirs.interval.high), abs=1e-12
    )
    assert mine.p == pytest.approx(theirs.p, rel=1e-6)


def test_an_interaction_is_a_difference_of_differences():
    cells = arm(65, 100), arm(59, 100), arm(19, 100), arm(3, 100)
    found = interaction(*cells)
    assert found.interval.estimate == pytest.approx((0.03 - 0.59) - (0.19 - 0.65))
    assert found.quantity == "interaction"
    assert (found.p < 0.05) == (0.0 not in found.interval)
    none = interaction(arm(50, 100), arm(50, 100), arm(50, 100), arm(50, 100))
    assert none.p == 1.0
    assert 0.0 in none.interval
    sure = interaction(arm(0, 9999), arm(0, 9999), arm(0, 9999), arm(9999, 9999))
    assert sure.p < 1e-10


def test_interaction_intervals_cover():
    # Of 1,000 draws at 95 % a share of 93 to 97 % must cover; by chance outside once in 250.
    rng, p, n = np.random.default_rng(0), (0.6, 0.4, 0.5, 0.1), 100
    truth = (p[3] - p[1]) - (p[2] - p[0])
    hits = rng.binomial(n, p, size=(1000, 4))
    covered = np.mean([truth in interaction(*(arm(int(k), n) for k in row)).interval for row in hits])
    assert 0.93 <= covered <= 0.97


def test_ratios():
    drop = ratio(arm(46, 98), arm(7, 95))
    assert drop.interval.estimate == pytest.approx(6.37, abs=0.01)
    assert 2.5 < drop.interval.low < 6 < 6.5 < drop.interval.high
    gone = ratio(arm(46, 98), arm(0, 95))
    assert gone.interval.estimate == gone.interval.high == math.inf
    assert gone.interval.low > 5
    never = ratio(arm(0, 50), arm(10, 50))
    assert (never.interval.estimate, never.interval.low) == (0, 0)
    assert never.interval.high < 1
    same = ratio(arm(50, 50), arm(50, 50)).interval
    assert same.low < 1 < same.high
    with pytest.raises(BadInput, match="neither arm"):
        ratio(arm(0, 50), arm(0, 50))


def test_ratio_intervals_cover():
    # 0.93 to 1 of 1,000 draws must cover (the method is conservative); by chance below once in 400.
    rng = np.random.default_rng(1)
    for p, q in ((0.5, 0.08), (0.9, 0.5), (0.3, 0.02)):
        pairs = zip(rng.binomial(100, p, 1000), rng.binomial(100, q, 1000), strict=True)
        share = np.mean([p / q in ratio(arm(int(a), 100), arm(int(b), 100)).interval for a, b in pairs])
        assert share >= 0.93


def test_mann_whitney_on_a_judges_scale():
    low, high = arm(0, 4, values=(1.0, 1, 2, 1)), arm(0, 4, values=(4.0, 5, 4, 3))
    found = scale(low, high)
    assert found.interval.estimate == 1.0
    assert found.p < 0.05
    assert scale(low, low).interval.estimate == 0.5


def test_bounds_take_lost_rollouts_either_way():
    lossy = arm(19, 69, failed=29, unfinished=0)
    assert lossy.bounds() == pytest.approx((19 / 98, 48 / 98))
    wide, plain = rate(lossy, bounds=True), rate(lossy)
    assert wide.interval.low == wilson(19, 98).low < plain.interval.low
    assert wide.interval.high == wilson(48, 98).high > plain.interval.high
    shift = difference(arm(46, 98), lossy, bounds=True)
    assert shift.bounded
    assert shift.p is None
    assert shift.interval.low < difference(arm(46, 98), lossy).interval.low
    assert shift.interval.high > 0  # with its losses as hits there is no drop left


def test_holm_over_a_family():
    results = [difference(arm(50, 100), arm(k, 100)) for k in (20, 35, 50)] + [rate(arm(1, 10))]
    adjusted = holm_over(results)
    assert adjusted[0] == pytest.approx(3 * results[0].p)
    assert adjusted[2] == 1.0
    assert adjusted[3] is None


def test_likelihoods_never_rule_out_by_one_rollout():
    found = log_likelihood([arm(1, 100)], {"a": 0.0})
    assert found == pytest.approx(math.log(0.01) + 99 * math.log(0.99))
    with pytest.raises(BadInput, match="no rate is predicted"):
        log_likelihood([arm(1, 2)], {})


@pytest.mark.parametrize("n", [1, 10, 50, 300])
def test_zero_of_n_is_bounded_in_closed_form(n):
    sure = negative(arm(0, n), arm(1000, 1000))
    assert sure.observed == pytest.approx(1 - 0.05 ** (1 / n), abs=1e-12)
    assert sure.bound == min(1.0, sure.observed / wilson(1000, 1000).low)


@pytest.mark.parametrize("truth", [0.01, 0.05, 0.2])
def test_the_observed_bound_errs_at_most_one_time_in_twenty(truth):
    from scipy.stats import binom

    wrong = [k for k in range(61) if negative(arm(k, 60)).observed < truth]
    assert binom.pmf(wrong, 60, truth).sum() <= 0.05


def test_a_negative_without_a_positive_control_says_nothing():
    blind = negative(arm(0, 50))
    assert (blind.sensitivity, blind.bound, blind.informative) == (0.0, 1.0, False)
    assert blind.words == "uninformative (no positive control)"
    unseeing = negative(arm(0, 50), arm(0, 20))
    assert unseeing.words == "uninformative (the positive control found nothing)"
    assert not unseeing.informative
    weak = negative(arm(0, 10), arm(1, 10))
    assert not weak.informative
    assert "too weak" in weak.words
    dead = negative(arm(0, 10), arm(0, 10))
    assert not dead.informative
    good = negative(arm(0, 50), arm(40, 50))
    assert good.words.startswith("at most")
    assert good.bound == pytest.approx(good.observed / wilson(40, 50).low)


def test_a_trend_needs_doses():
    with pytest.raises(BadInput, match="dose of every arm"):
        trend([arm(1, 2), arm(1, 2)])
