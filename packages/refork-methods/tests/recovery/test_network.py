"""The tiny transformer, and language models read and walked on the maze."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.policies.open import open_policy
from refork.policies.scripted import ScriptedPolicy
from refork.worlds.open import open_world
from refork_methods.recovery.censored import censored_mean
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.maze import maze_world
from refork_methods.recovery.measure import measure_hitting, read_rows, straight_ways
from refork_methods.recovery.rows import BACKWARD, FORWARD, RowPolicy
from refork_methods.recovery.sample import count_moves, golden_moves, sample_paths
from refork_testbed.trials.maze import (
    NodeTransformer,
    network_rlvr,
    network_sft,
    node_contexts,
    pretrain,
)

GRAPH = PathStar(3, 3, 3)
CAP = 400


def walked(network):
    walks = sample_paths(network.policy(), 2000, CAP, np.random.default_rng(1))
    return censored_mean(walks.steps, walks.reached)


def test_contexts_are_the_last_two_nodes_of_each_row():
    seen, goes = node_contexts(2)
    # source 0, fork 1, leaf 2, left 3 5, right 4 6; rows a, b, c, d of diamonds 0 and 1.
    assert seen.tolist() == [[3, 4], [5, 6], [5, 4], [2, 6], [1, 3], [4, 5], [4, 3], [6, 5]]
    assert goes.tolist() == [[5, 3], [2, 5], [3, 5], [5, 2], [4, 1], [6, 4], [1, 4], [4, 6]]
    assert len({tuple(pair) for pair in seen.tolist()}) == len(seen)


def test_reward_before_distillation_before_base_before_imitation():
    base = NodeTransformer(GRAPH)
    began = pretrain(base).curve[-1][1]
    assert began == pytest.approx(326, abs=0.5)
    student, actor, pupil = (copy.deepcopy(base) for _ in range(3))
    imitated = network_sft(student, golden_moves(GRAPH))
    rewarded = network_rlvr(actor, seed=0)
    walks = sample_paths(actor.policy(), 100, CAP, np.random.default_rng(3))
    distilled = network_sft(pupil, count_moves(walks.only(walks.reached)))
    assert rewarded.curve[-1][1] < 70
    assert distilled.curve[-1][1] < 70
    assert imitated.curve[-1][1] > began
    # Shared weights: rows that nothing teaches move with the others, and here for the worse.
    assert imitated.drift(BACKWARD) > 0.05
    assert imitated.after[list(FORWARD)].min() > 0.99
    assert rewarded.after[list(BACKWARD)].min() > 0.9
    measured = {name: walked(net) for name, net in (("base", base), ("sft", student), ("rl", actor))}
    assert measured["rl"].complete
    assert measured["rl"].restricted < measured["base"].restricted < CAP
    assert measured["sft"].censored > measured["base"].censored
    with pytest.raises(BadInput, match="no moves"):
        network_sft(student, np.zeros((4, 3, 2)))


def test_a_uniform_walker_is_read_as_one():
    world = maze_world(3, 2, 2)
    read = read_rows(open_policy("scripted:walker"), world, world.tasks("held-out", 2))
    assert np.allclose(read.desired, RowPolicy.base(PathStar(3, 2, 2)).desired, atol=1e-6)
    assert np.allclose(read.mass, 1.0, atol=1e-6)
    # Rows a and c in two branches, b and d in the dead one, two diamonds, two tasks.
    assert read.states == 2 * (2 * 2 * 2 + 2 * 2)
    assert read.policy(world).graph == PathStar(3, 2, 2)


def test_straight_ways_lead_to_the_leaf_and_back():
    world = maze_world(2, 2, 2)
    (task,) = world.tasks("train", 1)
    game = world.game(task)
    dead, won = (straight_ways(game, b) for b in ((game.target + 1) % 2, game.target))
    assert [game.graph.row(p.state) for p in dead] == list("cacabdbd")
    assert [game.graph.row(p.state) for p in won] == list("caca")
    assert [len(path) for path in dead.values()] == [2, 3, 4, 5, 7, 8, 9, 10]


def test_walks_that_ran_out_of_turns_count_as_cut():
    world = open_world("maze:2,1,1?cap=6")
    found = measure_hitting(open_policy("scripted:walker"), world, world.tasks("held-out", 40))
    assert found.count == 40
    assert found.censored > 0
    assert found.horizon == 6
    assert found.restricted <= 6


def test_what_cannot_be_measured_is_refused():
    walker, world = open_policy("scripted:walker"), maze_world(2, 1, 2)
    with pytest.raises(BadInput, match="not a maze"):
        read_rows(walker, open_world("lock"), [])
    with pytest.raises(BadInput, match="not a maze"):
        measure_hitting(walker, open_world("household:1"), [])
    with pytest.raises(BadInput, match="a task and a dead branch"):
        read_rows(walker, world, [])
    mute = ScriptedPolicy.from_replies(["no"], name="mute")
    with pytest.raises(CannotDo, match="probability 0"):
        read_rows(mute, world, world.tasks("held-out", 1))
    wide = maze_world(2, 1, 11)
    with pytest.raises(CannotDo, match="begins"):
        read_rows(walker, wide, wide.tasks("held-out", 1))
