from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing import ForkChoice, Independent, RandomNode, candidates, grow, grow_trees, plant
from refork.growing.run import _summary
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.base import Observation
from refork.worlds.open import open_world

LAW = Sampling(max_tokens=12, entropy_top_k=8)
WORLD = open_world("household:1")
MOVES = ["go north", "go south", "go west", "go east", "take key"]


@pytest.fixture
def policy() -> ScriptedPolicy:
    return ScriptedPolicy.from_replies(MOVES)


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def rows(tree):
    return sorted((n.id, n.parent, n.keep, n.kind, n.text, n.state_key, n.snapshot) for n in tree.walk())


def test_every_rollout_ends_in_a_verdict(tree, policy):
    groups = grow(tree, policy, WORLD, WORLD.tasks("train", 3), draws=4, settings=LAW)
    assert [len(g.values()) for g in groups] == [4, 4, 4]
    for group in groups:
        for trajectory in group.forks[0].leaves():
            assert trajectory.leaf.kind == "verdict"
            assert trajectory.steps[0].node.kind == "task"
            kinds = [s.node.kind for s in trajectory.steps[1:-1]]
            assert kinds[0::2] == ["action"] * len(kinds[0::2])
            assert kinds[1::2] == ["observation"] * len(kinds[1::2])


def test_rewards_are_scores_of_the_world(tree, policy):
    group = grow(tree, policy, WORLD, WORLD.tasks("train", 1), draws=2, settings=LAW)[0]
    leaf = group.forks[0].leaves()[0].leaf
    names = {s.name: s for s in tree.scores(node=leaf.id)}
    assert set(names) == {"reward", "success"}
    producer = next(p for p in tree.producers() if p.id == names["reward"].producer)
    assert producer.name.startswith("world:household")


def test_growing_again_draws_nothing_and_blocks_do_not_matter(tree, policy):
    tasks = WORLD.tasks("train", 5)
    grow(tree, policy, WORLD, tasks, draws=3, settings=LAW)
    before = rows(tree)
    again = grow(tree, policy, WORLD, tasks, draws=3, settings=LAW, tasks_at_once=2)
    assert sum(g.tokens for g in again) == 0
    assert rows(tree) == before


def test_interrupted_growing_resumes_to_the_same_tree(policy):
    calls = 0

    def stop(stage, done, total, *, tokens=None, waiting=None):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt

    tasks = WORLD.tasks("train", 2)
    with Tree.memory() as broken, Tree.memory() as whole:
        with pytest.raises(KeyboardInterrupt):
            grow(broken, policy, WORLD, tasks, draws=3, settings=LAW, progress=stop)
        grow(broken, policy, WORLD, tasks, draws=3, settings=LAW)
        grow(whole, policy, WORLD, tasks, draws=3, settings=LAW)
        assert rows(broken) == rows(whole)


class Broken:
    """A world whose third step raises."""

    name, version, max_turns, deterministic = "broken", "1", 5, True

    def tasks(self, split, count, seed=0):
        return [replace(task, world=self.name) for task in WORLD.tasks(split, count, seed)]

    def start(self, task, seed):
        return BrokenEpisode(task)

    def restore(self, task, snapshot):
        raise AssertionError


class BrokenEpisode:
    def __init__(self, task):
        self.task, self.turn = task, 0
        self.first = Observation("begin")

    def step(self, action):
        self.turn += 1
        if self.turn == 3 and action == MOVES[0]:
            raise RuntimeError("the world broke")
        return Observation(f"turn {self.turn}")

    def snapshot(self):
        return None

    def reseed(self, seed):
        pass

    def close(self):
        pass


def test_a_broken_rollout_is_data_and_the_others_go_on(tree, policy):
    group = grow(tree, policy, Broken(), Broken().tasks("train", 1), draws=24, settings=LAW)[0]
    ends = [d.end for d in group.forks[0].draws]
    assert ends.count("error") > 0
    assert ends.count("limit") == 24 - ends.count("error")
    bad = next(d for d in group.forks[0].draws if d.end == "error")
    assert "the world broke" in bad.error
    assert group.values()[bad.draw] is None
    assert tree.node(bad.leaf).error


def test_turn_limit_counts_as_failure_not_as_ungraded(tree, policy):
    group = grow(tree, policy, WORLD, WORLD.tasks("train", 2), draws=2, settings=LAW, max_turns=1)[0]
    assert group.values() == [0.0, 0.0]
    assert group.forks[0].leaves()[0].leaf.extra["reason"] == "turn limit"


def test_nothing_to_grow_is_refused(tree, policy):
    with pytest.raises(BadInput, match="no task"):
        grow(tree, policy, WORLD, [], draws=1, settings=LAW)
    with pytest.raises(BadInput, match="draws is 0"):
        grow(tree, policy, WORLD, WORLD.tasks("train", 1), draws=0, settings=LAW)


def test_one_task_is_one_root(tree, policy):
    tasks = WORLD.tasks("train", 2)
    first = plant(tree, policy, WORLD, tasks)
    assert [p.node.id for p in plant(tree, policy, WORLD, tasks)] == [p.node.id for p in first]
    other = ScriptedPolicy.from_replies(["go nowhere"])
    assert plant(tree, other, WORLD, tasks)[0].node.id != first[0].node.id


def test_independent_selector_is_plain_growing(policy):
    tasks = WORLD.tasks("train", 2)
    with Tree.memory() as one, Tree.memory() as two:
        groups, log = grow_trees(one, policy, WORLD, tasks, selector=Independent(), leaves=4, settings=LAW)
        plain = grow(two, policy, WORLD, tasks, draws=4, settings=LAW)
        assert [g.values() for g in groups] == [g.values() for g in plain]
        assert rows(one) == rows(two)
        assert [entry.round for entry in log] == [0, 0]


def test_random_nodes_make_a_tree_with_the_asked_leaves(tree, policy):
    tasks = WORLD.tasks("train", 2)
    chooser = RandomNode(seed=3, roots=2, at_once=2)
    groups, log = grow_trees(tree, policy, WORLD, tasks, selector=chooser, leaves=8, settings=LAW)
    assert [len(g.values()) for g in groups] == [8, 8]
    assert max(entry.round for entry in log) == 3
    before = rows(tree)
    again, log2 = grow_trees(tree, policy, WORLD, tasks, selector=chooser, leaves=8, settings=LAW)
    assert rows(tree) == before
    assert [e.point for e in log2] == [e.point for e in log]
    assert sum(g.tokens for g in again) == 0


def test_candidates_count_leaves_and_wins(tree, policy):
    group = grow(tree, policy, WORLD, WORLD.tasks("train", 1), draws=6, settings=LAW)[0]
    trajectories = group.forks[0].leaves()
    known = candidates(tree, trajectories)
    root = int(np.argmin(known.depth))
    assert known.node[root] == group.root.node.id
    assert known.leaves[root] == 6
    assert known.wins[root] == sum(group.values())
    assert known.children[root] == 6
    assert np.isfinite(known.entropy[known.token >= 0]).all()
    # A turn's first token is drawn at the point where the turn begins.
    assert known.entropy[root] == pytest.approx(-0.8 * np.log(0.8) - 0.2 * np.log(0.2))
    assert known.note.startswith("over the 8 likeliest tokens")


def test_selectors_are_deterministic():
    class Fake:
        node = tuple("abcdef")
        depth = np.arange(6)

        def __len__(self):
            return 6

    chooser = RandomNode(seed=1, roots=3, at_once=4)
    assert chooser.select(Fake(), 10, 0) == [ForkChoice(0, 3, {})]
    assert chooser.select(Fake(), 10, 2) == chooser.select(Fake(), 10, 2)
    assert len(chooser.select(Fake(), 2, 1)) == 2


def test_the_interval_of_a_run_counts_its_tasks(tmp_path):
    """Ten tasks, half of them always solved: the 64 rollouts of a task say little more than one."""

    def group(value):
        arm = SimpleNamespace(values=lambda: [value] * 63 + [None], point="task", draws=())
        return SimpleNamespace(forks=[arm], root="task", tokens=5)

    found = _summary([group(float(number % 2)) for number in range(10)], tmp_path)
    assert (found["tasks"], found["rollouts"], found["graded"], found["tokens"]) == (10, 640, 630, 50)
    assert found["rate"] == 0.5
    assert (found["low"], found["high"]) == pytest.approx((0.2, 0.8), abs=0.05)
