import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo
from refork_methods.evolve.stringency import stringency_ratio
from refork_methods.evolve.traps import trap_set


def work(count):
    return [(f"k{i}", f"content {i}") for i in range(count)]


def test_unverified_work_is_a_trap_and_good_work_a_control():
    truth = {f"k{i}": i % 2 for i in range(0, 400, 3)}
    found = trap_set(work(400), truth, 100, seed=1)
    items = {item.artifact: item for item in (*found.train, *found.held_out)}
    assert all(item.label == truth.get(key, 0) for key, item in items.items())
    assert all(item.verified == (key in truth) for key, item in items.items())


@given(st.integers(0, 60), st.integers(0, 9), st.integers(1, 40))
def test_controls_balance_traps_within_the_cap(count, good, cap):
    truth = {f"k{i}": 1 for i in range(min(good, count))}
    found = trap_set(work(count), truth, cap, seed=3)
    for side in (found.train, found.held_out):
        controls = sum(item.is_control for item in side)
        assert len(side) <= cap
        assert controls == 0 or 2 * controls == len(side)
    assert not {i.artifact for i in found.train} & {i.artifact for i in found.held_out}


def test_one_content_counts_once_and_a_verified_copy_wins():
    found = trap_set([("a", "same"), ("b", "same"), ("c", "same")], {"b": 0}, 10, seed=0)
    items = (*found.train, *found.held_out)
    assert [(item.artifact, item.verified) for item in items] == [("b", True)]


def test_what_was_held_out_once_is_never_shown():
    early = trap_set(work(60), {}, 1000, seed=5)
    late = trap_set(reversed(work(300)), {}, 1000, seed=5)
    assert {i.artifact for i in early.held_out} <= {i.artifact for i in late.held_out}
    assert not {i.artifact for i in early.held_out} & {i.artifact for i in late.train}
    assert trap_set(work(300), {}, 1000, seed=5) == late
    # 300 fair sides: within five standard deviations of half.
    assert abs(len(late.held_out) - 150) < 44


def test_a_judge_that_refuses_at_random_gains_nothing_where_controls_balance():
    truth = {f"k{i}": i % 2 for i in range(400)}
    held = trap_set(work(400), truth, 200, seed=2).held_out
    labels = np.array([item.label for item in held])
    # Refusing all: every trap won is a control lost.
    assert (labels == 0).sum() == (labels == 1).sum()


def test_traps_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="not 0 or 1"):
        trap_set(work(1), {"k0": 2}, 10, seed=0)
    with pytest.raises(BadInput, match="cap"):
        trap_set(work(1), {}, 0, seed=0)


def test_the_ratio_of_acceptance():
    found = stringency_ratio([1, 1, 1, 0], [1, 0, 1, 0], seed=0)
    assert found.estimate == 1.5
    assert found.low < 1 < found.high
    assert found == stringency_ratio([1, 1, 1, 0], [1, 0, 1, 0], seed=0)


def test_a_ratio_has_width_even_where_all_agree():
    found = stringency_ratio(np.ones(40), np.ones(40), seed=0)
    assert found.low < 1 < found.high
    assert stringency_ratio(np.zeros(40), np.ones(40), seed=0).low == 0


@pytest.mark.parametrize(
    ("p", "q", "n"), [(0.4, 0.4, 100), (0.76, 0.4, 100), (0.2, 0.1, 150), (0.95, 0.9, 60)]
)
def test_the_interval_covers(p, q, n):
    rng = np.random.default_rng(7)
    hits = 0
    for i in range(600):
        ai, human = rng.random(n) < p, rng.random(n) < q
        hits += p / q in stringency_ratio(ai, human, seed=i, resamples=1000)
    # Nominal 0.95; 600 repetitions have a standard error of 0.009.
    assert 0.92 <= hits / 600 <= 0.99


def test_ratios_that_cannot_be():
    with pytest.raises(CannotDo, match="none of 3"):
        stringency_ratio([1], [0, 0, 0], seed=0)
    with pytest.raises(BadInput, match="0 or 1"):
        stringency_ratio([0.5], [1], seed=0)
    with pytest.raises(BadInput, match="no machine verdicts"):
        stringency_ratio([], [1], seed=0)
    with pytest.raises(BadInput, match="resamples"):
        stringency_ratio([1], [1], seed=0, resamples=5)
