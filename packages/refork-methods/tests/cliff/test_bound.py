from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.cliff.bound import bound_violations, can_fall, max_drop
from refork_methods.cliff.planted import RIGHT, WRONG, absorbing_values, flat_chain, planted_chain


def random_chain(seed, states=12):
    """A chain that runs forward only, with two ends; its exact values."""
    rng = np.random.default_rng(seed)
    step = np.zeros((states, states))
    for s in range(states - 2):
        distribution = rng.dirichlet(np.full(states - s - 1, 0.3))
        step[s, s + 1 :] = distribution
    reward = np.zeros(states)
    reward[-1] = 1.0
    return step, absorbing_values(step, reward)


@pytest.mark.parametrize("seed", range(40))
def test_no_exact_value_breaks_the_bound(seed):
    step, value = random_chain(seed)
    said = np.argwhere(step > 0)
    before, after, chance = value[said[:, 0]], value[said[:, 1]], step[said[:, 0], said[:, 1]]
    assert not bound_violations(before, after, chance).any()


@pytest.mark.parametrize("seed", range(10))
def test_values_are_a_martingale(seed):
    step, value = random_chain(seed)
    inner = step.sum(axis=1) > 0
    assert np.allclose((step @ value)[inner], value[inner])


@pytest.mark.parametrize("seed", range(10))
def test_squared_steps_sum_to_the_variance_of_the_outcome(seed):
    # m(s) = sum P(s, s') [(V(s') - V(s))^2 + m(s')], the expected sum of squares from s, by a linear solve.
    step, value = random_chain(seed)
    once = (step * (value[None, :] - value[:, None]) ** 2).sum(axis=1)
    squares = np.linalg.solve(np.eye(len(value)) - step, once)
    assert np.allclose(squares, value * (1 - value))


def test_drops_along_any_trace_telescope():
    step, value = random_chain(3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        trace = [0]
        while step[trace[-1]].any():
            trace.append(int(rng.choice(len(step), p=step[trace[-1]])))
        gains = np.diff(value[trace])
        assert gains.sum() == pytest.approx(float(trace[-1] == len(step) - 1) - value[0])


def test_large_drops_are_few_on_average():
    # Exact: expected number of drops of at least d from the start, by a linear solve.
    for seed in range(10):
        step, value = random_chain(seed)
        for d in (0.1, 0.2, 0.4):
            large = (step * (value[:, None] - value[None, :] >= d)).sum(axis=1)
            count = np.linalg.solve(np.eye(len(value)) - step, large)
            # Squares of the steps of a martingale that ends in 0 or 1 sum to V(1 - V) on average.
            assert count[0] <= value[0] * (1 - value[0]) / d**2 + 1e-9


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_bound_is_met_and_tight(chance, after, others):
    before = chance * after + (1 - chance) * others
    assert before - after <= max_drop(chance, after) + 1e-12
    best = chance * after + (1 - chance) * 1.0
    assert best - after == pytest.approx(float(max_drop(chance, after)), abs=1e-12)


def test_only_tokens_with_room_to_fall_are_tested():
    assert can_fall(np.array([0.0, 0.5, 0.89, 0.91, 0.999, 1.0])).tolist() == [True] * 3 + [False] * 3


def test_the_bound_itself_is_allowed():
    assert max_drop(0.25, 0.5) == 0.375
    assert max_drop([0, 1], [0.5, 0]).tolist() == [0.5, 0.0]
    assert max_drop(0.25).tolist() == 0.75
    assert can_fall([0.5, 0.75], 0.5).tolist() == [True, False]
    assert can_fall(0.5, 0.5).dtype == np.bool_


def test_what_falls_further_than_it_can_is_told():
    # A drop of 0.5 at a token of 0.5 is the limit; behind it 0.25 is left, at a token of 0.5 at most 0.375.
    for before, broken in ((0.5, False), (0.5 + 2**-20, True)):
        assert bound_violations([before], [0], [0.5], 0.0).tolist() == [broken]
    assert bound_violations([0.625, 0.75], [0.25, 0.25], [0.5, 0.5], 0).tolist() == [False, True]
    assert bound_violations(0.5 + 1e-6, 0, 0.5)
    assert not bound_violations(0.5 + 1e-6, 0, 0.5, 1e-5)
    assert not bound_violations(0.5 + 1e-10, 0, 0.5), "rounding is no violation"


def chain_values(table):
    """Exact chance to reach ``" right"`` from every state of a chain (see ``ScriptedPolicy.from_chain``)."""
    names = sorted({RIGHT, WRONG, *table, *(word for sampling in table.values() for word in sampling)})
    index = {name: i for i, name in enumerate(names)}
    step = np.zeros((len(names), len(names)))
    for state, sampling in table.items():
        # Their only word is the empty one, which ends the chain here but is also the name of the first state.
        if state not in (RIGHT, WRONG):
            for word, chance in sampling.items():
                step[index[state], index[word]] += chance
    reward = np.array([float(name == RIGHT) for name in names])
    return dict(zip(names, absorbing_values(step, reward).tolist(), strict=True))


def test_a_planted_chain_has_the_values_it_was_given():
    chain = flat_chain(10, 0.7, 0.2, at=[4])
    found = chain_values(chain.table)
    trunk = ["", *[f" t{i}" for i in range(1, 10)], " wrong"]
    assert [found[s] for s in trunk] == pytest.approx(chain.values.tolist())


def test_an_impossible_fall_cannot_be_planted():
    with pytest.raises(BadInput, match="no distribution falls"):
        planted_chain([0.9, 0.3, 0.0], [0.95, 0.5])
    for chance in (1.2, -0.1, [0.5, 1.2]):
        with pytest.raises(BadInput, match="a probability lies outside"):
            max_drop(chance)
    with pytest.raises(BadInput, match="a value lies outside"):
        max_drop(0.5, [-0.1, 0.5])
    with pytest.raises(BadInput, match="neither sums to 1"):
        absorbing_values([[0.5, 0.2], [0, 0]], [0, 1])
