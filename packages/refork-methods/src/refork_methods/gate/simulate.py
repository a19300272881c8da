"""Seeded episodes drawn from a model: every policy meets the same candidates and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float, Int

from refork.errors import BadInput
from refork_methods.gate.evaluate import CAP
from refork_methods.gate.model import GENERATE, SHIP, STOP, VERIFY, CriticModel, Prices, chance
from refork_methods.gate.policy import Policy, State, Verify, rejected
from refork_methods.gate.solve import Problem, in_floats


@final
@dataclass(frozen=True, slots=True)
class Trajectories:
    """What would happen in each episode: the candidates one by one, and every critic's verdict on each."""

    right: Bool[np.ndarray, "episodes candidates"]
    verdicts: Bool[np.ndarray, "episodes candidates critics"]


@final
@dataclass(frozen=True, slots=True)
class Episodes:
    """What a policy made of trajectories.

    ``utility`` is net of ``cost``; ``belief`` is the one it ended with, in the last candidate, before any
    verification; ``right`` says whether that candidate was right, ``verified`` how often it was verified.
    """

    utility: Float[np.ndarray, "episodes"]
    cost: Float[np.ndarray, "episodes"]
    belief: Float[np.ndarray, "episodes"]
    right: Bool[np.ndarray, "episodes"]
    verified: Int[np.ndarray, "episodes"]

    @property
    def mean(self) -> float:
        """Mean utility."""
        return float(self.utility.mean())

    @property
    def error(self) -> float:
        """Its standard error."""
        return float(self.utility.std(ddof=1) / np.sqrt(self.utility.size))


def draw_trajectories(model: CriticModel, episodes: int, horizon: int, seed: int) -> Trajectories:
    """Draw episodes from a model; episode i is the same whatever the number of episodes.

    Raises: BadInput for fewer than two episodes or no candidate.
    """
    if episodes < 2 or horizon < 1:
        raise BadInput(f"{episodes} episodes of {horizon} candidates", hint="at least 2 of at least 1")
    noise = np.random.default_rng(seed).random((episodes, horizon, 1 + len(model.critics)))
    right = np.empty((episodes, horizon), dtype=np.bool_)
    right[:, 0] = noise[:, 0, 0] < model.start
    fix, breaks = chance(model.kernel.fix), chance(model.kernel.breaks)
    for step in range(1, horizon):
        right[:, step] = noise[:, step, 0] < np.where(right[:, step - 1], 1 - breaks, fix)
    passing = np.array([[critic.wrong, critic.right] for critic in model.critics]).reshape(-1, 2)
    verdicts = noise[:, :, 1:] < passing.T[right.astype(int)]
    return Trajectories(right, verdicts)


def simulate(
    policy: Policy,
    model: CriticModel,
    prices: Prices,
    trajectories: Trajectories,
    verify: Verify = "terminal",
) -> Episodes:
    """Play a policy on trajectories. Raises BadInput for an action that is not open."""
    episodes, horizon = trajectories.right.shape
    problem = in_floats(model, prices, horizon, verify)
    places = {name: place for place, name in enumerate(model.names)}
    known: dict[State, str] = {}

    def act(state: State) -> str:
        if state not in known:
            known[state] = policy.act(state).action
        return known[state]

    rows = [
        _play(policy, act, problem, places, trajectories.right[i].tolist(), trajectories.verdicts[i])
        for i in range(episodes)
    ]
    earned, cost, belief, right, verified = zip(*rows, strict=True)
    paid = np.array(cost, dtype=np.float64)
    return Episodes(
        np.array(earned, dtype=np.float64) - paid, paid, np.array(belief), np.array(right), np.array(verified)
    )


def _play(
    policy: Policy,
    act: Callable[[State], str],
    problem: Problem[float],
    places: dict[str, int],
    right: list[bool],
    verdicts: Bool[np.ndarray, "candidates critics"],
) -> tuple[float, float, float, bool, int]:
    """(earned, paid, last belief, whether the last candidate is right, verifications) of one episode."""
    state = State(problem.prior)
    belief, cost, verified = state.belief, 0.0, 0
    for _ in range(CAP):
        truth = right[state.candidate]
        action = act(state)
        if action == STOP:
            break
        if action == SHIP and problem.ship_loss is not None:
            return (problem.reward if truth else -problem.ship_loss), cost, belief, truth, verified
        if action == VERIFY:
            cost, verified = cost + problem.verify, verified + 1
            if truth:
                return problem.reward, cost, belief, truth, verified
            if not problem.retry:
                break
            state = rejected(state)
            continue
        if action == GENERATE:
            cost += problem.generate
            if state.candidate + 1 >= problem.horizon:
                break
            state = policy.refine(state)
        elif action in places:
            check = problem.checks[places[action]]
            cost += policy.charged.get(action, check.price)
            state = policy.update(state, action, bool(verdicts[state.candidate, places[action]]))
        else:
            raise BadInput(f"{policy.name} chose {action!r}, which is not open here")
        belief = state.belief
    return 0.0, cost, belief, right[state.candidate], verified
