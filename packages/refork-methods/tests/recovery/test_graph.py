from __future__ import annotations

from fractions import Fraction

import pytest

from refork.errors import BadInput
from refork_methods.recovery.graph import Move, Node, PathStar, State

SHAPES = [(1, 1, 1), (2, 1, 2), (2, 3, 1), (3, 3, 3), (4, 2, 5)]


@pytest.mark.parametrize(("w", "k", "l"), SHAPES)
def test_counts_of_nodes_states_and_edges(w, k, l):  # noqa: E741
    graph = PathStar(w, k, l)
    nodes = list(graph.nodes())
    assert len(set(nodes)) == len(nodes) == 2 + w * (2 * k + 1)
    ends = sum(len(graph.moves(node)) for node in nodes)
    # Every edge has two ends, but the fork's end of the source's edge is no exit.
    assert ends == 2 * (w * (k * (l + 1) + 1) + 1) - 1
    # The start, the fork from both sides, two directions at every diamond node, one at every leaf.
    assert len(graph.states()) == 1 + 2 + w * (4 * k + 1)
    for j in range(k):
        assert len(graph.moves(Node("left", 0, j))) == len(graph.moves(Node("right", 0, j))) == l + 1


@pytest.mark.parametrize(("w", "k", "l"), SHAPES)
def test_every_move_can_be_undone(w, k, l):  # noqa: E741
    graph = PathStar(w, k, l)
    for node in graph.nodes():
        for move in graph.moves(node):
            after = graph.follow(node, move)
            assert after is not None
            if node.role in ("source", "fork"):
                continue
            back = {graph.follow(after.node, m).node for m in graph.moves(after.node)}
            assert node in back
    assert graph.follow(Node("source"), Move("in")) is None
    assert graph.follow(Node("left", 0, 0), Move("edge", l)) is None


def test_start_probabilities_of_the_four_rows():
    graph = PathStar(3, 2, 4)
    expected = {"a": Fraction(1, 5), "b": Fraction(4, 5), "c": Fraction(4, 5), "d": Fraction(1, 5)}
    seen = set()
    for state in graph.states():
        row = graph.row(state)
        wanted = graph.desired(state)
        assert (row is None) == (wanted is None)
        if row is not None:
            ways = graph.successors(state)
            assert Fraction(ways[wanted], ways.total()) == expected[row]
            seen.add(row)
    assert seen == {"a", "b", "c", "d"}


@pytest.mark.parametrize(("w", "k", "l"), SHAPES)
def test_golden_path_ends_on_the_target_in_2k_plus_2_moves(w, k, l):  # noqa: E741
    graph = PathStar(w, k, l)
    for target in range(w):
        state = graph.start
        for move in graph.golden(target):
            state = graph.follow(state.node, move)
        assert state == State(Node("leaf", target), "out")
        assert len(graph.golden(target)) == graph.golden_length == 2 * k + 2
    with pytest.raises(BadInput):
        graph.golden(w)
