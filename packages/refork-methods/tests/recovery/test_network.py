"""The tiny transformer on the maze."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.recovery.censored import censored_mean
from refork_methods.recovery.graph import PathStar
from refork_methods.recovery.rows import BACKWARD, FORWARD
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
    trajectories = sample_paths(network.policy(), 2000, CAP, np.random.default_rng(1))
    return censored_mean(trajectories.steps, trajectories.reached)


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
    rewarded = network_rlvr(actor)
    trajectories = sample_paths(actor.policy(), 100, CAP, np.random.default_rng(3))
    distilled = network_sft(pupil, count_moves(trajectories.only(trajectories.reached)))
    assert rewarded.curve[-1][1] < 70
    assert distilled.curve[-1][1] < 70
    assert imitated.curve[-1][1] > began
    # Shared weights: rows that nothing teaches move with the others, and here for the worse.
    assert np.abs(imitated.after - imitated.before)[list(BACKWARD)].max() > 0.05
    assert imitated.after[list(FORWARD)].min() > 0.99
    assert rewarded.after[list(BACKWARD)].min() > 0.9
    measured = {name: walked(net) for name, net in (("base", base), ("sft", student), ("rl", actor))}
    assert measured["rl"].censored == 0
    assert measured["rl"].restricted < measured["base"].restricted < CAP
    assert measured["sft"].censored > measured["base"].censored
    with pytest.raises(BadInput, match="no moves"):
        network_sft(student, np.zeros((4, 3, 2)))
