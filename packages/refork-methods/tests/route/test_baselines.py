from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.stats import pass_at_k
from refork_methods.route.frontier import (
    best_of,
    best_single,
    by_shares,
    equal_calls,
    majority,
    one_worker,
    oracle,
    over_tasks,
    random_worker,
    split_oracle,
)
from refork_methods.route.table import Outcome, OutcomeTable

REWARDS = np.array([[[1, 1, 0], [0, 0, 0]], [[0, 0, 0], [1, 1, 1]], [[1, 1, 1], [1, 0, 0]]], dtype=float)
COST = np.broadcast_to(np.array([1.0, 3.0])[None, :, None], REWARDS.shape)
TABLE = OutcomeTable.from_arrays(REWARDS, ["a", "b"], cost=COST, latency=2 * COST)


def test_one_worker_chance_and_oracle():
    assert one_worker(TABLE, "a").quality.estimate == pytest.approx(5 / 9)
    assert one_worker(TABLE, "b").quality.estimate == pytest.approx(4 / 9)
    assert best_single(TABLE) == "a"
    assert random_worker(TABLE).quality.estimate == pytest.approx(0.5)
    assert random_worker(TABLE).cost == 2.0
    best = oracle(TABLE)
    assert best.quality.estimate == pytest.approx((2 / 3 + 1 + 1) / 3)
    assert (best.cost, best.attainable) == (pytest.approx(5 / 3), False)
    shares = by_shares(TABLE, np.array([[1, 0], [0.5, 0.5], [1, 0]]), "mixed")
    assert shares.quality.estimate == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert (shares.cost, shares.latency) == (pytest.approx(4 / 3), pytest.approx(8 / 3))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.data())
def test_votes_and_retries_are_exact_over_all_subsets(repeats, data):
    right = data.draw(st.lists(st.booleans(), min_size=repeats, max_size=repeats))
    k = data.draw(st.integers(1, repeats))
    rewards = np.array([[right, right]] * 2, dtype=float)
    table = OutcomeTable.from_arrays(rewards, ["a", "b"])
    sets = list(combinations(right, k))
    votes = np.mean([1.0 if 2 * sum(s) > k else 0.5 if 2 * sum(s) == k else 0.0 for s in sets])
    assert majority(table, "a", k).quality.estimate == pytest.approx(votes)
    best = best_of(table, "a", k).quality.estimate
    assert best == pytest.approx(np.mean([float(any(s)) for s in sets]))
    assert best == pytest.approx(pass_at_k(sum(right), repeats, k))


def test_weights_of_repeats_count_in_halves_and_leave_no_draw_of_k():
    rows = [
        Outcome(f"q{q}", w, float(k < 2), repeat=k, weight=[3.0, 1.0, 1.0, 3.0][k])
        for q in range(3) for w in "ab" for k in range(4)
    ]  # fmt: skip
    table = OutcomeTable.of(rows)
    # One half has weights 3 (right) and 1 (wrong), the other 1 and 3.
    assert split_oracle(table) == pytest.approx((3 / 4 + 1 / 4) / 2)
    assert equal_calls(table, "a", [2, 3]) == []
    for option in (majority, best_of):
        with pytest.raises(BadInput, match="unequal weights"):
            option(table, "a", 2)
    # Weights that differ between queries only say how much a query counts.
    even = OutcomeTable.of([replace(row, weight=1.0 + int(row.query[1:])) for row in rows])
    assert best_of(even, "a", 2).quality.estimate == pytest.approx(5 / 6)


def test_best_of_takes_graded_rewards_and_majority_does_not():
    table = OutcomeTable.from_arrays(np.array([[[0.1, 0.5, 0.9], [0, 0, 0]]] * 2), ["a", "b"])
    assert best_of(table, "a", 2).quality.estimate == pytest.approx(np.mean([0.5, 0.9, 0.9]))
    with pytest.raises(BadInput, match="right or wrong"):
        majority(table, "a", 3)
    assert [option.name for option in equal_calls(table, "a", [1, 2, 3, 4])] == [
        "best-of-2 of a",
        "best-of-3 of a",
    ]


def test_calls_cost_what_they_cost():
    votes, retries = majority(TABLE, "b", 3), best_of(TABLE, "b", 2)
    assert (votes.cost, votes.calls, votes.latency, votes.attainable) == (9.0, 3.0, 6.0, True)
    assert (retries.cost, retries.attainable) == (6.0, False)
    for k in (0, 4):
        with pytest.raises(BadInput, match="cannot be judged"):
            best_of(TABLE, "a", k)
        with pytest.raises(BadInput, match="cannot be judged"):
            majority(TABLE, "a", k)


def test_an_unknown_price_makes_the_cost_unknown_and_is_counted():
    cost = COST.copy()
    cost[0, 1, 0] = np.nan
    table = OutcomeTable.from_arrays(REWARDS, ["a", "b"], cost=cost)
    assert (one_worker(table, "a").cost, one_worker(table, "a").unknown) == (1.0, 0.0)
    assert one_worker(table, "b").cost is None
    assert one_worker(table, "b").unknown == pytest.approx(1 / 3)
    assert random_worker(table).cost is None
    assert random_worker(table).unknown == pytest.approx(1 / 6)
    assert majority(table, "b", 3).cost is None
    assert one_worker(table, "a").latency is None


def test_a_table_with_gaps_is_not_compared():
    rows = [Outcome("q", "a", 1.0), Outcome("q", "b", 0.0), Outcome("r", "a", 1.0)]
    with pytest.raises(BadInput, match="'r' has no outcome of worker 'b'"):
        one_worker(OutcomeTable.of(rows), "a")
    with pytest.raises(BadInput, match="one task gives no interval"):
        one_worker(OutcomeTable.of(rows[:2]), "a")
    with pytest.raises(BadInput, match="no worker 'z'"):
        one_worker(TABLE, "z")
    for bad in (np.ones((3, 2)), np.ones((2, 2)) / 2, np.full((3, 2), np.nan)):
        with pytest.raises(BadInput, match="shares"):
            by_shares(TABLE, bad, "x")


def test_turns_of_one_task_count_once():
    rows = [Outcome(f"t1#{i}/x", w, float(w == "a")) for i in range(3) for w in "ab"]
    rows += [Outcome("t2#0/x", w, 0.0) for w in "ab"]
    table = OutcomeTable.of(rows)
    assert over_tasks(table, np.array([1.0, 2, 3, 10])).tolist() == [2.0, 10.0]
    assert one_worker(table, "a").quality.estimate == 0.5  # not 0.75


def test_the_oracle_overstates_on_noise_and_the_split_one_does_not():
    # 2,000 queries, four workers that are all right half of the time: nothing can be had above 0.5.
    rng = np.random.default_rng(0)
    table = OutcomeTable.from_arrays((rng.random((2000, 4, 4)) < 0.5).astype(float), [*"abcd"])
    assert oracle(table).quality.estimate > 0.7
    # Mean of 2,000 half-sample means of two draws each way, SE below 0.009: 4 SE, once in 16,000 seeds.
    assert abs(split_oracle(table) - 0.5) < 4 * 0.009
    assert split_oracle(OutcomeTable.from_arrays(REWARDS[:, :, :1], ["a", "b"])) is None


def test_the_split_oracle_finds_what_is_there():
    rewards = np.zeros((4, 2, 3))
    rewards[:2, 0] = rewards[2:, 1] = 1
    assert split_oracle(OutcomeTable.from_arrays(rewards, ["a", "b"])) == 1.0
