from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.memory.gate import (
    expected_invocations,
    expected_never_invoked,
    expected_tools,
    gate_cost,
    offline_cost,
    rent_or_buy_theta,
    simulate_gate,
    zipf,
)

#: theta, tools, never invoked (%) of the closed form at 90 tasks over 60 families, Zipf(1).
KNOWN = [(0, 32.7, 51.0), (1, 16.0, 43.9), (2, 9.0, 34.3), (3, 5.9, 27.0), (5, 3.4, 19.2)]


@pytest.mark.parametrize(("theta", "tools", "never"), KNOWN)
def test_the_closed_forms_give_the_known_figures(theta, tools, never):
    shares = zipf(60)
    found = expected_tools(90, shares, theta)
    assert found == pytest.approx(tools, abs=0.06)
    assert 100 * expected_never_invoked(90, shares, theta) / found == pytest.approx(never, abs=0.06)


@pytest.mark.parametrize("theta", [0, 1, 2, 3, 5])
def test_the_simulator_agrees_with_the_closed_forms(theta):
    # Fixed seed; three means within 4.5 standard errors: a right simulator fails about 2 times in 100,000.
    shares = zipf(60)
    runs = simulate_gate(90, shares, theta, 3000, seed=theta)
    for counts, expected in (
        (runs.tools, expected_tools(90, shares, theta)),
        (runs.never_invoked, expected_never_invoked(90, shares, theta)),
        (runs.invocations, expected_invocations(90, shares, theta)),
    ):
        error = counts.std(ddof=1) / np.sqrt(len(counts))
        assert abs(counts.mean() - expected) <= 4.5 * error


def test_one_family_is_arithmetic():
    one = np.ones(1)
    runs = simulate_gate(6, one, 3, 2, seed=0)
    assert (list(runs.tools), list(runs.never_invoked), list(runs.invocations)) == ([1, 1], [0, 0], [2, 2])
    assert expected_tools(4, one, 3) == 1.0
    assert expected_tools(3, one, 3) == 0.0
    assert expected_never_invoked(4, one, 3) == pytest.approx(1.0)
    assert expected_invocations(6, one, 3) == pytest.approx(2.0)
    assert expected_invocations(2, one, 3) == 0.0


def test_the_same_seed_gives_the_same_streams():
    one, other = (simulate_gate(30, zipf(5), 2, 50, seed=9) for _ in range(2))
    assert np.array_equal(one.tools, other.tools)


def test_rent_or_buy_costs_at_most_twice_the_best_and_one_step():
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(20_000):
        code = float(rng.uniform(0, 5))
        saving = float(rng.uniform(0.01, 5))
        build = float(rng.uniform(0.01, 60))
        arrivals = int(rng.integers(1, 200))
        theta = rent_or_buy_theta(build, saving)
        paid = gate_cost(arrivals, build, code + saving, code, theta)
        best = offline_cost(arrivals, build, code + saving, code)
        assert paid <= 2 * best + saving + 1e-9
        worst = max(worst, (paid - saving) / best)
    assert worst <= 2.0


def test_the_gate_costs_what_it_says():
    assert gate_cost(2, 10, 5, 1, theta=3) == 10
    assert gate_cost(3, 10, 5, 1, theta=3) == 25
    assert gate_cost(5, 10, 5, 1, theta=3) == 27
    assert offline_cost(5, 10, 5, 1) == 15
    assert offline_cost(2, 10, 5, 1) == 10


@pytest.mark.parametrize(
    "shares", [np.array([0.5, 0.4]), np.array([-0.1, 1.1]), np.array([]), np.ones((1, 1))]
)
def test_shares_must_be_probabilities(shares):
    with pytest.raises(BadInput, match="probabilities"):
        expected_tools(5, shares, 1)


def test_counts_must_be_counts():
    for call in (
        lambda: expected_tools(-1, np.ones(1), 1),
        lambda: zipf(0),
        lambda: simulate_gate(1, np.ones(1), 1, 0, 0),
    ):
        with pytest.raises(BadInput):
            call()
