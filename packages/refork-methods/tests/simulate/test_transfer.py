"""Sim to real: closed forms of the ratio, and replays of planted simulators."""

import math

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.open import open_policy
from refork.worlds.open import open_world
from refork_methods.simulate.transfer import SimulatedRun, fieller, sim_to_real, success_ratio
from refork_methods.simulate.world import WorldModel
from refork_testbed.trials.planted_simulator import PlantedSimulator


def test_the_ratio_of_equal_successes_is_one_and_of_nothing_is_none():
    runs = np.array([1, 0, 1, 1, 0, 1, 0, 1.0])
    same = success_ratio(runs, runs)
    assert same.ratio == 1
    assert same.low < 1 < same.high
    none = success_ratio(np.zeros(8), runs)
    assert none.ratio is None
    assert none.low is None
    assert success_ratio(np.ones(8), np.zeros(8)).ratio == 0
    with pytest.raises(BadInput, match="one task"):
        success_ratio(runs, runs, ["a"] * 8)


def test_a_ratio_of_unequal_clusters_is_not_below_nothing():
    tasks = ["a"] * 9 + ["b"] + ["c"] * 2
    real = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0.0])
    assert success_ratio(np.ones(12), real, tasks).low == 0


def test_fieller_is_the_closed_form():
    """With a denominator that hardly varies the interval is that of the mean, divided by it."""
    rng = np.random.default_rng(0)
    y = rng.normal(3, 1, 200)
    x = np.full(200, 2.0) + rng.normal(0, 1e-6, 200)
    low, high = fieller(x, y)
    half = 1.972 * y.std(ddof=1) / math.sqrt(200)
    assert (low, high) == pytest.approx(((y.mean() - half) / 2, (y.mean() + half) / 2), abs=1e-3)


def test_coverage_of_the_ratio():
    """60 tasks of 2 runs, true ratio 0.75, 300 runs: below 0.9 with a chance under 1e-3."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(300):
        p = np.repeat(rng.beta(4, 2, 60), 2)
        inside = (rng.random(120) < p).astype(float)
        real = (rng.random(120) < 0.75 * p).astype(float)
        found = success_ratio(inside, real, np.repeat(range(60), 2).tolist())
        hits += found.low <= 0.75 <= found.high
    assert hits / 300 > 0.9


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_replays_of_simulated_runs(wrong):
    world = open_world("tools:library")
    tasks = world.tasks("held-out", 16)
    model = WorldModel(open_policy("scripted:coin"))
    model.predict = PlantedSimulator(world, tasks, wrong=wrong).predict
    runs = []
    for task in tasks:
        episode, actor, seen, reward = model.env(task, world=world), world.agent(task, 0), [], None
        while (action := actor.act(seen)) is not None:
            shown = episode.step(action)
            seen.append((action, shown.text))
            reward = shown.reward
            if shown.done:
                break
        runs.append(SimulatedRun(task, tuple(seen), reward))
    found = sim_to_real(runs, world)
    assert found.errors == 0
    assert found.ratio.tasks == 16
    if wrong:
        assert any(one.diverged is not None for one in found.replays)
    else:
        assert found.ratio.ratio == 1
        assert all(one.diverged is None for one in found.replays)
        assert [one.real for one in found.replays] == [run.reward for run in runs]
