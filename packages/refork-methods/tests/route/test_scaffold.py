"""Whole trainings in the planted environment; seeds are fixed, so nothing here fails by chance."""

import numpy as np
import pytest

from refork_methods.route.evolve import EvolveSettings, ReinforceSettings, evolve, reinforce
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Greedy
from refork_methods.route.stage1 import fit_stage1
from refork_methods.route.training import Always
from refork_testbed.trials.scaffold import ALONE_BEST, BEST_SINGLE, ORACLE, RANDOM, WORKERS, Scaffold

ZERO = SelectionHead.zero(WORKERS, Scaffold.WIDTH)


def test_closed_forms():
    assert pytest.approx(0.675**3) == ALONE_BEST
    assert pytest.approx(0.65**3) == BEST_SINGLE
    assert pytest.approx(0.9**3) == ORACLE
    assert pytest.approx(0.53125**3) == RANDOM


def test_rollouts_agree_with_the_closed_forms():
    """Standard error of 20,000 runs is 0.0035 or less: five of them."""
    env = Scaffold(1, size=20_000)
    tasks = np.arange(env.size)
    for router, exact in ((Always(ZERO, 0), BEST_SINGLE), (Greedy(ZERO), BEST_SINGLE)):
        found = env(router, tasks, 0)
        assert found.reward.mean() == pytest.approx(exact, abs=0.0175)
        assert found.uses.sum(axis=0).tolist() == [60_000, 0, 0, 0]
    again = env(Greedy(ZERO), tasks, 0)
    assert np.array_equal(again.reward, found.reward)
    assert not np.array_equal(env(Greedy(ZERO), tasks, 1).reward, found.reward)


def test_the_standalone_table_misleads_in_the_harness():
    env = Scaffold(0)
    table = env.alone()
    assert len(table) == 12_800
    made = fit_stage1(table)
    assert made.regret.chosen > 0.85  # near the oracle where it was measured ...
    assert env.value(made.head) == pytest.approx(ALONE_BEST, abs=0.01)  # ... and barely above one worker here
    assert env.success(made.head) == pytest.approx(ALONE_BEST, abs=0.025)  # 4,000 runs: 0.0073 standard error


def test_stage_two_leaves_the_plateau_and_reinforce_beside_it():
    env, settings = Scaffold(0), EvolveSettings(seed=0)
    zero = evolve(ZERO, env, settings)
    assert zero.rollouts == 17_280
    assert env.value(zero.head) >= 0.70
    start = fit_stage1(env.alone()).head
    further = evolve(start, env, EvolveSettings(seed=0, repeats=64))
    assert env.value(further.head) >= 0.70
    stuck = evolve(start, env, EvolveSettings(seed=0, repeats=64, sigma=0.3))
    assert env.value(stuck.head) < 0.50  # argmax does not feel steps that small
    rival = reinforce(ZERO, env, ReinforceSettings.like(settings, ZERO))
    assert rival.rollouts == zero.rollouts
    assert env.value(rival.head) > BEST_SINGLE + 0.1
