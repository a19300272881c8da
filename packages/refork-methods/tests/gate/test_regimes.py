from __future__ import annotations

import json

import pytest

from gate.gate_problems import IMPERFECT, NEAR_ORACLE, model
from refork.errors import BadInput
from refork_methods.decide import BetaRate
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, parameters, present, varied
from refork_methods.gate.regimes import BAYES, compare_rules, regime_map, sensitivity
from refork_methods.gate.rules import gates


@pytest.fixture(scope="module")
def known_map():
    return regime_map(model(), Prices(), [0.3, 0.6, 0.9], [1, 30, 60, 95], verify="retry")


def test_the_gain_is_never_negative_and_every_regime_appears(known_map):
    assert all(cell.gain >= -1e-8 for row in known_map.cells for cell in row)
    winners = [[cell.winner for cell in row] for row in known_map.cells]
    assert (len(winners), len(winners[0])) == (4, 3)
    assert {name for row in winners for name in row} >= {BAYES, "stop", "always_verify"}
    assert winners[0] == ["always_verify"] * 3
    assert winners[2][1] == BAYES
    assert winners[3][0] == "stop"


def test_a_cell_is_the_comparison_at_its_place(known_map):
    cell = known_map.cells[2][1]
    alone = compare_rules(*varied(*varied(model(), Prices(), "verify", 60), "prior", 0.6), 3, "retry")
    assert cell == alone
    assert cell.value == pytest.approx(8.8, abs=1e-6)
    assert cell.over_always_verify == pytest.approx(36.8, abs=1e-6)
    assert cell.gain == pytest.approx(8.8 - 4.2125, abs=1e-3)
    assert compare_rules(model(), Prices(verify=60), 3, "retry", gates).gain == pytest.approx(8.8, abs=1e-6)
    assert json.loads(json.dumps(cell.to_json()))["winner"] == BAYES


def test_a_better_critic_is_worth_more():
    values = regime_map(model(), Prices(), [0.0, 0.3, 0.6, 0.9], [30], x="gap:test").cells[0]
    assert [cell.value for cell in values] == sorted(cell.value for cell in values)


def test_maps_of_nothing_are_refused():
    for xs, ys, names in (([], [1], {}), ([0.5], [1], {"x": "verify"}), ([0.5], [1], {"y": "luck"})):
        with pytest.raises(BadInput):
            regime_map(model(), Prices(), xs, ys, **names)
    with pytest.raises(BadInput, match="no simple rule"):
        compare_rules(model(), Prices(), rules=lambda known, horizon: {})
    with pytest.raises(BadInput, match="finite amount"):
        regime_map(model(), Prices(), [0.5], [-1])


@pytest.mark.parametrize("name", parameters(model(), Prices(ship_loss=9)))
def test_every_parameter_can_be_read_and_set(name):
    prices = Prices(ship_loss=9)
    now = present(model(), prices, name)
    other = now / 2 if now else 0.5
    assert present(*varied(model(), prices, name, other), name) == other
    assert present(*varied(model(), prices, name, now), name) == now


def test_gaps_and_fresh_draws_follow():
    test = varied(model(), Prices(), "gap:test", 0.3)[0].critic("test")
    assert (test.right, test.wrong) == (0.9, pytest.approx(0.6))
    assert varied(model(), Prices(), "gap:test", 0.95)[0].critic("test").wrong == 0
    assert present(*varied(model(), Prices(), "gap:test", 0.95), "gap:test") == 0.95
    anew = CriticModel(0.6, (), Kernel.resample(0.6))
    assert varied(anew, Prices(), "prior", 0.2)[0].kernel == Kernel.resample(0.2)
    assert varied(model(), Prices(), "prior", 0.2)[0].kernel == model().kernel
    for name in ("luck", "gap:lint", "alpha"):
        with pytest.raises(BadInput):
            varied(model(), Prices(), name, 0.5)
        with pytest.raises(BadInput):
            present(model(), Prices(), name)
    assert varied(model(), Prices(), "ship_loss", 9)[1].ship_loss == 9
    with pytest.raises(BadInput, match="no parameter 'ship_loss'"):
        present(model(), Prices(), "ship_loss")


def test_sensitivity_prices_a_mistake():
    rows = sensitivity(model(IMPERFECT[1:], 0.4), Prices(verify=45), 2, "retry")
    assert {row.parameter for row in rows} == set(parameters(model(IMPERFECT[1:]), Prices()))
    assert all(row.regret >= 0 and row.replanned >= row.rule_value - 1e-9 for row in rows)
    assert [row.regret for row in rows] == sorted((row.regret for row in rows), reverse=True)
    assert rows[0].regret > 0.5


def test_a_counted_rate_moves_to_the_ends_of_its_interval():
    rate = BetaRate(40, 50)
    known = CriticModel(rate, (Critic("test", rate, BetaRate(5, 50), 2),), Kernel(BetaRate(9, 44), 0.1))
    rows = {(row.parameter, row.other) for row in sensitivity(known, Prices(), 1)}
    interval = rate.interval()
    assert {("prior", interval.low), ("prior", interval.high), ("alpha:test", interval.low)} <= rows
    assert ("breaks", pytest.approx(0.05)) in [(name, other) for name, other in rows]
    assert NEAR_ORACLE[1].gap == pytest.approx(0.95)
