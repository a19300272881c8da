"""The search tree: its counts, its widening, its dead ends."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork_methods.kernel.search.strategy import SearchSettings, SearchTree, reward


def grown(rewards: list[float], settings: SearchSettings | None = None) -> SearchTree:
    """A tree whose choices take these rewards in turn."""
    tree = SearchTree(0.15, settings)
    for value in rewards:
        at = tree.select()
        if at is None:
            break
        assert not tree.nodes[at].pruned
        tree.add(at, value)
    return tree


rewards_ = st.lists(st.one_of(st.just(0.0), st.floats(0.05, 1.0)), max_size=60)


@given(rewards_)
def test_counts_and_bounds_hold_whatever_happens(rewards: list[float]) -> None:
    tree = grown(rewards)
    for node in tree.nodes:
        assert node.visits == 1 + sum(tree.nodes[child].visits for child in node.children)
        below = [tree.nodes[child] for child in node.children]
        assert node.total == pytest.approx(node.reward + sum(child.total for child in below))
        assert node.best == max([node.reward, *(child.best for child in below)])


@given(rewards_)
def test_the_same_outcomes_give_the_same_tree(rewards: list[float]) -> None:
    one, other = grown(rewards), grown(rewards)
    assert [node.parent for node in one.nodes] == [node.parent for node in other.nodes]
    assert one.select() == other.select()


def test_widening_lets_what_works_have_more_children() -> None:
    tree = SearchTree(0.15)
    assert tree.width(0) == 2
    child = tree.add(0, 0.0)
    assert (tree.width(child), tree.width(0)) == (1, math.ceil(2 * math.sqrt(2)))
    # No node has more children than its visits allow, as long as another way is open.
    tree = grown([0.3] * 50)
    for node in tree.nodes:
        assert len(node.children) <= math.ceil(2 * math.sqrt(node.visits))


def test_a_subtree_of_failures_ends_and_the_root_does_not() -> None:
    tree = SearchTree(0.15)
    bad = tree.add(0, 0.0)
    for _ in range(3):
        assert not tree.nodes[bad].pruned
        tree.add(bad, 0.0)
    assert tree.nodes[bad].pruned
    good = tree.add(0, 0.0)
    for value in (0.0, 0.2, 0.0, 0.0, 0.0):
        tree.add(good, value)
    assert not tree.nodes[good].pruned
    for _ in range(5):
        tree.add(0, 0.0)
    assert not tree.nodes[0].pruned


def test_scores_are_values_with_what_is_not_known() -> None:
    tree = SearchTree(0.15, SearchSettings(explore=0.5))
    first, second = tree.add(0, 0.4), tree.add(0, 0.2)
    assert tree.score(first) == pytest.approx(0.4 + 0.5 * math.sqrt(math.log(4)))
    assert tree.score(first) - tree.score(second) == pytest.approx(0.2)
    tree = SearchTree(0.15, SearchSettings(explore=0.0, value="max"))
    first = tree.add(0, 0.4)
    tree.add(first, 0.9)
    tree.add(first, 0.0)
    assert tree.score(first) == 0.9


def test_a_spent_node_takes_no_child_and_those_below_it_do() -> None:
    tree = SearchTree(0.15)
    tree.spend(0)
    assert tree.select() is None
    child = tree.add(0, 0.5)
    assert tree.select() == child


@given(st.floats(0.001, 1e4), st.floats(0.001, 1e4))
def test_the_reward_rises_with_speed_and_right_beats_wrong(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 == reward(None) < reward(low) <= reward(high) <= 1


def test_a_hundred_times_the_speed_earns_all() -> None:
    assert reward(1.0) == pytest.approx(math.log(2) / math.log(101))
    assert reward(100.0) == reward(1000.0) == 1
