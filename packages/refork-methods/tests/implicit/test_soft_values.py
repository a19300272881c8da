from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.implicit.corridor import REFERENCE, START, corridor
from refork_methods.implicit.soft_values import (
    FiniteMdp,
    along,
    chance_split,
    expectations,
    log_ratio_advantages,
    simulate,
    soft_value_iteration,
)
from refork_testbed.trials.regularised import (
    ascend,
    exact_gradient,
    regularised_values,
    softmax,
    visits,
)

BETA = 0.3


def world(seed=0, states=12, actions=4, steps=6, deterministic=False):
    rng = np.random.default_rng(seed)
    if deterministic:
        chances = np.eye(states)[rng.integers(states, size=(states, actions))]
    else:
        chances = rng.dirichlet(np.ones(states), size=(states, actions))
    rewards = rng.normal(size=(states, actions, states))
    return FiniteMdp(chances, rewards, np.zeros(states, dtype=bool), steps), rng.dirichlet(
        np.ones(actions), size=states
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_log_ratio_of_the_optimum_is_its_advantage(seed):
    mdp, reference = world(seed)
    best = soft_value_iteration(mdp, reference, BETA)
    values, quality = regularised_values(mdp, best.policy, reference, BETA)
    ratio = log_ratio_advantages(best.policy, best.reference, BETA)
    # By evaluation of the policy, which takes neither a maximum nor a log-sum-exp.
    assert np.abs(ratio - (quality - values[:-1, :, None])).max() < 1e-12
    assert np.abs(values - best.values).max() < 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_three_expectations(seed):
    mdp, reference = world(seed)
    found = expectations(soft_value_iteration(mdp, reference, BETA))
    assert np.abs(found.exp_reference - 1).max() < 1e-12
    assert np.abs(found.policy_mean - found.policy_kl).max() < 1e-12
    assert np.abs(found.reference_mean + found.reference_kl).max() < 1e-12
    assert found.policy_mean.min() > 0, "unlike an ordinary advantage, its mean under the policy is not 0"


def test_a_return_is_baseline_advantage_and_luck():
    mdp, reference = world()
    best = soft_value_iteration(mdp, reference, BETA)
    for distribution in (best.policy, best.reference):
        split = chance_split(best, simulate(mdp, distribution, 5000, np.random.default_rng(1)))
        gap = split.returns - split.baseline - split.advantage - split.chance
        assert np.abs(gap).max() < 1e-12
        # Mean 0 under any policy: 5 standard errors, chance of a false alarm below 1e-6.
        assert abs(split.chance.mean()) < 5 * split.chance.std() / np.sqrt(5000)
    assert split.chance.std() > 0.5


def test_without_chance_there_is_no_luck():
    mdp, reference = world(deterministic=True)
    best = soft_value_iteration(mdp, reference, BETA)
    split = chance_split(best, simulate(mdp, best.policy, 500, np.random.default_rng(1)))
    assert np.abs(split.chance).max() < 1e-12
    assert np.abs(split.advantage - (split.returns - split.baseline)).max() < 1e-12


def test_read_as_a_reward_the_log_ratio_does_not_give_the_return():
    mdp, reference = world()
    best = soft_value_iteration(mdp, reference, BETA)
    runs = simulate(mdp, best.policy, 2000, np.random.default_rng(1))
    as_reward = along(log_ratio_advantages(best.policy, best.reference, BETA), runs).sum(1)
    rest = runs.returns - as_reward - best.values[0, 0]
    assert rest.std() > 0.5, "what is left over is luck, not a constant"


@pytest.mark.parametrize("seed", range(3))
def test_no_other_policy_earns_more(seed):
    mdp, reference = world(seed)
    best = soft_value_iteration(mdp, reference, BETA)
    rng = np.random.default_rng(9)
    for _ in range(20):
        other = softmax(np.log(best.policy) + 0.3 * rng.normal(size=best.policy.shape))
        assert (regularised_values(mdp, other, reference, BETA)[0][0] < best.values[0]).all()


def test_the_exact_gradient_is_that_of_finite_differences():
    mdp, reference = world(states=4, actions=3, steps=3)
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(3, 4, 3))
    found = exact_gradient(mdp, logits, reference, BETA)
    size = 1e-5
    for index in [(0, 0, 1), (1, 2, 0), (2, 3, 2)]:
        step = np.zeros_like(logits)
        step[index] = size
        up, down = (
            regularised_values(mdp, softmax(logits + s), reference, BETA)[0][0, 0] for s in (step, -step)
        )
        assert found[index] == pytest.approx((up - down) / (2 * size), abs=1e-8)


def test_ones_own_log_ratio_as_advantage_raises_the_divergence():
    # Why dense credit must come from a fixed pair: E_pi[grad log pi * log(pi / ref)] = grad KL(pi || ref).
    rng = np.random.default_rng(4)
    logits, ref = rng.normal(size=5), rng.dirichlet(np.ones(5))

    def kl(z):
        p = softmax(z)
        return float((p * np.log(p / ref)).sum())

    distribution = softmax(logits)
    own = np.log(distribution / ref)
    gradient = distribution * (own - (distribution * own).sum())
    size = 1e-6
    numeric = [(kl(logits + size * e) - kl(logits - size * e)) / (2 * size) for e in np.eye(5)]
    assert np.allclose(gradient, numeric, atol=1e-8)


def test_ascent_begins_at_the_reference_and_ends_at_the_optimum():
    mdp = corridor()
    best = soft_value_iteration(mdp, REFERENCE, BETA)
    assert np.allclose(ascend(mdp, REFERENCE, BETA, 0, rate=1.0, start=START), best.reference)
    seen = visits(mdp, best.policy, START) > 0.05
    seen &= ~mdp.over
    late = ascend(mdp, REFERENCE, BETA, 400, rate=5.0, start=START)
    assert np.abs(late - best.policy)[seen].max() < 0.05


def test_episodes_that_are_over_hold_no_actions():
    mdp = corridor()
    runs = simulate(mdp, REFERENCE, 500, np.random.default_rng(0), START)
    over = mdp.over[runs.states[:, :-1]]
    assert ((runs.actions == -1) == over).all()
    assert runs.rewards[over].sum() == 0
    assert set(np.unique(runs.returns)) == {0.0, 1.0}


def test_bad_problems_are_refused():
    mdp, reference = world()
    with pytest.raises(BadInput, match="beta"):
        soft_value_iteration(mdp, reference, 0.0)
    with pytest.raises(BadInput, match="positive probability"):
        soft_value_iteration(mdp, [0.5, 0.5, 0.0, 0.0], BETA)
    with pytest.raises(BadInput, match="must be \\[actions\\]"):
        soft_value_iteration(mdp, [0.5, 0.5], BETA)
    with pytest.raises(BadInput, match="sum to 1"):
        replace(mdp, chances=mdp.chances * 2)
    with pytest.raises(BadInput, match="leads to itself"):
        replace(mdp, over=np.ones(12, dtype=bool))
    with pytest.raises(BadInput, match="at least 1"):
        replace(mdp, steps=0)
    with pytest.raises(BadInput, match="rate"):
        ascend(mdp, reference, BETA, 1, rate=0.0)
