from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from refork.errors import BadInput
from refork.stats import welch
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.gate import gate, people_needed, welch_from_moments, welch_power
from refork_methods.theory.metrics import Measured, Metric, measure, share_of_b
from refork_methods.theory.simulate import simulate

moments = st.tuples(st.floats(-1, 1), st.floats(0.001, 1))
#: Take-the-Best and Tallying disagree on every pair.
OPPOSED = CueExperiment((0.9, 0.8, 0.7), ((1, 0, 0),), ((0, 1, 1),))
AGREED = CueExperiment((0.9, 0.8, 0.7), ((1, 1, 1), (0, 0, 0)), ((0, 0, 0), (1, 1, 1)))


@given(moments, moments, st.integers(2, 200), st.integers(2, 200))
def test_welch_from_moments_is_scipy_s(one, other, m, n):
    found = welch_from_moments(one, other, (m, n))
    wanted = stats.ttest_ind_from_stats(
        one[0], np.sqrt(one[1]), m, other[0], np.sqrt(other[1]), n, equal_var=False
    )
    assert found.p == pytest.approx(float(wanted.pvalue), abs=1e-12)
    assert found.statistic == pytest.approx(float(wanted.statistic))


def test_welch_from_moments_is_welch_of_the_values():
    x, y = np.random.default_rng(0).normal(size=(2, 12))
    found = welch_from_moments((x.mean(), x.var(ddof=1)), (y.mean(), y.var(ddof=1)), 12)
    assert found.p == pytest.approx(welch(x, y).p)


def test_welch_at_the_edges():
    nan = float("nan")
    assert welch_from_moments((nan, 1.0), (0.0, 1.0), 25).p == 1
    assert welch_from_moments((0.0, nan), (0.0, 1.0), 25).p == 1
    assert welch_from_moments((0.5, 0.0), (0.5, 0.0), 25).p == 1
    assert welch_from_moments((0.5, 0.0), (0.6, 0.0), 25).p == 0
    with pytest.raises(BadInput):
        welch_from_moments((0.5, 0.1), (0.6, 0.1), 1)
    with pytest.raises(BadInput):
        welch_from_moments((0.5, -0.1), (0.6, 0.1), 5)


def test_power_rises_with_the_people_and_the_difference():
    """At single points the noncentral distribution of the library is not a number."""
    for gap, alpha, people in ((1.275, 0.01, 783), (2.593, 0.01, 408), (1.275, 0.01, 391)):
        assert welch_power((0.0, 1.0), (gap, 1.0), people, alpha) == pytest.approx(1.0, abs=1e-6)
    for gap in np.linspace(0.8, 2.6, 60):
        needed = people_needed((0.0, 1.0), (gap, 1.0), alpha=0.01)
        assert welch_power((0.0, 1.0), (gap, 1.0), needed, 0.01) >= 0.8
        if needed > 2:
            assert welch_power((0.0, 1.0), (gap, 1.0), needed - 1, 0.01) < 0.8
        assert needed < 50
    chances = [welch_power((0.0, 1.0), (shift, 1.0), 161, 0.01 / 12) for shift in np.linspace(0, 2, 400)]
    assert (np.diff(chances) > -1e-9).all()


def test_power_against_simulation():
    """Share of 4,000 rejections within 4 standard errors of the computed power: fails 6 times in 100,000."""
    rng, n, alpha = np.random.default_rng(1), 25, 0.01
    x, y = rng.normal(0, 1, (4000, n)), rng.normal(0.9, 1, (4000, n))
    share = float((stats.ttest_ind(x, y, axis=1, equal_var=False).pvalue < alpha).mean())
    computed = welch_power((0.0, 1.0), (0.9, 1.0), n, alpha)
    assert abs(share - computed) < 4 * np.sqrt(computed * (1 - computed) / 4000)


def test_power_at_no_difference_is_the_level_and_grows():
    assert welch_power((0.3, 1.0), (0.3, 1.0), 25, 0.01) == pytest.approx(0.01, abs=1e-9)
    powers = [welch_power((0.0, 1.0), (0.5, 1.0), n) for n in (5, 25, 100, 1000, 100_000)]
    assert powers == sorted(powers)
    assert powers[-1] == 1


def test_power_grows_with_people_at_every_level():
    """The noncentral distribution has holes in the library far out on the wrong side: they made power 0."""
    for alpha in (0.05, 0.01, 0.00083):
        powers = [welch_power((0.2, 0.1), (0.0, 0.0936), n, alpha) for n in range(2, 2000, 7)]
        assert powers == sorted(powers)
        assert powers[-1] == pytest.approx(1)
    assert people_needed((0.2, 0.1), (0.0, 0.0936), alpha=0.00083) == 88


def test_people_needed_is_the_fewest():
    needed = people_needed((0.0, 1.0), (0.5, 1.5))
    assert (
        welch_power((0.0, 1.0), (0.5, 1.5), needed) >= 0.8 > welch_power((0.0, 1.0), (0.5, 1.5), needed - 1)
    )
    assert people_needed((0.2, 1.0), (0.2, 1.0)) is None
    assert people_needed((0.0, 0.0), (1.0, 0.0)) == 2
    with pytest.raises(BadInput):
        people_needed((0.0, 1.0), (0.5, 1.0), power=1.0)


def measured(mean, variance, people=50):
    return Measured("m", mean, mean, variance, people, 0)


def test_one_value_for_everybody_is_no_difference_whatever_its_last_digit():
    for value in (0.1, 1 / 3, 0.7, 1e-9, 1e9):
        for people in range(30, 51):
            sides = [
                Measured("m", value, float(x.mean()), float(x.var()), len(x), 50 - len(x))
                for x in (np.full(50, value), np.full(people, value))
            ]
            found = gate(*sides)
            assert (found.accepted, found.p, found.power) == (False, 1.0, 0.0)
            assert welch_from_moments(*[(s.mean, s.sample_variance) for s in sides], 25).p == 1
            assert welch_power(*[(s.mean, s.sample_variance) for s in sides], 25) == 0
    assert gate(measured(0.1, 0.0), measured(0.1 + 1e-6, 0.0)).accepted


def test_the_gate_s_edge_lies_at_its_level():
    for gap in (0.05, 0.1, 0.15, 0.2, 0.3):
        one, other = measured(0.5, 0.04), measured(0.5 + gap, 0.04)
        result = gate(one, other, kept_people=25)
        p = welch_from_moments((0.5, 0.04 * 50 / 49), (0.5 + gap, 0.04 * 50 / 49), 25).p
        assert result.p == pytest.approx(p)
        assert result.accepted == (p < 0.01)


def test_fewer_people_kept_or_more_attempts_refuse_what_passed():
    one, other = measured(0.5, 0.04), measured(0.68, 0.04)
    assert gate(one, other, kept_people=25).accepted
    fewer = gate(one, other, kept_people=15)
    assert not fewer.accepted
    assert fewer.needed > 15
    assert not gate(one, other, kept_people=25, attempts=12).accepted
    assert gate(one, other, kept_people=fewer.needed).power >= 0.8


def test_a_missing_or_constant_metric_is_refused():
    missing = Measured("m", None, None, None, 0, 50)
    assert not gate(missing, measured(0.5, 0.1)).accepted
    assert gate(missing, measured(0.5, 0.1)).p is None
    assert not gate(Measured("m", 0.5, 0.5, 0.0, 1, 49), measured(0.9, 0.1)).accepted
    same = gate(measured(1.0, 0.0), measured(1.0, 0.0))
    assert not same.accepted
    assert "same for everybody" in same.reason
    with pytest.raises(BadInput):
        gate(missing, missing, attempts=0)


def test_a_metric_s_moments_by_hand():
    trials = simulate(RULES["take-the-best"], OPPOSED, 4, 0)
    each = [trials.of(person).response.mean() for person in trials.people]
    found = measure(share_of_b(), trials)
    assert found.value == pytest.approx(trials.response.mean())
    assert (found.mean, found.variance) == (pytest.approx(np.mean(each)), pytest.approx(np.var(each)))
    assert found.sample_variance == pytest.approx(np.var(each, ddof=1))
    half = Metric("half", lambda t: None if t.person[0] % 2 else float("nan"))
    assert measure(half, trials) == Measured("half", None, None, None, 0, 4)


def told_apart(one, other, design, seed):
    """Whether 50 simulated people of each pass the gate at 25, by the share of B."""
    runs = [simulate(rule, design, 50, 2 * seed + side) for side, rule in enumerate((one, other))]
    return gate(*(measure(share_of_b(), trials) for trials in runs)).accepted


def test_a_design_passes_where_theories_differ():
    pair = RULES["take-the-best"], RULES["tallying"]
    assert told_apart(*pair, OPPOSED, 0)
    assert not told_apart(*pair, AGREED, 0)


def test_equal_theories_seldom_pass():
    """50 simulated people tested at 25 are stricter than the level: an accept has chance 0.0002 or so."""
    wadd, design = RULES["wadd"], random_design(np.random.default_rng(5))
    assert sum(told_apart(wadd, wadd, design, seed) for seed in range(60)) <= 1
