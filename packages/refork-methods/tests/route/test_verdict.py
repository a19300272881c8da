"""A router beside the best single worker: by hand, whom it is compared with, and how often it is wrong."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork.stats import paired_difference
from refork_methods.route.verdict import against_best_single, paired_with_best, picked_by_others

NAMES = ("a", "b", "c")


def test_the_difference_is_paired_by_task_and_a_task_counts_once():
    rng = np.random.default_rng(0)
    rewards, chosen = rng.random((30, 3)), rng.integers(3, size=30)
    once = against_best_single(rewards, chosen, NAMES, np.arange(30), single=1)
    gap = paired_difference(rewards[:, 1], rewards[np.arange(30), chosen]).interval
    assert once.difference == gap
    assert once.worker == "b"
    assert once.same == (chosen == 1).mean()
    nine = np.repeat(np.arange(30), 9)
    many = against_best_single(rewards[nine], chosen[nine], NAMES, nine, single=1)
    assert many.tasks == 30
    assert (many.difference.low, many.difference.high) == pytest.approx((gap.low, gap.high))


def test_no_task_has_a_say_in_whom_it_is_compared_with():
    rng = np.random.default_rng(1)
    alone = (rng.random((40, 3)) < [0.5, 0.55, 0.5]).astype(float)
    named = picked_by_others(alone)
    for task in range(40):
        other = alone.copy()
        other[task] = 1 - other[task]
        assert picked_by_others(other)[task] == named[task]
    assert picked_by_others(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("router", "outcome", "words"),
    [(0.9, "wins", "wins against"), (0.1, "loses", "WARNING"), (0.5, "not told apart", "not told apart")],
)
def test_three_outcomes_and_their_words(router, outcome, words):
    rng = np.random.default_rng(2)
    rewards = (rng.random((200, 2)) < [0.5, 0.2]).astype(float)
    found = paired_with_best(
        (rng.random(200) < router).astype(float), rewards, "ab", np.arange(200), single=0
    )
    assert found.outcome == outcome
    assert words in found.sentence
    assert found.to_json()["outcome"] == outcome
    assert "a" in found.sentence
    assert found.same is None


def test_a_router_that_is_one_worker_is_said_to_be_it():
    rewards = np.random.default_rng(3).random((20, 2))
    found = against_best_single(rewards, np.zeros(20, dtype=int), "ab", np.arange(20), single=0)
    assert found.outcome == "not told apart"
    assert found.sentence == "the router is the best single worker a: it chooses nobody else"


def test_equal_workers_are_seldom_told_apart():
    """200 tables of 60 tasks with workers of one skill and a router that draws: 5 % err, by design.

    With the best worker picked on the same tasks a router loses more often than that. More than 22 of 200
    has a chance of 2 in 10,000 at a rate of 5 %.
    """
    honest = same = 0
    for seed in range(200):
        rng = np.random.default_rng([seed, 5])
        rewards = (rng.random((60, 8)) < 0.5).astype(float)
        chosen, names = rng.integers(8, size=60), [str(i) for i in range(8)]
        honest += against_best_single(rewards, chosen, names, np.arange(60)).outcome != "not told apart"
        best = int(rewards.mean(axis=0).argmax())
        same += against_best_single(rewards, chosen, names, np.arange(60), single=best).outcome == "loses"
    assert honest <= 22
    assert same > 22


def test_what_does_not_fit_is_refused():
    rewards = np.ones((4, 2))
    for wrong in (
        {"workers": "abc"}, {"groups": np.arange(3)}, {"single": 2}, {"groups": np.zeros(4, dtype=int)},
    ):  # fmt: skip
        with pytest.raises(BadInput):
            paired_with_best(np.ones(4), rewards, **{"workers": "ab", "groups": np.arange(4)} | wrong)
