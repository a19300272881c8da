from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given

from gate.gate_problems import IMPERFECT, KERNEL, beliefs, chances, signals
from refork.errors import BadInput
from refork_methods.decide import BetaRate
from refork_methods.gate.model import Critic, Kernel
from refork_methods.gate.policy import (
    State,
    after,
    observed,
    pass_chance,
    posterior,
    refined,
    regenerated,
    rejected,
    transition,
)


@given(beliefs, chances, chances)
def test_the_belief_is_a_martingale(b, right, wrong):
    passes = pass_chance(b, right, wrong)
    mean = passes * posterior(b, right, wrong, True) + (1 - passes) * posterior(b, right, wrong, False)
    assert mean == pytest.approx(b, abs=1e-12)


@given(beliefs, signals, signals, signals, signals)
def test_the_order_of_verdicts_does_not_matter(b, a1, b1, a2, b2):
    for first, second in itertools.product((True, False), repeat=2):
        one = posterior(posterior(b, a1, b1, first), a2, b2, second)
        other = posterior(posterior(b, a2, b2, second), a1, b1, first)
        assert one == pytest.approx(other, abs=1e-12)


def test_order_and_martingale_are_exact_in_rationals():
    b, steps = Fraction(2, 5), ((Fraction(9, 10), Fraction(9, 20)), (Fraction(4, 5), Fraction(7, 20)))
    (r1, w1), (r2, w2) = steps
    assert posterior(posterior(b, r1, w1, True), r2, w2, False) == posterior(
        posterior(b, r2, w2, False), r1, w1, True
    )
    passes = pass_chance(b, r1, w1)
    assert passes * posterior(b, r1, w1, True) + (1 - passes) * posterior(b, r1, w1, False) == b


@given(beliefs, chances)
def test_a_critic_without_signal_says_nothing(b, rate):
    assert posterior(b, rate, rate, True) == pytest.approx(b, abs=1e-12)
    assert posterior(b, rate, rate, False) == pytest.approx(b, abs=1e-12)


def test_an_impossible_verdict_leaves_the_belief():
    assert posterior(0.3, 1.0, 1.0, False) == 0.3
    assert posterior(0.0, 0.9, 0.0, True) == 0.0
    assert posterior(1.0, 0.0, 0.4, True) == 1.0


def test_refining_uses_the_posterior_means():
    kernel = Kernel(BetaRate(9, 44), BetaRate(10, 68))
    assert refined(0.0, kernel) == pytest.approx(10 / 46)
    assert refined(1.0, kernel) == pytest.approx(1 - 11 / 70)
    assert transition(Fraction(2, 5), Fraction(1, 4), Fraction(1, 10)) == Fraction(51, 100)
    assert refined(0.7, Kernel.resample(0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize("belief", [-0.01, 1.01, float("nan")])
def test_what_is_no_chance_is_refused(belief):
    for act in (
        lambda: after(belief, IMPERFECT[1], True),
        lambda: refined(belief, KERNEL),
        lambda: State(belief),
    ):
        with pytest.raises(BadInput, match="must lie in"):
            act()


def test_states_move():
    test = Critic("test", 0.9, 0.45, 2)
    seen = observed(State(0.4), test, True)
    assert seen.belief == pytest.approx(0.36 / 0.63)
    assert (seen.used, seen.passed, seen.candidate) == ({"test"}, {"test"}, 0)
    with pytest.raises(BadInput, match="was used on candidate 0 already"):
        observed(seen, test, True)
    refused = rejected(seen)
    assert refused.belief == 0
    assert refused.rejected
    fresh = regenerated(refused, KERNEL)
    assert fresh == State(0.25, candidate=1)
    assert observed(fresh, test, False).passed == frozenset()


def test_states_that_cannot_be_are_refused():
    with pytest.raises(BadInput, match="candidate -1"):
        State(0.5, candidate=-1)
    with pytest.raises(BadInput, match="without being used"):
        State(0.5, passed=frozenset({"test"}))
