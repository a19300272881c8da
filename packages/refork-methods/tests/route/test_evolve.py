import math

import numpy as np
import pytest
from cmaes import SepCMA

from refork.errors import BadInput, CannotDo, Mismatch
from refork_methods.route.evolve import (
    EvolveSettings,
    ReinforceSettings,
    evolve,
    fitness,
    leave_one_out,
    recombination,
    reinforce,
)
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Drawn, Episode, Episodes, Greedy, gather
from refork_testbed.trials.scaffold import WORKERS, Scaffold

SMALL = EvolveSettings(iterations=6, repeats=8, seed=3)
ZERO = SelectionHead.zero(WORKERS, 4)


def env(**more):
    return Scaffold(0, d=4, size=200, **more)


def test_sizes_and_weights_of_the_published_run():
    made = recombination(19_456)
    assert (made.population, made.parents) == (33, 16)
    assert made.effective == pytest.approx(9.437, abs=5e-4)
    assert made.weights[0] == pytest.approx(0.1933, abs=5e-5)
    library = SepCMA(mean=np.zeros(19_456), sigma=0.03)
    assert library.population_size == 33
    assert np.allclose(library._weights, made.weights, rtol=0, atol=1e-15)
    assert library._mu_eff == pytest.approx(made.effective)
    # With mu + 1/2 in the logarithm it would be 9.18.
    raw = np.log(16.5) - np.log(np.arange(1, 17))
    assert raw.sum() ** 2 / np.square(raw).sum() == pytest.approx(9.18, abs=0.005)
    # For an even population the library spreads a little more than the formula: 18 candidates here.
    even = SepCMA(mean=np.zeros(128), sigma=1.0)
    assert even.population_size == recombination(128).population == 18
    assert even._mu_eff > recombination(128).effective


def episodes(reward, uses=((1, 1),), turns=2, cost=0.0, failed=False):
    n = len(reward)
    return Episodes(
        np.array(reward, dtype=float), np.full(n, turns), np.array(list(uses) * n),
        np.full(n, cost), np.full(n, failed),
    )  # fmt: skip


def test_fitness_by_hand():
    plain = EvolveSettings()
    assert fitness(episodes([1, 0, 0, 1]), plain, 5) == 0.5
    assert fitness(episodes([1]), EvolveSettings(diversity=0.5), 5) == 1 + 0.5 * math.log(2)
    assert fitness(episodes([1], uses=[(2, 0)]), EvolveSettings(diversity=0.5), 5) == 1
    assert fitness(episodes([0]), EvolveSettings(turns=0.1), 5) == pytest.approx(0.1 * 3 / 5)
    assert fitness(episodes([1], cost=2.0), EvolveSettings(cost=0.25), 5) == 0.5
    assert fitness(episodes([1], cost=math.nan), plain, 5) == 1
    with pytest.raises(BadInput, match="price of 1 of 1 rollouts is unknown"):
        fitness(episodes([1], cost=math.nan), EvolveSettings(cost=0.25), 5)


def test_a_broken_rollout_is_never_better_than_a_finished_one_that_earned_nothing():
    for term in ({"turns": 0.1}, {"cost": 0.1}):
        done = gather([Episode(1.0, (0,), 1.0), Episode(0.0, (0,) * 5, 3.0), Episode(0.0, (0,) * 5, 3.0)], 2)
        broken = gather([Episode(1.0, (0,), 1.0), Episode(0.0, (0,) * 5, 3.0), None], 2)
        settings = EvolveSettings(**term)
        assert fitness(broken, settings, 5) == pytest.approx(fitness(done, settings, 5))
    # Among the candidates of a generation the dearest rollout of all counts.
    alone = gather([Episode(1.0, (0,), 1.0), None], 2)
    assert fitness(alone, EvolveSettings(cost=0.1), 5, dearest=3.0) == pytest.approx(0.3)


def test_unknown_prices_are_refused_before_anything_runs():
    with pytest.raises(BadInput, match=r"worker 0, .* cost counts"):
        evolve(ZERO, env(), EvolveSettings(iterations=1, cost=0.1))
    made = evolve(ZERO, env(price=0.5), EvolveSettings(iterations=1, repeats=2, cost=0.1))
    assert made.log[0].cost == 1.5


class Watched:
    """A scaffold that remembers what it was asked."""

    def __init__(self):
        self.inner, self.asked = env(), []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def __call__(self, router, tasks, seed):
        self.asked.append((tuple(tasks.tolist()), seed, router.head))
        return self.inner(router, tasks, seed)


def test_all_candidates_of_a_generation_meet_the_same_tasks_and_luck():
    watched = Watched()
    made = evolve(ZERO, watched, EvolveSettings(iterations=3, repeats=8))
    size = recombination(16).population
    assert made.rollouts == 3 * size * 8 == sum(len(one[0]) for one in watched.asked)
    for number in range(3):
        part = watched.asked[number * size : (number + 1) * size]
        assert len({one[:2] for one in part}) == 1
        assert len({one[2].digest for one in part}) == size
    assert len({one[:2] for one in watched.asked}) == 3


def test_the_step_is_relative_to_the_heads_scale():
    rows = np.random.default_rng(0).normal(size=(4, 4))
    small, large = (evolve(ZERO.with_weights(rows * k), env(), SMALL) for k in (1.0, 1024.0))
    assert np.allclose(small.head.weights * 1024, large.head.weights)
    assert small.log == large.log
    assert 0.9 < small.log[0].spread < 1.1
    offsets = ZERO.with_weights(100 * rows).with_offsets(("m",), np.zeros(3))
    seen = Watched()
    evolve(offsets, seen, EvolveSettings(iterations=1, offset_sigma=0.03, population=200, repeats=1))
    drawn = np.stack([one[2].offsets for one in seen.asked])
    assert drawn.std() == pytest.approx(0.03, rel=0.1)  # 600 normal numbers: 3 % standard error
    assert (drawn > -1).all()


def test_a_stopped_run_goes_on_to_the_same_result(tmp_path):
    whole = evolve(ZERO, env(), SMALL, folder=tmp_path / "whole")
    part = evolve(ZERO, env(), EvolveSettings(iterations=2, repeats=8, seed=3), folder=tmp_path / "part")
    assert (len(part.log), part.resumed) == (2, 0)
    with (tmp_path / "part" / "evolve.jsonl").open("a") as stream:
        stream.write('{"torn')  # a crash in the middle of a line
    told = []
    again = evolve(
        ZERO,
        env(),
        SMALL,
        folder=tmp_path / "part",
        progress=lambda stage, done, total, **_: told.append(done),
    )
    assert again.resumed == 2
    assert told == [2, 3, 4, 5, 6]
    assert np.array_equal(again.head.weights, whole.head.weights)
    assert again.log == whole.log == evolve(ZERO, env(), SMALL).log
    assert evolve(ZERO, env(), SMALL, folder=tmp_path / "part").resumed == 6


def test_another_run_in_the_folder_is_refused(tmp_path):
    evolve(ZERO, env(), EvolveSettings(iterations=1, repeats=2), folder=tmp_path)
    with pytest.raises(Mismatch, match="settings"):
        evolve(ZERO, env(), EvolveSettings(iterations=1, repeats=3), folder=tmp_path)
    with pytest.raises(Mismatch, match="start"):
        evolve(
            ZERO.with_weights(np.ones((4, 4))),
            env(),
            EvolveSettings(iterations=1, repeats=2),
            folder=tmp_path,
        )
    closed, dear, worse = env(), env(price=0.5), env(skills=np.full((4, 4), 0.5))
    closed.open = WORKERS[:2]
    for other in (env(split=1), closed, dear, worse):
        with pytest.raises(Mismatch, match="environment"):
            evolve(ZERO, other, EvolveSettings(iterations=1, repeats=2), folder=tmp_path)


class Plain:
    """One turn by the first worker, that earns 1; odd tasks fail where they are to."""

    workers, open, unpriced, max_turns, name = WORKERS, None, (), 1, "plain"

    def __init__(self, size=5, fail=False):
        self.size, self.fail = size, fail

    def __call__(self, router, tasks, seed):
        done = [None if self.fail and task % 2 else Episode(1.0, (0,), cost=1.0) for task in tasks]
        return gather(done, len(WORKERS), "the server is away")


def test_errors_of_rollouts_are_outcomes():
    found = Plain(fail=True)(Greedy(ZERO), np.arange(6), 0)
    assert found.reward.tolist() == [1, 0, 1, 0, 1, 0]
    assert (found.failed.sum(), found.reason, found.uses.sum()) == (3, "the server is away", 3)
    made = evolve(ZERO, Plain(50, fail=True), SMALL)
    assert made.failed > 0
    assert made.log[0].reason == "the server is away"
    with pytest.raises(CannotDo, match="all 2 rollouts failed"):
        Plain(fail=True)(Greedy(ZERO), np.array([1, 3]), 0)


def test_a_flat_generation_is_counted():
    made = evolve(ZERO, Plain(), SMALL)
    assert made.flat == 6
    assert made.to_json()["flat"] == 6


def test_reinforce_has_the_evolutions_budget_and_learns():
    settings = EvolveSettings(iterations=20, repeats=16)
    plan = ReinforceSettings.like(settings, ZERO)
    world = Scaffold(0, d=4, size=500)
    made, other = reinforce(ZERO, world, plan), evolve(ZERO, world, settings)
    assert made.rollouts == other.rollouts == 20 * recombination(16).population * 16
    assert np.mean(made.rewards[-3:]) > np.mean(made.rewards[:3]) + 0.1
    assert np.array_equal(reinforce(ZERO, world, plan).head.weights, made.head.weights)
    moved = ZERO.with_offsets(["m"], np.zeros(300))
    assert ReinforceSettings.like(settings, moved).batch == recombination(316).population * 16
    scaled = reinforce(ZERO.with_weights(np.full((4, 4), 2.0)), world, plan)
    assert len(scaled.rewards) == 20


def test_the_score_function_gradient_is_that_of_the_expected_reward():
    """One state, three workers of known reward: the mean estimate of 40,000 draws is the gradient to 0.01."""
    head = SelectionHead(np.array([[0.3], [-0.2], [0.1]]), ("a", "b", "c"))
    worth = np.array([0.9, 0.1, 0.5])
    drawn = Drawn(head, np.random.default_rng(0))
    picks = drawn.choose(np.ones((40_000, 1)), np.arange(40_000))
    p = head.probabilities(np.ones((1, 1)))[0]
    assert np.allclose(np.bincount(picks) / 40_000, p, atol=0.01)
    exact = p * (worth - p @ worth)
    estimate = (leave_one_out(worth[picks])[:, None] * (np.eye(3)[picks] - p)).mean(axis=0)
    assert np.allclose(estimate, exact, atol=0.01)
    assert leave_one_out(worth[picks]).sum() == pytest.approx(0, abs=1e-6)


def test_drawn_workers_are_open_ones():
    drawn = Drawn(ZERO, np.random.default_rng(0), {"worker 1", "worker 3"})
    assert set(drawn.choose(np.ones((100, 4)), np.arange(100)).tolist()) == {1, 3}


def test_refusals():
    with pytest.raises(BadInput, match="are not the head's"):
        evolve(SelectionHead.zero(("a", "b"), 4), env(), SMALL)
    with pytest.raises(BadInput, match="are not the head's"):
        reinforce(SelectionHead.zero(("a", "b"), 4), env())
    with pytest.raises(CannotDo, match="worker rows"):
        reinforce(SelectionHead.zero(WORKERS, 4, ("thinker",)), env())
    with pytest.raises(BadInput, match="taken from a record"):
        reinforce(ZERO, Plain(), ReinforceSettings(1, 4))
    with pytest.raises(BadInput, match=r"outside 0 \.\. 1"):
        episodes([math.nan])
    with pytest.raises(BadInput, match=r"outside 0 \.\. 1"):
        episodes([1.5])
    with pytest.raises(BadInput, match="has no task"):
        evolve(ZERO, Plain(0), SMALL)
    for wrong in ({"sigma": 0.0}, {"repeats": 0}, {"cost": -1.0}, {"population": 1}, {"diversity": math.nan}):
        with pytest.raises(BadInput):
            EvolveSettings(**wrong)
    for wrong in ({"batch": 1}, {"learning_rate": 0.0}):
        with pytest.raises(BadInput):
            ReinforceSettings(**wrong)
