"""The regime table, exactly; every rule's value by hand where that is short."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gate.gate_problems import IMPERFECT, NEAR_ORACLE, model
from refork.errors import BadInput
from refork_methods.gate import rules
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import Prices
from refork_methods.gate.policy import State
from refork_methods.gate.solve import in_rationals
from refork_testbed.trials.gate_exact import solve_exact

# critics, prior, verifier's price; planned value; best rule that judges each candidate alone, and its value;
# always verifying. Stopping is the best of those rules in the last two rows, the pipeline is next.
TABLE = [
    (NEAR_ORACLE, 0.6, 1, 72.3, "always_verify", 72.3, 72.3),
    (NEAR_ORACLE, 0.4, 15, 46.0, "gate(test)", 46.0, 30.2),
    (NEAR_ORACLE, 0.6, 30, 46.1, "gate(test)", 46.1, 23.0),
    (IMPERFECT, 0.6, 5, 65.5, "always_verify", 65.5, 65.5),
    (IMPERFECT, 0.6, 30, 35.1, "gate(test)", 33.1, 23.0),
    (IMPERFECT, 0.4, 45, 8.5, "stop", 0.0, -31.2),
    (IMPERFECT, 0.6, 60, 8.8, "stop", 0.0, -28.0),
]
# The table has one decimal, and -31.25 lies half-way between two of them.
NEAR = 0.05 + 1e-9


def _values(found, critics, prior, price):
    known = model(critics, prior)
    problem = in_rationals(known, Prices(verify=price), 3, "retry")
    return {name: worth(rule, problem) for name, rule in found(known, 3).items()}


@pytest.mark.parametrize("row", TABLE)
def test_the_regime_table(row):
    critics, prior, price, planned, best, rule, always = row
    value = solve_exact(model(critics, prior), Prices(verify=price), 3, "retry").value()
    low, high = BayesController(model(critics, prior), Prices(verify=price), 3, "retry").value()
    assert low - 1e-9 <= float(value) <= high + 1e-9
    assert high - low < 1e-6
    alone = _values(rules.gates, critics, prior, price)
    assert abs(float(value) - planned) <= NEAR
    assert max(alone, key=alone.get) == best
    assert abs(float(alone[best]) - rule) <= NEAR
    assert abs(float(value - alone[best]) - (planned - rule)) <= 2 * NEAR  # of two rounded numbers
    assert abs(float(alone["always_verify"]) - always) <= NEAR
    assert max(_values(rules.every_rule, critics, prior, price).values()) <= value


def test_where_stopping_is_best_the_pipeline_is_next_among_those_rules():
    for prior, price, pipeline in ((0.4, 45, -1.3), (0.6, 60, -0.9)):
        alone = _values(rules.gates, IMPERFECT, prior, price)
        assert sorted(alone, key=alone.get)[-2:] == ["pipeline", "stop"]
        assert abs(float(alone["pipeline"]) - pipeline) <= NEAR


def test_all_three_regimes_appear_and_a_cascade_narrows_the_last():
    gaps = []
    for critics, prior, price, *_ in TABLE:
        value = solve_exact(model(critics, prior), Prices(verify=price), 3, "retry").value()
        gaps.append(value - max(_values(rules.every_rule, critics, prior, price).values()))
    assert [gap == 0 for gap in gaps] == [True, True, True, True, False, False, False]
    assert float(gaps[-1]) == pytest.approx(8.8 - 4.2125, abs=1e-3)


def test_always_verify_by_hand():
    # 0.6 R - C, then twice a refined wrong candidate: (1/4 R - C - 5), the second with chance 3/4.
    value = _values(rules.simple_rules, IMPERFECT, 0.6, 60)["always_verify"]
    assert value == 0 + Fraction(2, 5) * (Fraction(-40) * (1 + Fraction(3, 4))) == -28


def test_rules_that_refine_unseen_by_hand():
    values = _values(rules.simple_rules, IMPERFECT, 0.4, 45)
    last = Fraction(2, 5)
    for _ in range(2):
        last = last * Fraction(9, 10) + (1 - last) / 4
    assert values["best_of_3"] == values["self_refine"] == 100 * last - 45 - 10
    assert values["stop"] == 0


def test_a_gate_walks_through_its_states():
    gate = rules.gate(model(), 2, "test")
    start = State(0.6)
    assert gate.act(start).action == "test"
    assert gate.act(gate.update(start, "test", True)).action == "verify"
    failed = gate.update(start, "test", False)
    assert gate.act(failed).action == "generate"
    fresh = gate.refine(failed)
    assert gate.act(fresh).action == "test"
    assert gate.act(gate.update(fresh, "test", False)).action == "stop"
    assert gate.act(State(0.0, rejected=True)).action == "generate"
    assert gate.act(State(0.0, candidate=1, rejected=True)).action == "stop"
    assert gate.act(failed).reason == "test failed"


def test_the_pipeline_asks_all_and_a_cascade_stops_at_the_first_fail():
    failed = State(0.5, used=frozenset({"syntax"}))
    assert rules.pipeline(model(), 3).act(failed).action == "test"
    assert rules.cascade(model(), 3, ["syntax", "test"]).act(failed).action == "generate"


def test_reflexion_verifies_the_last_in_any_case():
    rule = rules.reflexion(model(), 2, "test")
    failed = State(0.3, used=frozenset({"test"}))
    assert rule.act(failed).action == "generate"
    assert rule.act(State(0.3, failed.used, 1)).action == "verify"
    assert rule.act(State(0.7, failed.used, 0, failed.used)).action == "verify"


def test_rules_refuse_critics_and_draws_that_are_not_there():
    for build in (rules.gate, rules.reflexion):
        with pytest.raises(BadInput, match="no critic 'lint'"):
            build(model(), 3, "lint")
    with pytest.raises(BadInput, match="no critic to run"):
        rules.pipeline(model(()), 3)
    with pytest.raises(BadInput, match="best of 4"):
        rules.best_of_n(model(), 3, 4)


def test_an_action_that_is_not_open_is_refused():
    rule = rules.Rule("odd", model(), lambda state: ("ship", "because"))
    with pytest.raises(BadInput, match="'ship', which is not open"):
        worth(rule, in_rationals(model(), Prices(), 3, "retry"))
