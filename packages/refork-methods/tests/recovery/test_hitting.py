"""Exact hitting times: three ways to compute them, and the closed forms."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from refork.errors import BadInput
from refork_methods.recovery.chain import LEAF, expected_visits, maze_chain, solve_chain, transition_matrix
from refork_methods.recovery.closed import (
    base_hitting_time,
    exit_times,
    growth_per_diamond,
    optimal_hitting_time,
    sft_limit_hitting_time,
)
from refork_methods.recovery.graph import Node, PathStar
from refork_methods.recovery.hitting import exact_odds, expected_hitting_time, hitting_gradient, hitting_times
from refork_methods.recovery.rows import BACKWARD, ROWS, RowPolicy, path_star

SHAPES = list(itertools.product(range(2, 7), repeat=3))


def random_policy(graph, seed):
    return RowPolicy(graph, np.random.default_rng(seed).normal(size=(4, graph.diamonds)))


def whole_maze(policy):
    """Expected moves on the maze with every branch of its own, by a dense solve."""
    graph = policy.graph
    p = dict(zip(ROWS, policy.desired, strict=True))
    states = [s for s in graph.states() if s.node != Node("leaf", 0)]
    index = {s: i for i, s in enumerate(states)}
    system = np.eye(len(states))
    for state, i in index.items():
        row, wanted = graph.row(state), graph.desired(state)
        ways = graph.successors(state)
        for after, edges in ways.items():
            if row is None:
                chance = edges / ways.total()
            else:
                good = p[row][state.node.diamond]
                chance = good if after == wanted else 1 - good
            if after in index:
                system[i, index[after]] -= chance
    return np.linalg.solve(system, np.ones(len(states)))[index[graph.start]]


@pytest.mark.parametrize(("w", "k", "wide"), [(1, 1, 1), (2, 1, 3), (3, 3, 3), (4, 2, 5), (2, 4, 1)])
def test_recurrence_sparse_and_exact_agree_with_the_whole_maze(w, k, wide):
    policy = random_policy(PathStar(w, k, wide), w + k)
    truth = whole_maze(policy)
    found = expected_hitting_time(policy)
    assert found.value == pytest.approx(truth, rel=1e-10)
    assert expected_hitting_time(policy, "sparse").value == pytest.approx(truth, rel=1e-10)
    exact = expected_hitting_time(policy, "exact")
    assert isinstance(exact.exact, Fraction)
    assert exact.value == pytest.approx(found.value, rel=1e-14)


@pytest.mark.parametrize(("w", "k", "wide"), SHAPES)
def test_closed_forms_are_exact(w, k, wide):
    graph = PathStar(w, k, wide)
    base = expected_hitting_time(RowPolicy.base(graph), "exact")
    assert base.exact == base_hitting_time(w, k, wide)
    limit = hitting_times(w, exact_odds(RowPolicy.golden_limit(graph))).item()
    assert limit == sft_limit_hitting_time(w, k, wide)
    best = hitting_times(w, exact_odds(RowPolicy.optimal(graph))).item()
    assert best == optimal_hitting_time(w, k) == graph.optimal_hitting_time
    for policy, value in ((RowPolicy.golden_limit(graph), limit), (RowPolicy.base(graph), base.exact)):
        assert expected_hitting_time(policy).value == pytest.approx(float(value), rel=1e-13)
        if value < 1e8:
            assert expected_hitting_time(policy, "sparse").value == pytest.approx(float(value), rel=1e-9)


def test_published_and_stated_values():
    assert base_hitting_time(15, 15, 5) == 50142
    assert optimal_hitting_time(15, 15) == 900
    assert optimal_hitting_time(4, 3) == 50
    assert float(sft_limit_hitting_time(3, 3, 3)) == pytest.approx(1310.370, abs=5e-4)
    assert float(sft_limit_hitting_time(5, 4, 3)) == pytest.approx(13941.951, abs=5e-4)
    assert float(sft_limit_hitting_time(15, 15, 5)) == pytest.approx(4.318e14, rel=1e-3)
    assert float(exit_times(3, 3)[-1]) == pytest.approx(644.185, abs=5e-4)
    assert float(exit_times(15, 5)[-1]) == pytest.approx(3.0846e13, rel=1e-4)


@pytest.mark.parametrize(
    ("gap", "moves"),
    [(1.0, 20239.88), (2.0, 8952.11), (3.0, 4177.95), (6.0, 1078.01), (9.0, 908.91), (12.0, 900.4437)],
)
def test_hitting_times_along_sign_ascent(gap, moves):
    graph = PathStar(15, 15, 5)
    value = expected_hitting_time(RowPolicy(graph, np.full((4, 15), gap))).value
    assert value == pytest.approx(moves, abs=5e-3 if gap < 12 else 1e-4)


def test_early_stopped_imitation_helps_a_small_maze_and_hurts_a_large_one():
    def after(shape, gap):
        gaps = np.zeros((4, shape[1]))
        gaps[[0, 2]] = gap
        return expected_hitting_time(RowPolicy(PathStar(*shape), gaps)).value

    small = [after((3, 3, 3), gap) for gap in (0.0, 0.25, 1.0, 2.0, math.inf)]
    assert [round(h) for h in small] == [326, 294, 361, 657, 1310]
    # On a large maze there is next to nothing to gain: half a percent at the best gap, near 0.02.
    large = [after((15, 15, 5), gap) for gap in (0.0, 0.02, 0.05, 0.2)]
    assert 0.99 * large[0] < large[1] < large[0] < large[2] < large[3]


@pytest.mark.parametrize("wide", [2, 3, 5])
def test_growth_per_diamond_is_that_of_the_recurrence(wide):
    hits = [float(sft_limit_hitting_time(3, k, wide)) for k in range(4, 13)]
    slopes = np.diff(np.log(hits))
    assert np.allclose(slopes, math.log(growth_per_diamond(wide)), rtol=0.03)


@pytest.mark.parametrize(("w", "k", "wide"), [(1, 3, 2), (2, 1, 1), (3, 3, 3), (5, 4, 2)])
def test_gradient_against_central_differences_and_the_visit_formula(w, k, wide):
    graph = PathStar(w, k, wide)
    policy = random_policy(graph, 7)
    value, gradient = hitting_gradient(w, policy.odds)
    assert value == pytest.approx(expected_hitting_time(policy).value, rel=1e-13)
    step = 1e-5
    for at in np.ndindex(4, k):
        bump = np.zeros((4, k))
        bump[at] = step
        up, down = (expected_hitting_time(RowPolicy(graph, policy.gaps + s * bump)).value for s in (1, -1))
        assert gradient[at] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-6)
    # Visits times p (1 - p) times the difference of hitting times, summed over the states of a row.
    chain = maze_chain(k)
    matrix = transition_matrix(policy).toarray()
    inside = np.array([i for i in range(len(matrix)) if i != 3 and expected_state(matrix)[i] > 0])
    system = np.eye(len(inside)) - matrix[np.ix_(inside, inside)]
    hits, visits = np.zeros(len(matrix)), np.zeros(len(matrix))
    hits[inside] = np.linalg.solve(system, np.ones(len(inside)))
    visits[inside] = np.linalg.solve(system.T, np.eye(len(inside))[0])
    p = chain.chances(policy)
    terms = visits * p * (1 - p) * (hits[chain.wanted] - hits[chain.other])
    total = np.bincount(chain.row[chain.row >= 0], terms[chain.row >= 0], minlength=4 * k).reshape(4, k)
    assert np.allclose(gradient, total, rtol=1e-8)


def expected_state(matrix):
    """Whether each state is reached from the source."""
    seen = np.zeros(len(matrix), dtype=bool)
    seen[0] = True
    for _ in range(len(matrix)):
        seen |= (seen @ matrix) > 0
    return seen


def test_expected_visits_sum_to_the_decided_moves():
    policy = random_policy(PathStar(1, 3, 2), 0)
    # With one branch every move but the first is decided by the fork or a row; each fork visit is one move.
    moves = expected_visits(policy).sum()
    back = expected_visits(policy)
    fork = 1 + back[2, 0, 1] + back[3, 0, 0]
    assert moves + 1 + fork == pytest.approx(expected_hitting_time(policy).value, rel=1e-10)


def test_many_policies_at_once():
    graph = PathStar(3, 2, 2)
    policies = [random_policy(graph, seed) for seed in range(5)]
    many = hitting_times(3, np.array([p.odds for p in policies]))
    assert many.tolist() == [expected_hitting_time(p).value for p in policies]


@pytest.mark.parametrize("row", range(4))
def test_an_infinite_hitting_time_names_the_state(row):
    gaps = np.zeros((4, 2))
    gaps[row, 1] = -np.inf
    policy = RowPolicy(PathStar(3, 2, 2), gaps)
    for method in ("recurrence", "exact", "sparse"):
        found = expected_hitting_time(policy, method)
        assert (found.value, found.stuck) == (math.inf, f"{ROWS[row]}_1")
    assert hitting_times(3, policy.odds) == math.inf
    alone = RowPolicy(PathStar(1, 2, 2), gaps)
    assert math.isinf(expected_hitting_time(alone).value) == (row not in BACKWARD)


def test_a_solve_is_refused_where_it_is_not_exact_enough():
    policy = RowPolicy.golden_limit(PathStar(15, 15, 5))
    with pytest.raises(BadInput, match="beyond what float64"):
        expected_hitting_time(policy, "sparse")
    exact = float(sft_limit_hitting_time(15, 15, 5))
    assert expected_hitting_time(policy).value == pytest.approx(exact, rel=1e-14)


def test_an_absorbing_dead_leaf_is_refused():
    policy = RowPolicy.base(PathStar(3, 2, 2))
    matrix = sparse.lil_array(transition_matrix(policy))
    matrix[LEAF, :] = 0
    matrix[LEAF, LEAF] = 1
    with pytest.raises(BadInput, match="cannot leave dead leaf"):
        solve_chain(sparse.csr_array(matrix), maze_chain(2).names)


def test_refused_shapes_and_policies():
    for shape in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        with pytest.raises(BadInput, match="at least 1"):
            path_star(*shape)
        with pytest.raises(BadInput, match="at least 1"):
            base_hitting_time(*shape)
        with pytest.raises(BadInput, match="at least 1"):
            sft_limit_hitting_time(*shape)
    with pytest.warns(UserWarning, match="no dead ends"):
        path_star(1, 2, 2)
    graph = PathStar(2, 2, 2)
    with pytest.raises(BadInput, match="shape"):
        RowPolicy(graph, np.zeros((4, 3)))
    with pytest.raises(BadInput, match="unknown method"):
        expected_hitting_time(RowPolicy.base(graph), "magic")
    with pytest.raises(BadInput, match="not a maze policy"):
        RowPolicy.from_json({"shape": [2, 2, 2]})


def test_a_policy_survives_storage_and_probabilities():
    policy = RowPolicy.golden_limit(PathStar(3, 2, 4))
    again = RowPolicy.from_json(policy.to_json())
    assert np.array_equal(again.gaps, policy.gaps)
    assert again.graph == policy.graph
    assert np.allclose(RowPolicy.base(again.graph).desired[:, 0], [0.2, 0.8, 0.8, 0.2])
