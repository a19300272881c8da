from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings

from gate.gate_problems import IMPERFECT, NEAR_ORACLE, beliefs, model, problems
from refork.errors import BadInput
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.policy import State
from refork_methods.gate.rules import every_rule
from refork_methods.gate.solve import greedy_q, in_floats
from refork_testbed.trials.gate_exact import solve_exact


@given(problems(most_critics=3))
@settings(max_examples=25)
def test_what_is_promised_is_what_enumeration_finds_and_no_rule_beats_it(problem):
    known, prices = problem
    for verify in ("terminal", "retry"):
        controller, numbers = BayesController(known, prices, 2, verify), in_floats(known, prices, 2, verify)
        low, _ = controller.value()
        assert worth(controller, numbers) == pytest.approx(low, abs=1e-8)
        assert worth(BayesController(known, prices, 2, verify, method="greedy"), numbers) <= low + 1e-8
        shorter = BayesController(known, prices, 2, verify, lookahead=1)
        assert shorter.value()[0] - 1e-8 <= worth(shorter, numbers) <= low + 1e-8
        for rule in every_rule(known, 2).values():
            assert worth(rule, numbers) <= low + 1e-8


def test_the_choice_is_the_exact_one_with_its_whole_table():
    controller = BayesController(model(prior=0.4), Prices(verify=45), 3, "retry")
    exact = solve_exact(model(prior=0.4), Prices(verify=45), 3, "retry")
    choice = controller.act(controller.start())
    assert choice.action == exact.best(Fraction(2, 5), frozenset(), 0) == "test"
    assert set(choice.q) == {"stop", "verify", "generate", "syntax", "test", "llm"}
    for action, value in exact.q(Fraction(2, 5), frozenset(), 0).items():
        assert choice.q[action] == pytest.approx(float(value), abs=1e-6)
    low, high = choice.bracket
    assert low == max(choice.q.values())
    assert low <= high + 1e-12


@pytest.mark.parametrize(
    ("state", "action", "said"),
    [
        (State(0.6), "test", "test moves the belief from 0.600 to 0.750 if it passes"),
        (State(0.95), "verify", "worth the verifier's 30"),
        (State(0.02), "generate", "a new candidate for 5 moves the belief from 0.020"),
        (State(0.02, candidate=2), "stop", "nothing is worth its price; the best of the rest"),
    ],
)
def test_every_action_comes_with_its_reason(state, action, said):
    choice = BayesController(model(), Prices(), 3, "retry").act(state)
    assert choice.action == action
    assert said in choice.reason
    assert "\n" not in choice.reason


def test_shipping_has_its_reason():
    choice = BayesController(model(), Prices(ship_loss=20), 1).act(State(0.99))
    assert choice.action == "ship"
    assert "the chance of being wrong, 0.010," in choice.reason


def test_a_verdict_counts_once():
    controller = BayesController(model(), Prices(), 3)
    seen = controller.update(controller.start(), "test", True)
    assert "test" not in controller.act(seen).q
    with pytest.raises(BadInput, match="already"):
        controller.update(seen, "test", True)
    fresh = controller.refine(seen)
    assert "test" in controller.act(fresh).q
    assert fresh.belief == pytest.approx(0.75 * 0.9 + 0.25 * 0.25)


def test_a_refused_candidate_is_never_verified_again():
    for method in ("dp", "greedy"):
        controller = BayesController(model(), Prices(verify=1), 3, "retry", method=method)
        assert controller.act(State(0.0, rejected=True)).action == "generate"
        last = controller.act(State(0.0, candidate=2, rejected=True))
        assert (last.action, set(last.q)) == ("stop", {"stop"})
        assert "refused the last candidate" in last.reason
    free = BayesController(model((), 0.0), Prices(verify=0, generate=0), 2, "retry")
    assert free.act(State(0.0, rejected=True)).action == "generate"


@given(beliefs)
def test_greedy_is_its_formula(b):
    problem = in_floats(model(), Prices(), 3, "terminal")
    q = greedy_q(problem, b, frozenset({"llm", "syntax"}), 0, fresh=0.6)
    assert q["stop"] == 0
    assert q["verify"] == pytest.approx(100 * b - 30)
    assert q["generate"] == pytest.approx(-5 + 60 - 30)
    passes, fails = 0.9 * b + 0.45 * (1 - b), 0.1 * b + 0.55 * (1 - b)
    then = [max(100 * 0.9 * b / passes - 30, 0), max(100 * 0.1 * b / fails - 30, 0)]
    assert q["test"] == pytest.approx(-2 + passes * then[0] + fails * then[1])
    assert "llm" not in q
    assert "generate" not in greedy_q(problem, b, frozenset(), 2)


def test_greedy_without_a_given_belief_uses_the_kernel_and_agrees_for_fresh_draws():
    anew = CriticModel(0.6, IMPERFECT, Kernel.resample(0.6))
    problem = in_floats(anew, Prices(), 3, "terminal")
    for b in (0.0, 0.3, 1.0):
        assert greedy_q(problem, b, frozenset(), 0) == pytest.approx(
            greedy_q(problem, b, frozenset(), 0, fresh=0.6)
        )


def test_syntax_is_never_bought():
    for critics in (NEAR_ORACLE, IMPERFECT):
        for price in (1, 15, 30, 60):
            controller = BayesController(model(critics), Prices(verify=price), 3, "retry")
            for step in range(101):
                for candidate in range(3):
                    assert controller.act(State(step / 100, candidate=candidate)).action != "syntax"


def test_states_that_do_not_fit_are_refused():
    controller = BayesController(model(), Prices(), 2)
    with pytest.raises(BadInput, match="beyond the horizon of 2"):
        controller.act(State(0.5, candidate=2))
    with pytest.raises(BadInput, match="no critic 'lint'"):
        controller.act(State(0.5, used=frozenset({"lint"})))
    with pytest.raises(BadInput, match="unknown method"):
        BayesController(model(), Prices(), method="magic")


def test_two_independent_critics_are_looked_ahead_over_together():
    # Either alone is not worth its price; passing both is.
    pair = (Critic("a", 0.99, 0.5, 6), Critic("b", 0.99, 0.5, 6))
    known = CriticModel(0.42, pair, Kernel(0.0, 0.0))
    prices = Prices(100, 52, 5)
    assert BayesController(known, prices, 1, lookahead=1).act(State(0.42)).action == "stop"
    assert BayesController(known, prices, 1, lookahead=2).act(State(0.42)).action == "a"
