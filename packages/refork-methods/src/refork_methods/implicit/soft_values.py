"""Optimal control with a KL price, solved exactly: where beta * log(policy / reference) is the advantage.

Finite horizon, no discount, value 0 after the last step; the world may be stochastic. The optimum of
E[sum of rewards - beta * KL(policy || reference)] satisfies, with Q(s, a) = E[r + V(s')],

    V(s) = beta log sum_a reference(a|s) exp(Q(s, a) / beta)
    policy(a|s) = reference(a|s) exp((Q(s, a) - V(s)) / beta)

so that A = Q - V = beta log(policy / reference), whatever the world's chance does.

Source: arXiv 2606.26080, proposition 1. Rewards that depend on where a step led, and the split of a
return into advantage and luck, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FiniteMdp:
    """States, actions, a horizon of ``steps``.

    ``chances`` [S, A, S] are the transition probabilities, ``rewards`` [S, A, S] what a transition pays;
    ``over`` [S] marks states in which an episode has ended (they lead to themselves and pay nothing).
    """

    chances: Floats
    rewards: Floats
    over: Bools
    steps: int

    def __post_init__(self) -> None:
        states, actions = self.chances.shape[:2]
        if self.chances.shape != (states, actions, states) or self.rewards.shape != self.chances.shape:
            raise BadInput("chances and rewards must both be [states, actions, states]", where="finite MDP")
        if (self.chances < 0).any() or not np.allclose(self.chances.sum(-1), 1.0, atol=1e-12):
            raise BadInput("transition probabilities must be 0 or more and sum to 1", where="finite MDP")
        if self.over.shape != (states,) or self.steps < 1 or not np.isfinite(self.rewards).all():
            raise BadInput("`over` is [states], `steps` at least 1, rewards finite", where="finite MDP")
        ended = np.flatnonzero(self.over)
        if (self.chances[ended, :, ended] != 1.0).any() or (self.rewards[ended] != 0).any():
            raise BadInput("a state that is over leads to itself and pays nothing", where="finite MDP")


@dataclass(frozen=True, slots=True)
class SoftOptimum:
    """The solved problem: ``values`` [H + 1, S], the others [H, S, A]; ``advantages`` = Q - V.

    Values and advantages are in units of reward.
    """

    mdp: FiniteMdp
    beta: float
    reference: Floats
    values: Floats
    action_values: Floats
    policy: Floats
    advantages: Floats


@dataclass(frozen=True, slots=True)
class Runs:
    """Episodes: ``states`` [n, H + 1], ``actions`` [n, H] (-1 once it is over), ``rewards`` [n, H]."""

    states: Ints
    actions: Ints
    rewards: Floats

    @property
    def returns(self) -> Floats:
        """Sum of rewards of each episode, [n]."""
        return np.asarray(self.rewards.sum(1))


@dataclass(frozen=True, slots=True)
class ChanceSplit:
    """return = baseline + advantage + luck, all [n], in units of reward."""

    returns: Floats
    baseline: Floats
    advantage: Floats
    chance: Floats


@dataclass(frozen=True, slots=True)
class Expectations:
    """Three expectations of A, each [H, S], beside what they must equal.

    ``exp_reference`` = E_reference exp(A / beta) = 1; ``policy_mean`` = E_policy A = beta KL(policy ||
    reference), never negative (an ordinary advantage has mean 0 here); ``reference_mean`` =
    E_reference A = -beta KL(reference || policy).
    """

    exp_reference: Floats
    policy_mean: Floats
    policy_kl: Floats
    reference_mean: Floats
    reference_kl: Floats


def policy_rows(mdp: FiniteMdp, given: ArrayLike, what: str) -> Floats:
    """Probabilities as [H, S, A], whichever of the shorter shapes was given; ``what`` names them."""
    states, actions = mdp.chances.shape[:2]
    distribution = np.asarray(given, dtype=np.float64)
    if distribution.shape in ((actions,), (states, actions)):
        distribution = np.broadcast_to(distribution, (mdp.steps, states, actions))
    if distribution.shape != (mdp.steps, states, actions):
        raise BadInput(f"the {what} must be [actions], [states, actions] or [steps, states, actions]")
    if not (distribution > 0).all() or not np.allclose(distribution.sum(-1), 1.0, atol=1e-12):
        raise BadInput(
            f"the {what} must give every action a positive probability, and they must sum to 1",
            hint="a log-ratio to an action that cannot happen is not a number",
        )
    return distribution


def check_beta(beta: float) -> float:
    """``beta`` itself, refused unless finite and above 0."""
    if not (np.isfinite(beta) and beta > 0):
        raise BadInput(f"beta is {beta!r}; it must be a finite number above 0")
    return float(beta)


def soft_value_iteration(mdp: FiniteMdp, reference: ArrayLike, beta: float) -> SoftOptimum:
    """The KL-regularised optimum of a finite MDP, by backward induction.

    Args:
        mdp: the problem.
        reference: probabilities [actions], [states, actions] or [steps, states, actions], all above 0.
        beta: price of one nat of divergence, in units of reward.

    Raises:
        BadInput: a distribution with a zero or that does not sum to 1, or a beta that is not above 0.
    """
    from scipy.special import logsumexp

    check_beta(beta)
    distribution = policy_rows(mdp, reference, "reference")
    states, actions = mdp.chances.shape[:2]
    values = np.zeros((mdp.steps + 1, states))
    quality = np.zeros((mdp.steps, states, actions))
    paid = (mdp.chances * mdp.rewards).sum(-1)
    for step in reversed(range(mdp.steps)):
        quality[step] = paid + mdp.chances @ values[step + 1]
        # logsumexp, since exp(Q / beta) itself overflows for a small beta.
        values[step] = beta * logsumexp(quality[step] / beta, b=distribution[step], axis=-1)
    advantages = quality - values[:-1, :, None]
    return SoftOptimum(
        mdp, beta, distribution, values, quality, distribution * np.exp(advantages / beta), advantages
    )


def log_ratio_advantages(policy: ArrayLike, reference: ArrayLike, beta: float) -> Floats:
    """Log-ratio of probabilities of one shape, times beta: the implicit advantage, in the unit of beta."""
    ratio = np.log(np.asarray(policy, dtype=np.float64)) - np.log(np.asarray(reference, dtype=np.float64))
    return np.asarray(check_beta(beta) * ratio)


def expectations(optimum: SoftOptimum) -> Expectations:
    """The three expectations of the advantage in every state and step, with what they must equal."""
    ref, pol, gain, beta = optimum.reference, optimum.policy, optimum.advantages, optimum.beta
    ratio = np.log(pol) - np.log(ref)
    return Expectations(
        exp_reference=np.asarray((ref * np.exp(gain / beta)).sum(-1)),
        policy_mean=np.asarray((pol * gain).sum(-1)),
        policy_kl=np.asarray(beta * (pol * ratio).sum(-1)),
        reference_mean=np.asarray((ref * gain).sum(-1)),
        reference_kl=np.asarray(beta * (ref * -ratio).sum(-1)),
    )


def simulate(mdp: FiniteMdp, policy: ArrayLike, runs: int, rng: np.random.Generator, start: int = 0) -> Runs:
    """``runs`` episodes from state ``start`` under a policy ([actions], [S, A] or [H, S, A])."""
    distribution = np.cumsum(policy_rows(mdp, policy, "policy"), axis=-1)
    moves = np.cumsum(mdp.chances, axis=-1)
    states = np.full((runs, mdp.steps + 1), start, dtype=np.int64)
    actions = np.full((runs, mdp.steps), -1, dtype=np.int64)
    rewards = np.zeros((runs, mdp.steps))
    for step in range(mdp.steps):
        here = states[:, step]
        live = np.flatnonzero(~mdp.over[here])
        chosen = _draw(distribution[step, here[live]], rng)
        after = _draw(moves[here[live], chosen], rng)
        states[:, step + 1] = here
        states[live, step + 1] = after
        actions[live, step] = chosen
        rewards[live, step] = mdp.rewards[here[live], chosen, after]
    return Runs(states, actions, rewards)


def _draw(cumulative: Floats, rng: np.random.Generator) -> Ints:
    """One index per row of cumulative distributions [n, k]."""
    # The last entry may round to just below 1: nothing lies beyond it.
    found = (rng.random(len(cumulative))[:, None] >= cumulative).sum(-1)
    return np.asarray(np.minimum(found, cumulative.shape[1] - 1), dtype=np.int64)


def along(table: ArrayLike, runs: Runs) -> Floats:
    """Entries of a table [H, S, A] at what each run did, [n, H]; NaN once it is over."""
    steps = np.arange(runs.actions.shape[1])
    # An action of -1 reads the last entry; the line below blanks it.
    values = np.asarray(table, dtype=np.float64)[steps, runs.states[:, :-1], runs.actions]
    return np.where(runs.actions < 0, np.nan, values)


def chance_split(optimum: SoftOptimum, runs: Runs) -> ChanceSplit:
    """Each return as the value of the start, plus the advantages of its actions, plus the world's luck.

    luck = sum over steps of what a transition paid and led to, minus the mean of that given state and
    action; its mean is 0 under any policy. No score of the actions alone can know it.

    Source: the split is ours; it follows from Q = E[r + V(s')].
    """
    steps = np.arange(optimum.mdp.steps)
    taken = runs.actions >= 0
    got = runs.rewards + optimum.values[steps + 1, runs.states[:, 1:]]
    expected = optimum.action_values[steps, runs.states[:, :-1], runs.actions]
    return ChanceSplit(
        runs.returns,
        optimum.values[0, runs.states[:, 0]],
        np.nansum(along(optimum.advantages, runs), axis=1),
        np.where(taken, got - expected, 0.0).sum(1),
    )
