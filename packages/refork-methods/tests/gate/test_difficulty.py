"""Classes of difficulty: the fit, the plan that carries the belief about them, what it promises and earns."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from gate.gate_problems import HARD_AND_EASY, mixed
from refork.errors import BadInput, CannotDo
from refork_methods.gate import (
    BayesController,
    Critic,
    CriticModel,
    Kernel,
    Prices,
    read_policy,
    write_policy,
)
from refork_methods.gate.answers import setting, state_from
from refork_methods.gate.difficulty import choose_classes, count_trials, fit_classes, log_likelihood
from refork_methods.gate.evaluate import promised
from refork_methods.gate.fit import beliefs, count_steps, fit, fit_critics
from refork_methods.gate.model import parameters, varied
from refork_methods.gate.planted import planted_records
from refork_methods.gate.policy import at_belief, fresh, observed, regenerated, rejected
from refork_methods.gate.records import Record
from refork_methods.gate.replay import replay
from refork_methods.gate.rules import every_rule
from refork_methods.gate.solve import in_floats, solve_grid

PRICES = Prices(100, 45, 5)
#: Two classes that are one: everything must be as without classes.
TWINS = mixed((0.6, 0.6), (0.3, 0.7))


def steps(share=0.5):
    """Refinements instead of draws: an easy class that mends, a hard one that does not."""
    critics = (Critic("test", 0.9, 0.45, 2, ((0.95, 0.3), (0.8, 0.6))),)
    kernel = Kernel(0.3, 0.1, ((0.6, 0.05), (0.1, 0.3)))
    return CriticModel(0.5, critics, kernel, {}, ((share, 0.7), (1 - share, 0.3)))


@pytest.mark.parametrize("verify", ["terminal", "retry"])
@pytest.mark.parametrize("loss", [None, 60])
def test_two_classes_that_are_one_are_planned_as_one(verify, loss):
    prices = replace(PRICES, ship_loss=loss)
    grid = solve_grid(TWINS.alike, prices, 3, verify)
    plan = BayesController(TWINS, prices, 3, verify)
    assert plan.value()[0] == pytest.approx(grid.value()[0], abs=1e-9)
    q = plan.act(plan.start()).q
    assert q == pytest.approx({name: low for name, (low, _) in grid.q(0.6, frozenset(), 0).items()})
    greedy = [BayesController(m, prices, 3, verify, "greedy") for m in (TWINS, TWINS.alike)]
    assert greedy[0].act(plan.start()).q == pytest.approx(greedy[1].act(greedy[1].start()).q)


@pytest.mark.parametrize("model", [HARD_AND_EASY, steps(), steps(0.2)])
@pytest.mark.parametrize("verify", ["terminal", "retry"])
def test_a_plan_earns_what_it_promises_and_no_rule_earns_more(model, verify):
    plan = BayesController(model, PRICES, 3, verify)
    value = plan.value()[0]
    assert promised(plan, model, PRICES, 3, verify) == pytest.approx(value, abs=1e-9)
    rules = [promised(rule, model, PRICES, 3, verify) for rule in every_rule(model, 3).values()]
    assert max(rules) <= value + 1e-9
    pooled = BayesController(model.alike, PRICES, 3, verify)
    assert promised(pooled, model, PRICES, 3, verify) <= value + 1e-9


def test_instances_alike_promise_what_hard_and_easy_ones_do_not_pay():
    pooled = BayesController(HARD_AND_EASY.alike, PRICES, 3, "retry")
    known = BayesController(HARD_AND_EASY, PRICES, 3, "retry")
    earned = promised(pooled, HARD_AND_EASY, PRICES, 3, "retry")
    assert earned < 0 < known.value()[0] < pooled.value()[0] - 5


def test_value_by_hand_of_one_critic_and_two_candidates():
    """Easy tasks are always mended, hard ones never; a pass is sure. Verify at 40, draw at 10, test at 0."""
    model = CriticModel(
        0.5, (Critic("test", 1.0, 0.5, 0, ((1.0, 0.5), (1.0, 0.5))),),
        Kernel(0.5, 0.5, ((1.0, 0.0), (0.0, 1.0))), {}, ((0.5, 1.0), (0.5, 0.0)),
    )  # fmt: skip
    # A pass leaves 2 of 3 right: verify earns 2/3 * 100 - 40. A fail means a hard task: stop.
    best = Fraction(3, 4) * (Fraction(2, 3) * 100 - 40)
    assert BayesController(model, Prices(100, 40, 10), 2).value()[0] == pytest.approx(float(best))
    blind = BayesController(model.alike, Prices(100, 40, 10), 2)
    state = blind.update(blind.start(), "test", passed=False)
    assert blind.act(state).action == "generate"  # without classes the next draw is as good as any
    plan = BayesController(model, Prices(100, 40, 10), 2)
    assert plan.act(plan.update(plan.start(), "test", passed=False)).action == "stop"


def test_the_belief_moves_by_class_and_in_any_order():
    state = fresh(HARD_AND_EASY)
    test, review = HARD_AND_EASY.critics
    one = observed(observed(state, test, True), review, False)
    other = observed(observed(state, review, False), test, True)
    assert np.allclose(one.hidden, other.hidden)
    assert sum(w + r for w, r in one.hidden) == pytest.approx(1)
    refused = rejected(state)
    assert refused.belief == 0
    easy, hard = (w + r for w, r in refused.hidden)
    assert (easy, hard) == (pytest.approx(0.1), pytest.approx(0.9))
    assert regenerated(refused, HARD_AND_EASY.kernel).belief == pytest.approx(0.1 * 0.9 + 0.9 * 0.1)
    moved = at_belief(state, 0.9)
    assert moved.belief == pytest.approx(0.9)
    assert moved.hidden[0][1] / moved.hidden[1][1] == pytest.approx(9)
    sure = at_belief(at_belief(state, 1.0), 1.0)
    assert rejected(sure).belief == 0
    assert sum(w for w, _ in rejected(sure).hidden) == pytest.approx(1)


def test_the_fit_finds_the_classes_and_the_number_that_tells_most():
    records = planted_records(HARD_AND_EASY, 200, draws=3, steps=1, seed=2)
    model = fit_critics(records, {"test": 2, "review": 5}, classes=2)
    (easy, high), (hard, low) = model.classes
    assert easy + hard == pytest.approx(1)
    assert easy == pytest.approx(0.5, abs=0.12)  # three standard errors of a share of 200 are .106
    assert (high, low) == (pytest.approx(0.9, abs=0.1), pytest.approx(0.1, abs=0.1))
    assert model.kernel.classes == tuple((p, 1 - p) for _, p in model.classes)
    assert choose_classes(records) == 2
    assert choose_classes(planted_records(TWINS, 100, draws=3, steps=1, seed=2)) == 1
    assert fit_critics(records, {"test": 2, "review": 5}) == model.alike


def test_one_class_is_the_fit_without_and_em_climbs():
    records = planted_records(steps(), 80, steps=3, seed=4, failed=0.1)
    trials = count_trials(records, ("test",))
    pooled = fit_critics(records, {"test": 2})
    one = fit_classes(trials, 1)
    assert one.shares.tolist() == [1.0]
    counted = count_steps(records)
    assert trials.trials.sum(axis=0)[1:3].tolist() == [counted.wrong, counted.right]
    critic = pooled.critics[0]
    wanted = [pooled.start, pooled.kernel.fix.mean, pooled.kernel.breaks.mean, critic.right, critic.wrong]
    assert one.chances[0].tolist() == pytest.approx(wanted)
    two = fit_classes(trials, 2)
    assert log_likelihood(two, trials).sum() > log_likelihood(one, trials).sum()
    with pytest.raises(BadInput, match="0 classes"):
        fit_classes(trials, 0)
    with pytest.raises(BadInput, match="81 classes"):
        fit(records, {"test": 2}, classes=81)


def test_a_replay_and_beliefs_follow_the_classes():
    fitted_on, held = (
        planted_records(HARD_AND_EASY, 120, draws=3, steps=1, seed=s, prefix=f"{s}-") for s in (7, 8)
    )
    model = fit_critics(fitted_on, {"test": 2, "review": 5}, classes=2)
    plan = BayesController(model, PRICES, 3, "retry")
    classed = replay(plan, held, model, PRICES, verify="retry")
    blind = BayesController(model.alike, PRICES, 3, "retry")
    pooled = replay(blind, held, model, PRICES, verify="retry")
    assert abs(classed.mean().estimate - plan.value()[0]) < 3 * classed.error
    assert classed.mean().estimate > pooled.mean().estimate
    assert pooled.mean().estimate < blind.value()[0] - 3 * pooled.error
    chain = [Record("x", "0", False, {"test": False}, step=s) for s in range(2)]
    found = beliefs(steps(), chain)
    by_hand = regenerated(observed(fresh(steps()), steps().critics[0], False), steps().kernel)
    assert found["x", "0", 1] == observed(by_hand, steps().critics[0], False).belief


def test_a_policy_file_holds_its_classes_and_one_without_is_as_before(tmp_path):
    write_policy(tmp_path / "two.json", HARD_AND_EASY, PRICES)
    assert read_policy(tmp_path / "two.json") == (HARD_AND_EASY, PRICES)
    write_policy(tmp_path / "one.json", HARD_AND_EASY.alike, PRICES)
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    assert (one["version"], two["version"]) == (1, 2)
    assert "classes" not in {*one, *one["kernel"], *one["critics"][0]}
    assert read_policy(tmp_path / "one.json")[0] == HARD_AND_EASY.alike


def test_what_classes_refuse(tmp_path):
    test = Critic("test", 0.9, 0.4, 1, ((0.9, 0.4),))
    with pytest.raises(BadInput, match="different numbers of classes"):
        CriticModel(0.5, (test,), Kernel(0.5, 0.5), {}, ((1.0, 0.5),))
    with pytest.raises(BadInput, match="not 1 together"):
        CriticModel(0.5, (), Kernel(0.5, 0.5, ((0.5, 0.5),)), {}, ((0.9, 0.5),))
    with pytest.raises(BadInput, match=r"chances lie in \[0, 1\]"):
        Critic("test", 0.9, 0.4, 1, ((1.2, 0.4),))
    with pytest.raises(BadInput, match="leave lookahead out"):
        BayesController(HARD_AND_EASY, PRICES, lookahead=1)
    with pytest.raises(CannotDo, match="too many to plan with classes"):
        BayesController(HARD_AND_EASY, PRICES, 9, "retry")
    with pytest.raises(BadInput, match="another number in every class"):
        varied(HARD_AND_EASY, PRICES, "prior", 0.5)
    assert parameters(HARD_AND_EASY, PRICES) == ["price:test", "price:review", "reward", "verify", "generate"]
    assert varied(HARD_AND_EASY, PRICES, "price:test", 3)[0].critic("test").price == 3
    plan = BayesController(HARD_AND_EASY, PRICES)
    with pytest.raises(BadInput, match="says nothing of the difficulty"):
        plan.act(fresh(HARD_AND_EASY.alike))
    write_policy(tmp_path / "two.json", HARD_AND_EASY, PRICES)
    with pytest.raises(BadInput, match="numbers of its own"):
        setting(tmp_path / "two.json", prior=0.4)
    state = state_from(HARD_AND_EASY, ["test=fail"], candidate=1)
    assert state.belief < 0.5
    assert len(state.hidden) == 2


def test_without_classes_nothing_changed():
    problem = in_floats(HARD_AND_EASY.alike, PRICES, 3, "retry")
    plan = BayesController(HARD_AND_EASY.alike, PRICES, 3, "retry")
    assert promised(plan, HARD_AND_EASY.alike, PRICES, 3, "retry") == pytest.approx(plan.value()[0])
    assert problem.prior == 0.5
