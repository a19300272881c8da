import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo
from refork_methods.speculate.schedule import (
    PrefixScheduler,
    early_stop,
    global_search,
    path,
    ranked,
    survival_of,
    throughput,
    top_k,
)
from refork_methods.speculate.step_cost import StepCost

RNG = np.random.default_rng(0)


def exhaustive(survival, cost):
    """The best lengths of all (g + 1)^R, the first of equals."""
    requests, block = survival.shape
    choices = map(np.array, itertools.product(range(block + 1), repeat=requests))
    return max(choices, key=lambda lengths: throughput(lengths, survival, cost))


def smooth(most, knee):
    """Seconds max(1, B / knee) as a table."""
    return StepCost.of({b: max(1.0, b / knee) for b in range(1, most + 1)})


@settings(max_examples=40)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1.0, 2.5, 4.0, 7.0]),
)
def test_it_is_optimal_where_theta_is_unimodal(requests, block, seed, knee):
    """Concave gains over convex costs: one peak, so stopping early is stopping at the best of all lengths."""
    rng = np.random.default_rng(seed)
    survival = survival_of(rng.beta(2, 1, (requests, block)))
    cost = smooth(requests * (1 + block), knee)
    mine, best = early_stop(survival, cost), exhaustive(survival, cost)
    assert throughput(mine, survival, cost) == pytest.approx(throughput(best, survival, cost), rel=1e-12)
    whole = global_search(survival, cost)
    assert throughput(whole, survival, cost) == pytest.approx(throughput(best, survival, cost), rel=1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_a_global_search_is_optimal_on_any_table(seed):
    rng = np.random.default_rng(seed)
    survival = survival_of(rng.beta(1, 1, (3, 2)))
    cost = StepCost.of(dict(enumerate(np.cumsum(rng.exponential(size=9) + 0.01).tolist(), 1)))
    best = throughput(exhaustive(survival, cost), survival, cost)
    assert throughput(global_search(survival, cost), survival, cost) == pytest.approx(best, rel=1e-12)
    assert throughput(early_stop(survival, cost), survival, cost) <= best * (1 + 1e-12)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_ties_never_changes_theta(seed):
    """Requests change places, and many survivals are equal: the admitted sum is the same."""
    rng = np.random.default_rng(seed)
    survival = survival_of(rng.choice([0.5, 1.0], (5, 3)))
    cost = smooth(20, 6.0)
    turned = rng.permutation(5)
    first = throughput(early_stop(survival, cost), survival, cost)
    second = throughput(early_stop(survival[turned], cost), survival[turned], cost)
    assert first == pytest.approx(second, rel=1e-12)


def test_certain_drafts_are_admitted_in_their_order():
    """Confidences of 1 tie along the block; the second draft must not come before the first."""
    survival = np.ones((2, 3))
    who, values = ranked(survival)
    assert who.tolist() == [0, 1, 0, 1, 0, 1]
    assert values.tolist() == [1.0] * 6
    assert top_k(survival, 3).tolist() == [2, 1]
    assert early_stop(survival, smooth(8, 8.0)).tolist() == [3, 3]


def test_theta_along_the_path_is_that_of_the_lengths():
    survival = survival_of(RNG.beta(3, 1, (4, 3)))
    cost = smooth(16, 5.0)
    _, values = ranked(survival)
    along = path(values, 4, cost)
    for budget in range(13):
        assert throughput(top_k(survival, budget), survival, cost) == pytest.approx(along[budget])


def test_it_stops_at_the_first_fall_and_the_search_looks_on():
    """The published table: a dip that the search looks past and Algorithm 1 does not."""
    cost = StepCost.of({1: 1.0, 2: 2.0, 3: 1 / 0.45})
    survival = np.array([[0.8, 0.72]])
    assert early_stop(survival, cost).tolist() == [0]
    assert global_search(survival, cost).tolist() == [2]
    theta = path(ranked(survival)[1], 1, cost)
    assert theta == pytest.approx([1.0, 0.9, 1.134])


def test_impossible_drafts_are_never_admitted():
    assert early_stop(np.array([[0.0, 0.0], [1.0, 0.0]]), smooth(6, 6.0)).tolist() == [0, 1]


def test_the_draft_is_paid_for():
    """A dear draft is a reason to verify more of it, since it is spent."""
    verify = {b: 1.0 + 0.2 * b for b in range(1, 9)}
    survival = survival_of(np.full((2, 3), 0.55))
    free = early_stop(survival, StepCost.of(verify))
    dear = early_stop(survival, StepCost.of(verify, {1: 5.0, 2: 5.0}))
    assert dear.sum() > free.sum()


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_stale_budget_comes_from_the_past_and_is_spent_on_the_present(staleness):
    cost = StepCost.of({b: max(1.0, b / 6.0) for b in range(1, 17)})
    scheduler = PrefixScheduler(cost, "stale_topk", staleness=staleness)
    rows = [survival_of(RNG.beta(3, 1, (4, 3))) for _ in range(6)]
    for step, survival in enumerate(rows):
        lengths = scheduler.plan(survival)
        if step < staleness:
            assert lengths.tolist() == early_stop(survival, cost).tolist()
        else:
            budget = int(global_search(rows[step - staleness], cost).sum())
            assert lengths.tolist() == top_k(survival, budget).tolist()


def test_vllms_rule_verifies_all_before_it_has_a_past():
    scheduler = PrefixScheduler(smooth(16, 2.0), "vllm", staleness=2)
    assert scheduler.staleness == 1
    survival = survival_of(RNG.beta(3, 1, (4, 3)))
    assert scheduler.plan(survival).tolist() == [3] * 4
    assert scheduler.plan(survival).sum() == global_search(survival, smooth(16, 2.0)).sum()


def test_a_stale_budget_follows_the_number_of_requests():
    scheduler = PrefixScheduler(smooth(64, 1000.0), "stale_topk")
    scheduler.plan(survival_of(np.full((2, 3), 0.9)))
    assert scheduler.plan(survival_of(np.full((8, 3), 0.9))).sum() == 24
    assert scheduler.plan(survival_of(np.full((1, 3), 0.9))).sum() == 3


def test_a_past_with_less_left_to_say_than_now_sets_no_budget():
    """The last step of an answer of which two tokens were left says nothing of eleven places."""
    cost = smooth(64, 1000.0)
    scheduler = PrefixScheduler(cost, "stale_topk")
    scheduler.plan(survival_of(np.full((1, 2), 0.9)))
    fresh = survival_of(np.full((4, 11), 0.9))
    assert scheduler.plan(fresh).tolist() == early_stop(fresh, cost).tolist()
    # The other way round it does: of what is left, the budget of before.
    assert scheduler.plan(survival_of(np.full((4, 2), 0.9))).tolist() == [2] * 4


def test_limits_are_kept():
    survival = np.ones((3, 4))
    limits = np.array([0, 2, 9])
    for mode in ("early_stop", "stale_topk", "context_only", "vllm"):
        assert PrefixScheduler(smooth(15, 99.0), mode).plan(survival, limits).tolist() == [0, 2, 4]
    assert PrefixScheduler(None, "fixed", length=3).plan(survival, limits).tolist() == [0, 2, 3]
    cut = PrefixScheduler(None, "static_threshold", threshold=0.5)
    assert cut.plan(survival, limits).tolist() == [0, 2, 4]
    assert PrefixScheduler(None, "top_k", budget=3).plan(survival, limits).tolist() == [0, 2, 1]
    with pytest.raises(BadInput, match="2 limits for 3"):
        cut.plan(survival, limits[:2])


def test_static_rules():
    survival = np.array([[0.9, 0.5, 0.1], [0.4, 0.4, 0.4]])
    assert PrefixScheduler(None, "static_threshold", threshold=0.5).plan(survival).tolist() == [2, 0]
    assert PrefixScheduler(None, "fixed", length=2).plan(survival).tolist() == [2, 2]
    assert PrefixScheduler(None, "fixed", length=9).plan(survival).tolist() == [3, 3]


def test_nobody_and_nothing():
    scheduler = PrefixScheduler(smooth(8, 4.0))
    assert scheduler.plan(np.zeros((0, 3))).tolist() == []
    assert scheduler.plan(np.zeros((2, 0))).tolist() == [0, 0]
    assert not scheduler.drafts(0)


@pytest.mark.parametrize("bad", [np.nan, -0.1, 1.1])
def test_confidences_outside_their_range_are_refused(bad):
    values = np.array([[0.9, bad]])
    with pytest.raises(BadInput, match=r"outside \[0, 1\]"):
        survival_of(values)
    with pytest.raises(BadInput, match=r"outside \[0, 1\]"):
        PrefixScheduler(smooth(4, 2.0)).plan(values)


def test_conditional_chances_in_place_of_survivals_are_refused():
    with pytest.raises(BadInput, match="rises"):
        PrefixScheduler(smooth(4, 2.0)).plan(np.array([[0.5, 0.9]]))


def test_steps_outside_the_table_are_refused_or_capped():
    survival = survival_of(np.full((4, 3), 0.9))
    short = StepCost.of(dict.fromkeys(range(1, 9), 1.0))
    with pytest.raises(BadInput, match="4 to 16 tokens"):
        PrefixScheduler(short).plan(survival)
    capped = PrefixScheduler(short, beyond="cap")
    assert capped.plan(survival).sum() == 4
    assert capped.plan(np.ones((9, 3))).tolist() == [0] * 9
    assert not capped.drafts(9)
    with pytest.raises(BadInput, match="9 tokens in a pass"):
        PrefixScheduler(short).drafts(9, np.ones(3))
    narrow = StepCost.of(dict.fromkeys(range(4, 65), 1.0), {4: 1.0, 8: 1.0})
    with pytest.raises(BadInput, match="2 to 8 tokens"):
        PrefixScheduler(narrow).plan(np.ones((2, 3)))
    assert PrefixScheduler(narrow, beyond="cap").plan(np.ones((2, 3))).tolist() == [0, 0]
    assert not PrefixScheduler(narrow, beyond="cap").drafts(9)


def test_whether_to_draft_is_decided_from_the_past_and_the_costs():
    cheap = StepCost.of(dict.fromkeys(range(1, 33), 1.0), {1: 0.1, 2: 0.1, 4: 0.1})
    dear = StepCost.of(dict.fromkeys(range(1, 33), 1.0), {1: 3.0, 2: 3.0, 4: 3.0})
    good, poor = np.array([0.9, 0.8, 0.7]), np.array([0.05, 0.0, 0.0])
    assert PrefixScheduler(cheap).drafts(4, good)
    assert not PrefixScheduler(cheap).drafts(4, poor)
    assert not PrefixScheduler(dear).drafts(4, good)
    assert PrefixScheduler(dear).drafts(4), "without a past there is nothing to decide by"
    scheduler = PrefixScheduler(cheap)
    scheduler.plan(np.tile(poor, (4, 1)))
    assert not scheduler.drafts(4)
    scheduler.plan(np.tile(good, (4, 1)))
    assert scheduler.drafts(4)
    assert PrefixScheduler(None, "fixed", length=2).drafts(4)


def test_after_many_plain_steps_it_looks_again():
    steep = StepCost.of(dict.fromkeys(range(1, 33), 1.0), {1: 2.0, 2: 2.0})
    scheduler = PrefixScheduler(steep, retry=3)
    scheduler.plan(np.full((2, 3), 0.1))
    assert [scheduler.drafts(2) for _ in range(8)] == [False, False, False, True] * 2


def test_where_not_even_kept_drafts_would_pay_nothing_is_tried():
    dear = StepCost.of(dict.fromkeys(range(1, 33), 1.0), {1: 9.0, 2: 9.0})
    scheduler = PrefixScheduler(dear, retry=3)
    scheduler.plan(np.full((2, 3), 0.1))
    assert not any(scheduler.drafts(2) for _ in range(8))


def test_a_search_on_confidences_that_read_drafts_is_refused():
    with pytest.raises(CannotDo, match="changes the output's distribution"):
        PrefixScheduler(smooth(8, 4.0), "context_only").check_head(True)
    PrefixScheduler(smooth(8, 4.0), "context_only").check_head(False)
    PrefixScheduler(smooth(8, 4.0), "early_stop").check_head(True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "best"}, "unknown schedule"),
        ({"mode": "static_threshold"}, "threshold"),
        ({"mode": "static_threshold", "threshold": 1.5}, "threshold"),
        ({"mode": "fixed"}, "length"),
        ({"mode": "top_k"}, "budget"),
        ({"step_cost": None}, "needs a step-cost table"),
        ({"staleness": 0}, "at least 1"),
        ({"beyond": "guess"}, "refuse"),
    ],
)
def test_rules_that_cannot_be(options, words):
    with pytest.raises(BadInput, match=words):
        PrefixScheduler(**{"step_cost": smooth(8, 4.0)} | options)


def test_lengths_beyond_the_block_are_refused():
    with pytest.raises(BadInput, match="length from 0"):
        throughput(np.array([4]), np.ones((1, 3)), smooth(8, 4.0))


def test_a_rule_on_another_table_has_no_past():
    scheduler = PrefixScheduler(smooth(8, 4.0), "stale_topk", staleness=2, retry=5, beyond="cap")
    scheduler.plan(np.ones((2, 3)))
    other = scheduler.on(smooth(16, 4.0))
    assert (other.mode, other.staleness, other.retry, other.beyond) == ("stale_topk", 2, 5, "cap")
    assert other.drafts(2)


def test_other_requests_of_the_pass_count_in_theta():
    """Two drafted for of six: a pass may hold 8 tokens before it takes longer."""
    cost, survival = smooth(32, 8.0), survival_of(np.full((2, 3), 0.6))
    assert PrefixScheduler(cost).plan(survival).sum() == 6
    assert PrefixScheduler(cost).plan(survival, None, 4).sum() == 2
    best = path(ranked(survival)[1], 2, cost, 4)
    assert np.argmax(best) == 2
    assert best[0] == pytest.approx(6.0)
    with pytest.raises(BadInput, match="6 to 12 tokens"):
        PrefixScheduler(smooth(11, 8.0)).plan(survival, None, 4)
    assert PrefixScheduler(smooth(7, 8.0), beyond="cap").plan(survival, None, 4).sum() == 1
