from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.growing import RandomNode, grow_trees
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_methods.credit.segments import segment_credit, tree_advantages, walk_stretches, walk_tree
from refork_methods.credit.siblings import leaf_mean_values


def test_a_stretch_without_forks_shares_what_it_gained():
    #  0 - 1 - 2 - (3 - 4 | 5 - 6)
    parents = [-1, 0, 1, 2, 3, 2, 5]
    outcomes = [np.nan] * 4 + [1.0, np.nan, 0.0]
    credit = segment_credit(parents, leaf_mean_values(parents, outcomes))
    assert np.isnan(credit[0])
    assert credit[1:].tolist() == [0.0, 0.0, 0.5, 0.5, -0.5, -0.5]


def test_nested_forks_are_credited_against_the_nearest():
    #  0 - (1 | 2 - (3 | 4))
    parents = [-1, 0, 0, 2, 2]
    outcomes = [np.nan, 0.0, np.nan, 1.0, 0.0]
    values = leaf_mean_values(parents, outcomes)
    credit = segment_credit(parents, values)
    assert credit[1] == pytest.approx(0.0 - 1 / 3)
    assert credit[2] == pytest.approx(0.5 - 1 / 3)
    assert credit[3] == pytest.approx(0.5)
    assert credit[4] == pytest.approx(-0.5)


def test_ungraded_leaves_give_no_credit():
    credit = segment_credit([-1, 0, 0], [1.0, 1.0, np.nan])
    assert credit[1] == 0.0
    assert np.isnan(credit[2])


def test_any_node_may_be_the_first_and_the_last():
    # 1 - 0 - (2 | 3): the fork is node 0. Then 0 - (1 | 3 - 2), where nobody knows what 2 is worth.
    assert segment_credit([1, -1, 0, 0], [0.5, 0.25, 1.0, 0.0])[[0, 2, 3]].tolist() == [0.25, 0.5, -0.5]
    credit = segment_credit([-1, 0, 3, 0], [0.5, 1.0, None, 0.0])
    assert credit[[1, 3]].tolist() == [0.5, -0.5]
    assert np.isnan(credit[[0, 2]]).all()
    assert segment_credit([], []).tolist() == []


def test_renaming_nodes_changes_nothing():
    parents = np.array([-1, 0, 0, 1, 1, 2, 5])
    values = np.array([0.4, 0.6, 0.2, 1.0, 0.2, 0.2, 0.2])
    rng = np.random.default_rng(0)
    order = rng.permutation(len(parents))
    place = np.argsort(order)
    renamed = np.where(parents[order] < 0, -1, place[parents[order]])
    assert np.array_equal(
        segment_credit(renamed, values[order]), segment_credit(parents, values)[order], equal_nan=True
    )


@pytest.fixture(scope="module")
def grown():
    world = open_world("household:1")
    policy = ScriptedPolicy.from_replies(["go north", "go south", "go west", "go east", "take key"])
    with Tree.memory() as tree:
        groups, _ = grow_trees(
            tree, policy, world, world.tasks("train", 1), selector=RandomNode(0, 3, 2), leaves=7,
            settings=Sampling(max_tokens=12),
        )  # fmt: skip
        yield [trajectory for arm in groups[0].forks for trajectory in arm.leaves()]


def test_advantages_fit_the_tokens_of_every_walk(grown):
    given = tree_advantages(grown, np.arange(7) % 2)
    for trajectory, row in zip(grown, given, strict=True):
        assert len(row) == sum(
            len(s.tokens) for s in trajectory if s.tokens is not None and s.node.kind != "verdict"
        )


def test_equal_outcomes_give_exactly_zero(grown):
    assert all((row == 0.0).all() for row in tree_advantages(grown, np.ones(7)))


def test_without_the_local_part_it_is_the_plain_group_mean_of_what_lies_below(grown):
    outcomes = np.array([1.0, 0, 0, 0, 0, 0, 0])
    rows = tree_advantages(grown, outcomes, local=0.0)
    last = rows[0][-1]
    assert last == pytest.approx(1 - 1 / 7)
    assert rows[0][0] == pytest.approx(0.0), "the task's own tokens belong to all"


def test_shared_tokens_get_the_same_advantage_in_every_walk(grown):
    outcomes = np.array([1.0, 0, 1, 0, 1, 0, 0])
    rows = tree_advantages(grown, outcomes)
    seen: dict[str, float] = {}
    for trajectory, row in zip(grown, rows, strict=True):
        at = 0
        for step in trajectory:
            if step.node.kind == "verdict" or step.tokens is None or not len(step.tokens):
                continue
            value = float(row[at])
            assert seen.setdefault(step.node.id, value) == value
            at += len(step.tokens)


def test_a_fork_inside_a_node_splits_its_credit(node, walk):
    task = node("t", "task", [1, 2])
    said = node("a", tokens=[3, 4, 5], parent="t")
    other = node("b", tokens=[6], parent="a", keep=1)
    trajectories = [walk(task, said), walk(task, said, other, keeps=[None, 1])]
    first, second = tree_advantages(trajectories, [1.0, 0.0])
    # The value of the shared token is 1/2, that of the task too; then 1 and 0.
    assert first.tolist() == [0, 0, 0, 1.0, 1.0]
    assert second.tolist() == [0, 0, 0, -1.0]


def test_a_branch_without_an_outcome_is_no_branch(node, walk):
    task = node("t", "task", [1])
    said = node("a", tokens=[3, 4], parent="t")
    unknown = node("b", tokens=[6], parent="a", keep=1)
    other = node("c", tokens=[7], parent="t")
    trajectories = [walk(task, said), walk(task, said, unknown, keeps=[None, 1]), walk(task, other)]
    first, second, third = tree_advantages(trajectories, [1.0, np.nan, 0.0])
    assert first.tolist() == [0, 1.0, 1.0]
    assert second[:2].tolist() == [0, 1.0]
    assert np.isnan(second[2])
    assert third.tolist() == [0, -1.0]


def test_walks_as_arrays(node, walk):
    task, said = node("t", "task", [1]), node("a", tokens=[3, 4], parent="t")
    behind, other = node("b", tokens=[5], parent="a"), node("c", tokens=[6, 7], parent="t")
    trajectories = [walk(task, said, behind), walk(task, other)]
    index, parents, graded = walk_tree(trajectories, [1, 0])
    assert index == {"t": 0, "a": 1, "b": 2, "c": 3}
    np.testing.assert_array_equal(parents, np.array([-1, 0, 1, 0]), strict=True)
    np.testing.assert_array_equal(graded, [np.nan, np.nan, 1.0, 0.0])
    np.testing.assert_array_equal(walk_tree(trajectories, [1, None])[2], [np.nan, np.nan, 1.0, np.nan])
    index, parents, graded = walk_tree([], [])
    assert (index, parents.dtype, graded.dtype) == ({}, np.int64, np.float64)
    cut, earned = walk_stretches(trajectories, [1, None])
    assert cut.parents.tolist() == [-1, 0, 1, 0]
    np.testing.assert_array_equal(earned, np.array([np.nan, np.nan, 1.0, np.nan]), strict=True)


def test_walks_of_two_tasks_are_refused(node, walk):
    with pytest.raises(BadInput, match="2 tasks"):
        tree_advantages([walk(node("t", "task", [1])), walk(node("u", "task", [1]))], [1.0, 0.0])
    with pytest.raises(BadInput, match="outcomes"):
        tree_advantages([walk(node("t", "task", [1]))], [1.0, 0.0])
    assert tree_advantages([], []) == []
