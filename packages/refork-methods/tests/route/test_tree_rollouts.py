import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.policies.base import Continuation, Sampling
from refork.tree import Tree
from refork.types import token_array
from refork_methods.route import Price, Worker, WorkerPool
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.evolve import EvolveSettings, ReinforceSettings, evolve, reinforce
from refork_methods.route.head import SelectionHead
from refork_methods.route.rollouts import Greedy, TreeRollouts
from refork_methods.route.training import Always, trial
from refork_testbed.worlds.specialists import SpecialistsWorld, features, specialist, success_of
from support.models import tiny_policy

WIDTH = 8
WORLD = SpecialistsWorld()
FREE = Price(0, 0, 0)


def pool(price=FREE):
    return WorkerPool.of(*(Worker(f"w{i}", specialist(i), price=price) for i in range(4)))


def read(talks):
    return np.stack([features(talk[-1]["content"], WIDTH) for talk in talks])


def rollouts(members=None, tasks=24, split="train", **more):
    return TreeRollouts(members or pool(), WORLD, WORLD.tasks(split, tasks), read, **more)


ZERO = SelectionHead.zero(("w0", "w1", "w2", "w3"), WIDTH)


def test_single_workers_succeed_as_their_skills_say():
    """150 runs: the standard error is 0.037 or less; four of them."""
    env = rollouts(tasks=150)
    for worker in (0, 2):
        found = env(Always(ZERO, worker), np.arange(150), 0)
        assert found.reward.mean() == pytest.approx(success_of((worker,) * 4), abs=0.15)
        assert found.uses[:, worker].tolist() == [3] * 150
        assert found.cost.tolist() == [0] * 150
        assert not found.failed.any()


def test_what_decides_a_rollout_is_in_its_name():
    settings = Sampling(temperature=0.5)
    others = [
        rollouts(pool(Price(1, 1, 1))),
        rollouts(tasks=23),
        rollouts(settings=settings),
        rollouts(split="held-out"),
    ]
    assert len({rollouts().name, *(one.name for one in others)}) == 5
    assert rollouts().name == rollouts().name


def test_runs_are_recorded_and_a_function_of_task_place_and_seed():
    tree = Tree.memory()
    env = rollouts(tree=tree)
    tasks = np.array([5, 2, 5, 5])
    one = env(Greedy(ZERO), tasks, 7)
    assert len(list(tree.tasks())) == 2
    count = len(tree)
    again = env(Greedy(ZERO), tasks, 7)
    assert len(tree) == count  # drawn before, so found again
    assert np.array_equal(one.reward, again.reward)
    fresh = rollouts()(Greedy(ZERO), tasks, 7)
    assert np.array_equal(one.reward, fresh.reward)
    fewer = env(Greedy(ZERO), tasks[:2], 7)
    assert np.array_equal(fewer.reward, one.reward[:2])
    same = env(Greedy(ZERO.with_weights(np.full((4, WIDTH), 2.0))), tasks, 7)
    assert np.array_equal(same.reward, one.reward)  # another head that chooses alike has the same luck
    speakers = {n.extra.get("worker") for t in tree.tasks() for n in tree.walk(t) if n.kind == "action"}
    assert speakers == {"w0"}


def test_evolution_through_the_real_engine():
    env, held = rollouts(), rollouts(tasks=60, split="held-out")
    made = evolve(ZERO, env, EvolveSettings(iterations=4, repeats=10, seed=1))
    assert made.rollouts == 4 * 14 * 10
    told = trial({"evolved": made.head, "start": ZERO}, held, 60, 0)
    assert set(told["means"]) == {"start", "always w0", "always w1", "always w2", "always w3"}
    assert told["mean"] > told["means"]["start"] + 0.05
    assert told["gap"]["estimate"] == pytest.approx(told["mean"] - max(told["means"].values()))
    with pytest.raises(BadInput, match="no interval"):
        trial({"evolved": made.head, "start": ZERO}, held, 1, 0)


def test_reinforce_through_the_real_engine():
    env = rollouts()
    made = reinforce(ZERO, env, ReinforceSettings(3, 20))
    assert made.rollouts == 60
    assert np.abs(made.head.weights).max() > 0
    with pytest.raises(BadInput, match="taken from a record"):  # those runs are on the tree already
        reinforce(ZERO, env, ReinforceSettings(3, 20))


def test_an_opted_out_worker_is_never_called():
    env = rollouts(pool().without("w0", "w3"))
    found = env(Greedy(ZERO, env.open), np.arange(10), 0)
    assert found.uses.sum(axis=0).tolist() == [0, 30, 0, 0]
    made = evolve(ZERO, env, EvolveSettings(iterations=1, repeats=4))
    assert made.failed == 0


def test_unknown_prices_stay_unknown():
    env = rollouts(pool(None))
    assert np.isnan(env(Greedy(ZERO), np.arange(3), 0).cost).all()
    with pytest.raises(BadInput, match="w0, w1, w2, w3 is unknown"):
        evolve(ZERO, env, EvolveSettings(iterations=1, cost=1.0))


class Broken:
    """A worker that fails wherever it is asked."""

    def __init__(self):
        self.card = specialist(0).card
        self.encode, self.decode, self.render = (
            specialist(0).encode,
            specialist(0).decode,
            specialist(0).render,
        )

    def sample(self, requests, settings):
        for index, _ in enumerate(requests):
            yield Continuation(index, token_array([]), "", "error", error="away")


def test_a_failing_worker_is_an_outcome():
    members = WorkerPool.of(
        Worker("w0", Broken(), price=FREE), *(Worker(f"w{i}", specialist(i), price=FREE) for i in (1, 2, 3))
    )
    env = rollouts(members)
    with pytest.raises(CannotDo, match=r"all 4 rollouts failed: .*away"):
        env(Greedy(ZERO), np.arange(4), 0)
    rows = np.random.default_rng(0).normal(size=(4, WIDTH))
    found = env(Greedy(ZERO.with_weights(rows)), np.arange(24), 0)
    assert 0 < found.failed.sum() < 24
    assert not found.reward[found.failed].any()
    assert "away" in found.reason


def test_a_real_backbone_reads_and_its_offsets_evolve():
    backbone = RouterBackbone(tiny_policy(), window=24)
    adapter = backbone.adapter(["model.layers.0.mlp.down_proj"])
    env = TreeRollouts(pool(), WORLD, WORLD.tasks("train", 6), backbone)
    start = SelectionHead(np.random.default_rng(0).normal(size=(4, 32)), ZERO.workers).on(backbone)
    start = start.with_offsets(tuple(adapter.counts), np.zeros(adapter.count))
    before = backbone.states(["user: x"])
    made = evolve(start, env, EvolveSettings(iterations=2, repeats=3, population=4))
    assert made.head.matrices == ("model.layers.0.mlp.down_proj",)
    assert np.abs(made.head.offsets).max() > 0
    assert np.array_equal(backbone.states(["user: x"]), before)
    with pytest.raises(BadInput, match="nothing reads with a backbone"):
        rollouts()(Greedy(ZERO.with_offsets(("m",), np.zeros(2))), np.arange(2), 0)


def test_no_task_is_refused():
    with pytest.raises(BadInput, match="no task"):
        rollouts(tasks=0)
