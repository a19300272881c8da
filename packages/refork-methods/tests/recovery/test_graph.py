from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.recovery.graph import Move, Node, PathStar, State

SHAPES = [(1, 1, 1), (2, 1, 2), (2, 3, 1), (3, 3, 3), (4, 2, 5)]


def hitting_time(graph: PathStar, weight) -> float:
    """Expected moves to branch 0's leaf; ``weight(state, successor, edges)`` need not be normalised."""
    states = [s for s in graph.states() if s.node != Node("leaf", 0)]
    index = {s: i for i, s in enumerate(states)}
    system = np.eye(len(states))
    for state in states:
        weights = {after: weight(graph, state, after, n) for after, n in graph.successors(state).items()}
        total = sum(weights.values())
        for after, value in weights.items():
            if after in index:
                system[index[state], index[after]] -= value / total
    return float(np.linalg.solve(system, np.ones(len(states)))[index[graph.start]])


def uniform(graph, state, after, edges):
    return edges


def onward(graph, state, after, edges):
    wanted = graph.desired(state)
    return float(wanted is None or after == wanted) * edges


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


@pytest.mark.parametrize(("w", "k", "l", "moves"), [(3, 3, 3, 326), (15, 15, 5, 50142)])
def test_uniform_walk_has_the_published_hitting_time(w, k, l, moves):  # noqa: E741
    graph = PathStar(w, k, l)
    m = k * (l + 1) + 1
    closed = 2 + 2 * (w - 1) * m
    closed += 2 * (l + 1) / l * (k * ((w - 1) * m + 1) + (l + 1) * k * (k - 1) / 2) + 2 * k * (l + 1)
    assert hitting_time(graph, uniform) == pytest.approx(closed, rel=1e-9)
    assert closed == pytest.approx(moves)


@pytest.mark.parametrize(("w", "k", "moves"), [(15, 15, 900), (4, 3, 50), (3, 3, 36)])
def test_a_walk_that_never_turns_needs_the_optimal_time(w, k, moves):
    graph = PathStar(w, k, 3)
    assert graph.optimal_hitting_time == moves
    assert hitting_time(graph, onward) == pytest.approx(moves)


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
