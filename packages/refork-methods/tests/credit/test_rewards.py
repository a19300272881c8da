"""Group credit from rewards, turn by turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.tree.node import NewNode, Trajectory
from refork.tree.tree import Tree
from refork.types import token_array
from refork_methods.credit.rewards import FLOOR, _turns, reward_credit, round_advantages

marks = st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=2, max_size=12)


@given(marks)
@settings(max_examples=60, deadline=None)
def test_a_groups_advantages_sum_to_zero_with_unit_deviation(rewards: list[float]) -> None:
    given_ = round_advantages(rewards, [1] * len(rewards))[:, 0]
    assert given_.sum() == pytest.approx(0, abs=1e-9)
    if len(set(rewards)) > 1:
        assert given_.std() == pytest.approx(1)
    else:
        assert (given_ == 0).all()


def test_half_marks_count() -> None:
    given_ = round_advantages([0.0, 0.5, 1.0], [1, 1, 1])[:, 0]
    assert given_.tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])


def test_rounding_noise_is_no_difference() -> None:
    rewards = [0.9, 0.9 + FLOOR / 10, 0.9]
    assert (round_advantages(rewards, [1, 1, 1]) == 0).all()
    assert (round_advantages([0.9, 0.9 + 10 * FLOOR, 0.9], [1, 1, 1]) != 0).all()


def test_a_later_turn_is_normalised_for_itself_and_discounted() -> None:
    given_ = round_advantages([0.0, 1.0, 1.0, 0.0], [1, 1, 2, 2], discount=0.2)
    assert given_[:, 0].tolist() == [-1, 1, 1, -1]
    assert np.isnan(given_[:2, 1]).all()
    assert given_[2:, 1].tolist() == pytest.approx([0.2, -0.2])
    alone = round_advantages([0.0, 1.0, 1.0], [1, 1, 2], discount=0.2)
    assert alone[2, 1] == 0.0


def test_ungraded_walks_take_no_part() -> None:
    given_ = round_advantages([0.0, np.nan, 1.0], [1, 1, 1])[:, 0]
    assert given_[[0, 2]].tolist() == [-1, 1]
    assert np.isnan(given_[1])
    assert np.isnan(round_advantages([np.nan, np.nan], [1, 1])).all()


def test_a_deviation_of_the_floor_counts_and_below_it_does_not() -> None:
    assert round_advantages([0.0, 1.0], [1, 1], floor=0.5)[:, 0].tolist() == [-1, 1]
    assert round_advantages([0.0, 1.0], [1, 1], floor=0.75)[:, 0].tolist() == [0, 0]


def test_what_nobody_graded_is_none_too_and_a_discount_of_nothing_leaves_the_first_turn() -> None:
    given_ = round_advantages([0.0, None, 1.0], [2, 2, 2], discount=0.0)
    assert given_[[0, 2]].tolist() == [[-1, 0], [1, 0]]
    assert np.isnan(given_[1]).all()
    assert round_advantages([], []).shape == (0, 0)


def test_what_does_not_fit_is_refused() -> None:
    for rewards, turns, options in (
        ([1.0], [1, 1], {}),
        ([1.0], [0], {}),
        ([1.0], [1], {"discount": 1.5}),
        ([1.0], [1], {"discount": -0.5}),
        ([1.0], [1], {"floor": 0.0}),
    ):
        with pytest.raises(BadInput):
            round_advantages(rewards, turns, **options)
    with pytest.raises(BadInput):
        reward_credit([], [1.0])


def walk(tree: Tree, turns: int, reward: float | None, number: int) -> Trajectory:
    """A task of two tokens, turns of three with observations of one between them, and a verdict."""
    node = tree.append(NewNode(kind="task", key=f"t{number}", tokens=token_array([1, 2])))[0]
    for turn in range(turns):
        node = tree.append(NewNode(kind="action", parent=node.id, tokens=token_array([3, 4, 5])))[0]
        if turn < turns - 1:
            node = tree.append(NewNode(kind="observation", parent=node.id, tokens=token_array([6])))[0]
    node = tree.append(NewNode(kind="verdict", parent=node.id, extra={"reward": reward}))[0]
    return tree.path(node)


def test_tokens_get_the_advantage_of_their_turn() -> None:
    with Tree.memory() as tree:
        trajectories = [
            walk(tree, 1, 0.0, 0),
            walk(tree, 2, 1.0, 1),
            walk(tree, 2, 0.5, 2),
            walk(tree, 1, None, 3),
        ]
        one, two, three, none = reward_credit(trajectories, [0.0, 1.0, 0.0, np.nan], discount=0.5)
        first = round_advantages([0.0, 1.0, 0.5], [1, 1, 1])[:, 0]
        assert one.tolist() == pytest.approx([first[0]] * 5)
        assert two.tolist() == pytest.approx([first[1]] * 5 + [0.5] * 4)
        assert three.tolist() == pytest.approx([first[2]] * 5 + [-0.5] * 4)
        assert np.isnan(none).all()
        assert len(none) == 5


def test_a_later_turn_counts_in_full_unless_told_otherwise() -> None:
    with Tree.memory() as tree:
        one, two = reward_credit([walk(tree, 2, 0.0, 0), walk(tree, 2, 1.0, 1)], [0.0, 1.0])
        assert (set(one), set(two)) == ({-1.0}, {1.0})
        none, _ = reward_credit([walk(tree, 2, 0.0, 0), walk(tree, 2, 1.0, 1)], [0.0, 1.0], floor=0.75)
        assert set(none) == {0.0}


def test_a_turn_begins_where_somebody_else_speaks_behind_an_action(node, walk) -> None:
    """Two events between actions are one pause; what holds no tokens and the verdict get no advantage."""
    worth = {"extra": {"reward": 1.0}}
    said, seen = (lambda name: node(name, tokens=[1, 2])), (lambda name: node(name, "observation", [3]))
    first = walk(
        node("t", "task", [4]), seen("e"), said("a"), node("n", "observation", None), seen("b"), seen("c"),
        said("d"), node("v", "verdict", [9], **worth),
    )  # fmt: skip
    other = walk(node("t", "task", [4]), said("x"), node("w", "verdict", None, extra={"reward": 0.0}))
    empty = walk(node("u", "task", None), node("z", "verdict", None, extra={"reward": 0.5}))
    assert _turns(first).tolist() == [0] * 4 + [1] * 4
    assert _turns([*first, *walk(seen("z"), seen("y"))]).tolist() == [0] * 4 + [1] * 6
    assert _turns(walk(node("t", "task", [4]), seen("e"), seen("y"))).tolist() == [0] * 3
    assert _turns(walk(said("a"), seen("b"))).tolist() == [0] * 3, "the only turn"
    assert _turns(empty).dtype == np.int64
    found = reward_credit([first, other, empty], [1.0, 0.0, 1.0], discount=0.5)
    high = 1.5**0.5
    assert found[0].tolist() == pytest.approx([high] * 4 + [0.0] * 4), "alone in its second turn"
    assert found[1].tolist() == pytest.approx([-high] * 3)
    assert found[2].tolist() == []


def test_only_a_graded_verdict_tells_a_reward(node, walk) -> None:
    def ended(name, kind, reward):
        return walk(node("t", "task", [4]), node(name, kind, [1] if kind == "action" else None, extra=reward))

    told = [
        ("a", "verdict", {"reward": 1.0}),
        ("b", "verdict", {"reward": 0.0}),
        ("c", "verdict", {"reward": 9.0}),
        ("d", "verdict", {"reward": None}),
        ("e", "verdict", {}),
        ("f", "action", {"reward": 9.0}),
    ]
    found = reward_credit([ended(*one) for one in told], [1.0, 0.0, None, 1.0, 1.0, 1.0])
    assert [set(one) for one in found[:2]] == [{1.0}, {-1.0}]
    assert all(np.isnan(one).all() for one in found[2:])
