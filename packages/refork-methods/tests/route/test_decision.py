from __future__ import annotations

import json
import math

import numpy as np
import pytest

from refork.errors import BadInput, Mismatch
from refork_methods.route.decision import Decision, DecisionLog, decide
from refork_methods.route.pool import WorkerPool

POOL = WorkerPool.of("a", "b", "c")
P = np.array([0.5, 0.3, 0.2])
REWARDS, PRICES = np.array([0.9, 0.5, 0.4]), np.array([0.04, 0.02, np.nan])


def test_the_likeliest_is_chosen_and_the_reason_has_the_numbers():
    made = decide("q", P, POOL, expected=REWARDS, prices=PRICES)
    assert (made.chosen, made.runner_up) == ("a", "b")
    assert made.margin == pytest.approx(0.2)
    assert made.price == 0.04
    # 0.4 more reward for 0.02 more money: worth it where a reward is worth more than 0.05.
    assert made.pays_above == pytest.approx(0.05)
    for words in ("a with probability 0.500, 0.200 ahead of b (0.300)", "reward 0.9 against 0.5",
                  "0.04 against 0.02", "pays above a worth of 0.05", "price unknown: c"):  # fmt: skip
        assert words in made.reason


def test_ties_go_to_the_first():
    assert decide("q", np.ones(3), POOL).chosen == "a"


def test_an_opted_out_worker_is_never_chosen_and_named():
    made = decide("q", P, POOL.without("a"), expected=REWARDS, prices=PRICES)
    assert (made.chosen, made.runner_up) == ("b", "c")
    np.testing.assert_allclose(made.probabilities, [0, 0.6, 0.4])
    assert "opted out: a" in made.reason
    assert made.pays_above is None  # c's price is unknown
    assert "against unknown" in made.reason
    only = decide("q", P, POOL.without("a", "b"))
    assert (only.chosen, only.runner_up, only.margin) == ("c", None, 1.0)
    assert only.reason == "c with probability 1.000; opted out: a, b"


def test_net_value_decides_where_money_counts_and_unknown_is_not_free():
    # Net: a 0.9 v - 0.04, b 0.5 v - 0.02: equal at v = 0.05.
    assert decide("q", P, POOL, expected=REWARDS, prices=PRICES, value=0.06).chosen == "a"
    made = decide("q", P, POOL, expected=REWARDS, prices=PRICES, value=0.04)
    assert (made.chosen, made.runner_up) == ("b", "a")
    assert made.margin == pytest.approx(-0.2)
    assert "behind a" in made.reason
    assert made.pays_above == 0.0  # b is the cheaper one
    best = np.array([0.1, 0.1, 0.9])
    assert decide("q", P, POOL, expected=best, prices=PRICES, value=1.0).chosen != "c"
    dear = decide("q", P, POOL, expected=np.array([0.1, 0.5, 0.4]), prices=PRICES)
    assert dear.pays_above == math.inf
    assert "does not pay at any worth" in dear.reason


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"value": 1.0}, "needs expected rewards and prices"),
        ({"expected": REWARDS, "prices": PRICES, "value": 0.0}, "must be positive"),
        ({"expected": REWARDS, "prices": np.full(3, np.nan), "value": 1.0}, "no open worker has both"),
        ({"expected": REWARDS[:2]}, "entries for 3 workers"),
        ({"prices": np.array([0, np.inf, 1])}, "infinite"),
    ],
)
def test_bad_columns_are_refused(more, why):
    with pytest.raises(BadInput, match=why):
        decide("q", P, POOL, **more)


def test_json_and_back():
    made = decide("q", P, POOL.without("c"), expected=REWARDS, prices=PRICES, value=2.0)
    told = json.loads(json.dumps(made.to_json()))
    assert Decision.from_json(told) == made
    assert told["reason"] == made.reason
    for broken in ({}, told | {"chosen": "z"}, told | {"probabilities": [1.0]}, told | {"runner_up": "z"}):
        with pytest.raises(BadInput, match="no decision"):
            Decision.from_json(broken)


def test_the_log_keeps_decisions_in_order_and_notices_changes(tmp_path):
    file = tmp_path / "log" / "decisions.jsonl"
    log = DecisionLog(file)
    for number in range(3):
        log.append(decide(f"q{number}", P, POOL), money=None if number else 0.5, seconds=0.1, error=None)
    again = list(DecisionLog(file))
    assert [made.query for made, _ in again] == ["q0", "q1", "q2"]
    assert [call["money"] for _, call in again] == [0.5, None, None]
    assert len(DecisionLog(file)) == 3
    DecisionLog(file).append(decide("q3", P, POOL))
    assert len(DecisionLog(file)) == 4
    file.write_text(file.read_text().replace("q1", "q9"))
    with pytest.raises(Mismatch, match="changed"):
        DecisionLog(file)
