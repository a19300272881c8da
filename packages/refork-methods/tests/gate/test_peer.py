"""A general POMDP solver, where it is installed, must find the same value."""

from __future__ import annotations

import pytest

from gate.gate_problems import KERNEL
from refork_methods.gate.model import Critic, CriticModel, Prices
from refork_methods.gate.solve import solve_grid

CRITIC = Critic("test", 0.9, 0.45, 2)
DONE = ("done", 0, 0)


def _moves(state, action, prices, retry):
    """[(chance, next state, observation)] and the reward: the problem told once more, state by state."""
    kind, candidate, used = state
    if state == DONE or action == "stop":
        return [(1.0, DONE, "none")], 0.0
    right = kind == "right"
    if action == "verify":
        earned = prices.reward * right - prices.verify
        if right or not retry:
            return [(1.0, DONE, "fail" if retry and not right else "pass")], earned
        return [(1.0, state, "fail")], earned
    if action == "generate":
        if candidate == 1:
            return [(1.0, DONE, "none")], -prices.generate
        now = 1 - KERNEL.breaks if right else KERNEL.fix
        new = [(now, ("right", 1, 0), "none"), (1 - now, ("wrong", 1, 0), "none")]
        return new, -prices.generate
    if used:
        return [(1.0, state, "none")], -CRITIC.price
    passes = CRITIC.right if right else CRITIC.wrong
    after = (kind, candidate, 1)
    return [(passes, after, "pass"), (1 - passes, after, "fail")], -CRITIC.price


def _value(pomdp, prior, prices, retry, steps):
    """Expectimax over the peer's belief arithmetic; states carry the last observation, which they show."""
    states = [DONE] + [(kind, c, u) for kind in ("right", "wrong") for c in (0, 1) for u in (0, 1)]
    observations = ["none", "pass", "fail"]
    shown = [(state, seen) for state in states for seen in observations]
    actions = ["stop", "verify", "generate", "test"]

    class Transition(pomdp.TransitionModel):
        def probability(self, following, state, action):
            moves, _ = _moves(state[0], action, prices, retry)
            return sum(chance for chance, after, seen in moves if (after, seen) == following)

    class Observation(pomdp.ObservationModel):
        def probability(self, observation, following, action):
            return float(following[1] == observation)

    class Reward(pomdp.RewardModel):
        def sample(self, state, action, following):
            return _moves(state[0], action, prices, retry)[1]

    def value(belief, left):
        best = 0.0
        if not left or belief.get((DONE, "none"), 0) + belief.get((DONE, "pass"), 0) > 1 - 1e-12:
            return best
        for action in actions[1:]:
            q = pomdp.algorithms.value_function.expected_reward(belief, reward, action)
            for observation in observations:
                chance = pomdp.algorithms.value_function.belief_observation_model(
                    observation, belief, action, transition, observe
                )
                if chance > 0:
                    after = pomdp.algorithms.value_function.belief_update(
                        belief, action, observation, transition, observe
                    )
                    q += chance * value(after, left - 1)
            best = max(best, q)
        return best

    transition, observe, reward = Transition(), Observation(), Reward()
    start = dict.fromkeys(shown, 0.0)
    start[(("right", 0, 0), "none")], start[(("wrong", 0, 0), "none")] = prior, 1 - prior
    return value(start, steps)


@pytest.mark.parametrize(("verify", "price"), [("terminal", 30), ("retry", 30)])
def test_the_value_is_that_of_a_general_solver(verify, price):
    pomdp = pytest.importorskip("pomdp_py")
    prices = Prices(100, price, 5)
    ours = solve_grid(CriticModel(0.5, (CRITIC,), KERNEL), prices, 2, verify).value()
    steps = 4 if verify == "terminal" else 5
    theirs = _value(pomdp, 0.5, prices, verify == "retry", steps)
    assert ours[0] == pytest.approx(theirs, abs=1e-9)
