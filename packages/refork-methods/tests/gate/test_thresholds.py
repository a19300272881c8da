from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gate.gate_problems import IMPERFECT, NEAR_ORACLE, beliefs, chances
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices, rational
from refork_methods.gate.thresholds import critic_niche, critic_worth, ship_line, verify_line
from refork_testbed.trials.gate_exact import solve_exact

NEVER = Kernel(0.0, 0.0)


def test_verifying_pays_above_price_over_reward():
    assert verify_line(Prices(100, 30)) == 0.3
    assert verify_line(Prices(0, 30)) == math.inf
    assert verify_line(Prices(0, 0)) == 0.0


@pytest.mark.parametrize("critic", [*IMPERFECT[1:], *NEAR_ORACLE[1:], Critic("upside down", 0.2, 0.7, 1)])
def test_the_niche_is_where_the_exact_solution_asks(critic):
    prices = Prices(100, 30)
    niche = critic_niche(critic, prices)
    assert niche.exists
    solution = solve_exact(CriticModel(0.5, (critic,), NEVER), prices, 1)
    for b in (niche.low + 1e-9, (niche.low + niche.high) / 2, niche.high - 1e-9):
        assert solution.best(rational(b), frozenset(), 0) == critic.name
    assert solution.best(rational(niche.low - 1e-9), frozenset(), 0) == "stop"
    assert solution.best(rational(niche.high + 1e-9), frozenset(), 0) == "verify"


def test_the_closed_forms():
    niche = critic_niche(Critic("test", 0.9, 0.45, 2), Prices(100, 30))
    assert niche.low == pytest.approx((2 + 0.45 * 30) / (0.9 * 100 - 0.45 * 30))
    assert niche.high == pytest.approx((0.55 * 30 - 2) / (0.1 * 100 + 0.45 * 30))
    assert critic_niche(Critic("test", 0.9, 0.45, 40), Prices(100, 30)).exists is False


@given(beliefs, chances, st.integers(1, 40), st.integers(0, 80))
def test_a_critic_without_signal_is_worth_minus_its_price(belief, rate, price, verify):
    critic, prices = Critic("none", rate, rate, price), Prices(100, verify)
    assert critic_worth(critic, prices, belief) == pytest.approx(-price, abs=1e-9)
    assert not critic_niche(critic, prices).exists


@given(chances, chances, st.integers(0, 20), st.integers(1, 80), beliefs)
def test_worth_is_positive_exactly_in_the_niche(right, wrong, price, verify, belief):
    critic, prices = Critic("one", right, wrong, price), Prices(100, verify)
    niche, worth = critic_niche(critic, prices), critic_worth(critic, prices, belief)
    inside = niche.exists and niche.low + 1e-9 < belief < niche.high - 1e-9
    outside = not niche.exists or not niche.low - 1e-9 <= belief <= niche.high + 1e-9
    assert not inside or worth > 0
    assert not outside or worth <= 1e-9


def test_shipping_beats_verifying_where_the_loss_is_small():
    assert ship_line(Prices(100, 30)) is None
    assert ship_line(Prices(100, 30, ship_loss=120)) == pytest.approx(0.75)
    assert ship_line(Prices(100, 30, ship_loss=10)) == pytest.approx(-2.0)
    assert ship_line(Prices(100, 30, ship_loss=0)) == -math.inf
    assert ship_line(Prices(100, 0, ship_loss=0)) == 0.0
    assert ship_line(Prices(100, 30, ship_loss=90), again=30) == pytest.approx(0.75)


@pytest.mark.parametrize(("belief", "action"), [(0.74, "verify"), (0.76, "ship")])
def test_the_ship_line_is_what_the_exact_solution_draws(belief, action):
    solution = solve_exact(CriticModel(0.5, (), NEVER), Prices(100, 30, ship_loss=120), 1)
    assert solution.best(rational(belief), frozenset(), 0) == action
