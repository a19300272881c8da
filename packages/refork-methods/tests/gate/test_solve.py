"""The exact solver by brute force, the grid by the exact solver."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from gate.gate_problems import IMPERFECT, KERNEL, NEAR_ORACLE, model, problems
from refork.errors import BadInput, CannotDo
from refork_methods.gate.model import Critic, CriticModel, Kernel, Prices
from refork_methods.gate.policy import posterior, transition
from refork_methods.gate.solve import envelope, solve_grid, values
from refork_testbed.trials.gate_exact import solve_exact

NONE = frozenset()


def _attained(solution):
    """The utility that the exact plan attains, summed over everything that can happen to it, forwards."""
    p = solution.problem
    checks = {check.name: check for check in p.checks}

    def follow(weight, right, belief, used, candidate):
        action = solution.best(belief, used, candidate) if weight else "stop"
        if action in checks:
            return asked(weight, right, belief, used, candidate, checks[action])
        if action == "generate":
            return draw(weight, right, belief, candidate)
        if action == "verify":
            if right:
                return weight * (p.reward - p.verify)
            # the plan refines what the verifier refused exactly where that is worth something
            goes_on = p.retry and solution.q(Fraction(0), used, candidate).get("generate", -1) > 0
            left = draw(weight, False, Fraction(0), candidate) if goes_on else Fraction(0)
            return left - weight * p.verify
        return {"stop": Fraction(0), "ship": weight * (p.reward if right else -(p.ship_loss or 0))}[action]

    def asked(weight, right, belief, used, candidate, check):
        total = -weight * check.price
        chance = check.right if right else check.wrong
        for passed, share in ((True, chance), (False, 1 - chance)):
            moved = posterior(belief, check.right, check.wrong, passed)
            total += follow(weight * share, right, moved, used | {check.name}, candidate)
        return total

    def draw(weight, right, belief, candidate):
        moved, fixed = transition(belief, p.fix, p.breaks), (1 - p.breaks if right else p.fix)
        total = -weight * p.generate
        for now, share in ((True, fixed), (False, 1 - fixed)):
            total += follow(weight * share, now, moved, NONE, candidate + 1)
        return total

    return follow(p.prior, True, p.prior, NONE, 0) + follow(1 - p.prior, False, p.prior, NONE, 0)


@given(problems())
@settings(max_examples=40)
def test_the_exact_plan_attains_its_value_to_the_last_digit(problem):
    for verify in ("terminal", "retry"):
        solution = solve_exact(*problem, 2, verify)
        assert _attained(solution) == solution.value()


@given(problems())
@settings(max_examples=40)
def test_the_bracket_contains_the_exact_value_even_on_a_bare_grid(problem):
    for verify, points in product(("terminal", "retry"), (2, 51)):
        exact = float(solve_exact(*problem, 2, verify).value())
        low, high = solve_grid(*problem, 2, verify, points=points).value()
        assert low - 1e-9 <= exact <= high + 1e-9


@pytest.mark.parametrize("critics", [NEAR_ORACLE, IMPERFECT])
def test_taking_up_kinks_closes_the_bracket(critics):
    grid = solve_grid(model(critics), Prices(verify=45), 3, "retry", points=21)
    for candidate in range(3):
        for used in (NONE, frozenset({"test"})):
            bracket, at = grid.bracket(candidate, used), np.linspace(0, 1, 301)
            assert np.all(bracket.high(at) - bracket.below(at) > -1e-9)
            assert np.max(bracket.high(at) - bracket.below(at)) < 1e-6


@given(problems())
@settings(max_examples=25)
def test_values_are_convex_and_grow_with_candidates_and_critics(problem):
    known, prices = problem
    grid = solve_grid(known, prices, 3, "retry")
    at = np.linspace(0, 1, 41)
    lows = grid.bracket(0).below(at)
    assert np.all(lows[:-2] + lows[2:] - 2 * lows[1:-1] >= -1e-9)
    for fewer in (
        solve_grid(known, prices, 2, "retry"),
        solve_grid(known.only(known.names[:1]), prices, 3, "retry"),
    ):
        assert np.all(grid.bracket(0).high(at) >= fewer.bracket(0).below(at) - 1e-9)


def test_looking_further_ahead_never_plans_less():
    table = [solve_grid(model(), Prices(verify=45), 3, "retry", lookahead=n).value()[0] for n in (0, 1, 2, 3)]
    assert table == sorted(table)
    assert table[0] < table[3]


def test_retry_and_shipping_only_add():
    for prior in (0.1, 0.5, 0.9):
        at = model(prior=prior)
        base = solve_exact(at, Prices(), 2).value()
        assert solve_exact(at, Prices(), 2, "retry").value() >= base
        assert solve_exact(at, Prices(ship_loss=50), 2).value() >= base


@given(problems())
@settings(max_examples=25)
def test_a_critic_without_signal_is_never_bought(problem):
    known, prices = problem
    with_syntax = CriticModel(
        known.prior,
        (Critic("syntax", 1.0, 1.0, 1), Critic("coin", 0.3, 0.3, 0.5), *known.critics),
        known.kernel,
    )
    solution = solve_exact(with_syntax.only(["syntax", "coin", *known.names[:1]]), prices, 2, "retry")
    solution.value()
    for belief, used, candidate in list(solution._known):
        assert solution.best(belief, used, candidate) not in ("syntax", "coin")


def test_what_is_too_large_or_senseless_is_refused():
    many = tuple(Critic(f"c{i}", 0.9, 0.4, 1) for i in range(9))
    with pytest.raises(CannotDo, match="512 tables"):
        solve_grid(model(many), Prices())
    with pytest.raises(CannotDo, match="bracket"):
        solve_exact(model(many[:4]), Prices(), 3)
    with pytest.raises(CannotDo, match="up to 3\\^900 beliefs"):
        solve_exact(model(many[:3]), Prices(), 300)
    assert solve_exact(model(many[:3]), Prices(), 3).value() > 0
    for wrong in ({"points": 1}, {"lookahead": -1}, {"horizon": 0}, {"verify": "never"}):
        with pytest.raises(BadInput):
            solve_grid(model(), Prices(), **wrong)


def test_an_envelope_keeps_only_lines_on_top():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lines = np.round(rng.normal(size=(rng.integers(1, 12), 2)), 1)
        top, at = envelope(lines), np.linspace(0, 1, 201)
        brute = np.max([values(np.tile(line, (at.size, 1)), at) for line in lines], axis=0)
        np.testing.assert_allclose(top(at), brute, atol=1e-12)
        assert len(top.lines) <= len(lines)
        assert np.all(np.diff(top.cuts) > 0)


def test_certain_rates_do_not_divide_by_zero():
    sure = CriticModel(0.5, (Critic("oracle", 1.0, 0.0, 1),), Kernel(0.0, 1.0))
    low, high = solve_grid(sure, Prices(), 2).value()
    assert low == high == float(solve_exact(sure, Prices(), 2).value()) == 0.5 * 70 - 1
    assert KERNEL.fix == 0.25
