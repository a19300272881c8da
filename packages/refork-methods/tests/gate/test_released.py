"""The release's policies as they are: each of its flaws, shown by a number."""

from __future__ import annotations

import pytest

from gate.gate_problems import IMPERFECT, NEAR_ORACLE, model
from refork.errors import BadInput
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.policy import State
from refork_methods.gate.released import ReleasedController, released_policies
from refork_methods.gate.rules import gate
from refork_methods.gate.solve import in_floats

PRICES = Prices()


def _worth(policy, known=None, prices=PRICES):
    return worth(policy, in_floats(known or model(), prices, 3, "terminal"))


def test_the_ten_policies():
    simple = {"always_verify", "best_of_3", "self_refine", "pipeline", "reflexion(test)"}
    simple |= {"gate(syntax)", "gate(test)", "gate(llm)"}
    assert set(released_policies(model(), PRICES)) == simple | {"greedy as released", "dp as released"}
    with pytest.raises(BadInput, match="no critic 'test'"):
        released_policies(model((IMPERFECT[0],)), PRICES)
    with pytest.raises(BadInput, match="at least one critic"):
        released_policies(model(), PRICES, syntax=None, test=None, reviewer=None)


def test_a_gate_on_tests_that_pays_for_syntax_looks_better_than_the_best_plan():
    known = model(NEAR_ORACLE)
    charged = _worth(released_policies(known, PRICES)["gate(test)"], known)
    planned = BayesController(known, PRICES, 3).value()[0]
    honest = _worth(gate(known, 3, "test"), known)
    assert charged > planned > honest - 1e-9
    # one unit for each of up to three tests is all that the two prices differ by
    assert 1 < charged - honest < 3


def test_a_repeated_verdict_is_counted_again():
    released = ReleasedController(model(), PRICES)
    once = released.update(State(0.6), "test", True)
    twice = released.update(once, "test", True)
    assert once.belief == pytest.approx(0.75)
    assert twice.belief > once.belief
    assert "test" in released.act(once).q


def test_repeating_costs_what_it_pretends_to_earn():
    critic = Critic("test", 0.9, 0.45, 0.5)
    known = CriticModel(0.5, (critic,), Kernel(0.05, 0.10))
    prices = Prices(100, 60, 5)
    released = released_policies(known, prices, syntax=None, reviewer=None)["dp as released"]
    assert released.act(released.update(State(0.5), "test", True)).action == "test"
    assert _worth(released, known, prices) < BayesController(known, prices, 3).value()[0] - 1


def test_greedy_keeps_its_old_belief_and_the_planner_does_not():
    failed = State(0.2, frozenset({"test"}))
    assert ReleasedController(model(), PRICES, method="greedy").refine(failed) == State(0.2, candidate=1)
    assert ReleasedController(model(), PRICES).refine(failed).belief == pytest.approx(0.2 * 0.9 + 0.8 * 0.25)


def test_as_released_is_never_better_than_the_plan_and_worse_where_it_matters():
    for critics, price in ((NEAR_ORACLE, 30), (IMPERFECT, 30), (IMPERFECT, 60)):
        known, prices = model(critics), Prices(verify=price)
        planned = BayesController(known, prices, 3).value()[0]
        found = released_policies(known, prices)
        for method in ("greedy", "dp"):
            assert _worth(found[f"{method} as released"], known, prices) <= planned + 1e-9
    assert _worth(found["dp as released"], known, prices) < planned - 1


def test_an_endless_loop_of_free_critics_is_cut():
    free = CriticModel(0.5, (Critic("test", 0.9, 0.1, 0.0),), Kernel(0.0, 1.0))
    released = ReleasedController(free, Prices(100, 99, 5))
    assert _worth(released, free, Prices(100, 99, 5)) <= 0.5
