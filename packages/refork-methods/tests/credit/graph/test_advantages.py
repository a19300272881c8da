"""Estimators: against a reference in loops, closed forms, invariances, and defects of published code."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.credit.graph.advantages import (
    METHODS,
    CreditSettings,
    edge_gains,
    edge_part,
    end_values,
    episode_part,
    goal_distances,
    group_mean,
    node_values,
    returns,
    sibling_part,
    standardise,
    step_advantages,
)
from refork_methods.credit.graph.collisions import collision_report, compared_steps, merged_steps
from refork_methods.credit.graph.edges import gain_variance
from refork_methods.credit.graph.state_graph import StateGraph
from support.graph_reference import Reference


def batch(seed, groups=3, size=6, states=7, longest=9, rewards=(0.0, 10.0), invalid=0.2):
    """Random walks over few states: loops, merges, single visits, several groups."""
    rng = np.random.default_rng(seed)
    runs = [rng.integers(0, states, rng.integers(1, longest + 1)).tolist() for _ in range(groups * size)]
    outcomes = rng.choice(rewards, groups * size).tolist()
    owner = np.repeat(np.arange(groups), size).tolist()
    valid = (rng.random(sum(map(len, runs))) > invalid).tolist()
    return runs, outcomes, owner, valid


def graph_of(runs, outcomes, owner, valid=None, **more):
    labels = [label for run in runs for label in run]
    return StateGraph.from_arrays(labels, list(map(len, runs)), outcomes, owner, valid=valid, **more)


@pytest.mark.parametrize("norm", ["std", "mean"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(6))
def test_every_estimator_equals_the_reference(method, norm, seed):
    data = batch(seed, rewards=(0.0, 10.0) if seed % 2 else (0.0, 0.3, 1.0))
    settings = CreditSettings(norm=norm, step_weight=0.7)
    found = step_advantages(graph_of(*data), method, settings)
    wanted = getattr(Reference(*data), method)(norm, 0.7)
    np.testing.assert_allclose(found, wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("history", [0, 1, 4])
@pytest.mark.parametrize("power", [2.0, -1.5])
def test_how_far_back_and_with_what_weight(history, power):
    data = batch(5, states=2, longest=12, groups=2)
    found = step_advantages(graph_of(*data), "hgpo", CreditSettings(history=history, length_power=power))
    np.testing.assert_allclose(found, Reference(*data).hgpo("std", 1.0, history, power), atol=1e-6, rtol=0)
    other = Reference(*data).hgpo("std", 1.0, history + 1, power)
    assert np.abs(found - other).max() > 1e-3


def test_no_step_so_far_from_its_start_is_no_depth():
    graph = graph_of([[0], [0]], [1.0, 0.0], [0, 0])
    deep, flat = (step_advantages(graph, "hgpo", CreditSettings(history=h)) for h in (9, 0))
    assert deep.tolist() == flat.tolist()
    assert deep[0] > 0.9


@pytest.mark.parametrize("outcomes", [[0.5, 0.0, 0.25], [-1.0, -2.0, -1.5]])
@pytest.mark.parametrize("gamma", [0.5, 1.0])
def test_a_goal_may_be_worth_little_or_nothing(outcomes, gamma):
    runs = [[0, 1], [0, 2], [0, 3]]
    found = step_advantages(graph_of(runs, outcomes, [0] * 3), "graphgpo", CreditSettings(gamma=gamma))
    wanted = Reference(runs, outcomes, [0] * 3, gamma=gamma).graphgpo("std", 1.0)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_win_is_worth_what_is_said_in_every_part():
    runs, outcomes, owner, valid = batch(3, rewards=(0.0, 4.0, 10.0))
    found = step_advantages(graph_of(runs, outcomes, owner, valid), "g2po", CreditSettings(win=10.0))
    wanted = Reference(runs, outcomes, owner, valid).g2po("std", 1.0, win=10.0)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    near = end_values(graph_of([[0], [0]], [1e9 - 1, 1e9 - 2], [0, 0]), 1e9)
    np.testing.assert_array_equal(near, [np.nan, 0.0, 1e9])


def test_the_first_visit_of_each_of_many_trajectories():
    # More trajectories than nodes, each through the same two states.
    graph = graph_of([[0, 1, 0]] * 3 + [[0, 1]] * 2, [1.0, 0.0, 1.0, 0.0, 1.0], [0] * 5)
    reference = Reference([[0, 1, 0]] * 3 + [[0, 1]] * 2, [1.0, 0.0, 1.0, 0.0, 1.0], [0] * 5).values("first")
    wanted = [reference[0, 0], reference[0, 1], 0.0, 1.0]
    np.testing.assert_allclose(node_values(graph, visit="first"), wanted)


@pytest.mark.parametrize(
    ("given", "words"),
    [({"gamma": 1.5}, "gamma"), ({"visit": "last"}, "unknown visit"), ({"win": -1.0}, "win")],
)
def test_values_by_settings_that_mean_nothing_are_refused(given, words):
    with pytest.raises(BadInput, match=words):
        node_values(graph_of([[0]], [1.0], [0]), **given)


@pytest.mark.parametrize("visit", ["every", "first"])
@pytest.mark.parametrize("win", [None, 10.0])
@pytest.mark.parametrize("gamma", [0.95, 0.5, 1.0])
def test_values_and_gains_equal_the_reference(visit, win, gamma):
    runs, outcomes, owner, valid = batch(3, rewards=(0.0, 4.0, 10.0))
    graph = graph_of(runs, outcomes, owner, valid)
    reference = Reference(runs, outcomes, owner, valid, gamma)
    values = node_values(graph, gamma, visit, win)
    wanted = reference.values(visit, win)
    starts = [wanted[reference.node(*s)] for s in reference.steps]
    np.testing.assert_allclose(values[graph.nodes], starts, atol=1e-12)
    np.testing.assert_allclose(edge_gains(graph, values), reference.gains(visit, win), atol=1e-12)


def test_gains_along_a_trajectory_telescope():
    graph = graph_of(*batch(1))
    values = node_values(graph)
    sums = np.bincount(graph.trajectories, edge_gains(graph, values))
    first = np.searchsorted(graph.trajectories, np.arange(len(graph.outcomes)))
    np.testing.assert_allclose(sums, graph.outcomes - values[graph.nodes[first]], atol=1e-9)


def test_without_merging_there_is_no_sibling_part_and_only_wins_gain():
    lengths, outcomes = [5, 3, 4], [10.0, 0.0, 10.0]
    graph = StateGraph.from_arrays(np.arange(12), lengths, outcomes)
    values = node_values(graph)
    assert not sibling_part(graph, values, CreditSettings()).any()
    exponent = np.concatenate([np.arange(n)[::-1] for n in lengths])
    wanted = np.repeat(outcomes, lengths) * 0.95**exponent * 0.05
    np.testing.assert_allclose(edge_gains(graph, values), wanted, atol=1e-12)
    assert not edge_gains(graph, values)[5:8].any()


@pytest.mark.parametrize("norm", ["std", "mean"])
def test_parts_sum_to_zero_where_they_are_standardised(norm):
    graph = graph_of(*batch(2))
    values, settings = node_values(graph), CreditSettings(norm=norm)
    edge, sibling = edge_part(graph, values, settings), sibling_part(graph, values, settings)
    np.testing.assert_allclose(np.bincount(graph.step_graphs, edge), 0.0, atol=1e-9)
    np.testing.assert_allclose(np.bincount(graph.nodes, sibling), 0.0, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_order_and_names_change_nothing(method):
    runs, outcomes, owner, valid = batch(4)
    found = step_advantages(graph_of(runs, outcomes, owner, valid), method)
    pieces = np.split(found, np.cumsum(list(map(len, runs)))[:-1])
    marks = np.split(np.array(valid), np.cumsum(list(map(len, runs)))[:-1])
    rng = np.random.default_rng(9)
    order, other = rng.permutation(len(runs)), rng.permutation(50)
    moved = graph_of(
        [[int(other[label]) for label in runs[i]] for i in order],
        [outcomes[i] for i in order],
        [7 - owner[i] for i in order],
        np.concatenate([marks[i] for i in order]),
    )
    again = step_advantages(moved, method)
    np.testing.assert_allclose(again, np.concatenate([pieces[i] for i in order]), atol=1e-9)


def test_a_good_step_of_a_lost_run_gains():
    # Both runs pass from 0 to 1; only the second goes on to win. The lost run leaves 1 for 2.
    graph = graph_of([[0, 1, 2], [0, 1], [0, 3, 3, 3]], [0.0, 10.0, 0.0], [0, 0, 0])
    gains = edge_gains(graph, node_values(graph))
    assert gains[0] > 0
    assert gains[1] < 0
    assert step_advantages(graph, "grpo")[0] < 0
    assert step_advantages(graph)[0] > step_advantages(graph)[1]


def test_the_last_step_of_a_win_is_worth_gamma_times_it():
    graph = graph_of([[0, 1]], [10.0], [0])
    np.testing.assert_allclose(node_values(graph), [9.025, 9.5, 10.0])
    np.testing.assert_allclose(returns(graph, 0.95), [9.5, 10.0])


@pytest.mark.parametrize(("n", "m"), [(8, 4), (8, 8), (6, 1)])
def test_variance_of_a_gain(n, m):
    # 200,000 draws: the sample variance's relative standard error is 0.3 %; 2 % is 6 of those, so this
    # fails by chance less than once in 10^8. The seed is fixed besides.
    rng = np.random.default_rng(5)
    draws = rng.exponential(2.0, (200_000, n))
    gain = draws[:, :m].mean(1) - draws.mean(1)
    wanted = 4.0 * (1 / m - 1 / n)
    assert gain_variance(4.0, n, m) == pytest.approx(wanted)
    assert gain.var() == pytest.approx(wanted, rel=0.05, abs=1e-12)


def test_variance_of_a_gain_with_a_target_reached_from_elsewhere_too():
    # As above; here 3 of 8 visits pass, and 5 of the target's 5 visits are those 3 and 2 others.
    rng = np.random.default_rng(6)
    here, there = rng.normal(size=(200_000, 8)), rng.normal(size=(200_000, 2))
    gain = np.concatenate([here[:, :3], there], 1).mean(1) - here.mean(1)
    assert gain.var() == pytest.approx(float(gain_variance(1.0, 8, 3, 5)), rel=0.02)
    # More pass than were here, than arrived, none passes, or the variance is below 0: each by itself.
    for impossible in ((1.0, 3, 4), (1.0, 4, 3, 2), (1.0, 3, 0), (-1.0, 3, 2), (1.0, [3, 3], [2, 4])):
        with pytest.raises(BadInput, match="at most"):
            gain_variance(*impossible)
    assert gain_variance(0.0, 3, 3, 3) == gain_variance(0.0, 1, 1) == 0.0


def test_collisions_tell_where_siblings_are_compared():
    for seed in range(5):
        graph = graph_of(*batch(seed, states=40))
        part = sibling_part(graph, node_values(graph), CreditSettings(invalid_penalty=0.0))
        assert not part[~compared_steps(graph)].any()
        assert collision_report(graph).compared == compared_steps(graph).mean()
    alone = StateGraph.from_arrays(np.arange(12), [4, 4, 4], [0.0, 10.0, 0.0])
    assert not merged_steps(alone).any()


# Defects of published code


def test_a_win_need_not_be_ten():
    small = graph_of([[0, 1], [0, 2]], [1.0, 0.0], [0, 0])
    large = graph_of([[0, 1], [0, 2]], [10.0, 0.0], [0, 0])
    np.testing.assert_allclose(10 * node_values(small), node_values(large))
    np.testing.assert_allclose(step_advantages(small), step_advantages(large), atol=1e-4)
    nearly = graph_of([[0, 1], [0, 2]], [10.0 - 1e-9, 0.0], [0, 0])
    np.testing.assert_allclose(node_values(nearly, win=10.0), node_values(large, win=10.0), atol=1e-8)


def test_graded_outcomes_end_where_they_end():
    graph = graph_of([[0], [0], [0]], [0.0, 0.5, 1.0], [0, 0, 0])
    assert np.unique(graph.ends[np.isfinite(graph.ends)]).tolist() == [0.0, 0.5, 1.0]
    assert np.diff(step_advantages(graph)).min() > 0


def test_gamma_is_heard():
    data = batch(1)
    first, other = (step_advantages(graph_of(*data), "g2po", CreditSettings(gamma=g)) for g in (0.95, 0.8))
    assert np.abs(first - other).max() > 0.01


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("norm", ["std", "mean"])
def test_a_graph_of_one_step_is_zero_and_not_nan(method, norm):
    graph = graph_of([[0]], [10.0], [0])
    assert step_advantages(graph, method, CreditSettings(norm=norm)).tolist() == [0.0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("over", ["steps", "trajectories"])
def test_rounding_is_not_blown_up(method, over):
    outcomes = [0.1 + 0.2, 0.3, 0.3, 0.1 + 0.2]
    graph = graph_of([[0, 1], [0, 1], [0, 1], [0, 1]], outcomes, [0] * 4)
    settings = CreditSettings(gamma=1.0, over=over)
    assert np.abs(step_advantages(graph, method, settings)).max() == 0.0


def test_episode_mean_over_steps_or_trajectories():
    graph = graph_of([[0] * 9, [1]], [0.0, 1.0], [0, 0])
    steps = episode_part(graph, CreditSettings(norm="mean"))
    equal = episode_part(graph, CreditSettings(norm="mean", over="trajectories"))
    assert (steps[0], steps[-1]) == (pytest.approx(-0.1), pytest.approx(0.9))
    assert (equal[0], equal[-1]) == (-0.5, 0.5)
    scaled = episode_part(graph, CreditSettings(over="trajectories"))
    assert scaled[-1] == pytest.approx(0.5 / (np.sqrt(0.5) + 1e-6))
    # The deviation of 0, 1 and 5 is over two, that of equal outcomes none.
    three = graph_of([[0], [1, 1], [2]] + [[3]] * 2, [0.0, 1.0, 5.0, 2.0, 2.0], [0, 0, 0, 1, 1])
    found = episode_part(three, CreditSettings(over="trajectories"))
    wanted = [*(np.array([-2.0, -1.0, -1.0, 3.0]) / np.sqrt(7.0)), 0.0, 0.0]
    assert found == pytest.approx(wanted, abs=1e-5)


def test_standardise():
    np.testing.assert_allclose(standardise([1, 3, 5], [0, 0, 1], "mean"), [-1, 1, 0])
    np.testing.assert_allclose(standardise([1, 3, 5], [0, 0, 1]), [-np.sqrt(0.5), np.sqrt(0.5), 0], atol=1e-6)
    np.testing.assert_allclose(standardise([1, 3], [0, 0], spare=0), [-1, 1], atol=1e-5)
    assert standardise([], []).tolist() == []
    three = np.array([-2.0, -1.0, 3.0])
    np.testing.assert_allclose(standardise([0, 1, 5, 7], [0, 0, 0, 2]), [*(three / np.sqrt(7)), 0], atol=1e-5)
    np.testing.assert_allclose(standardise([0, 1, 5], [0] * 3, spare=0), three / np.sqrt(14 / 3), atol=1e-5)
    # A billionth of the largest, or of what the values are differences of, is rounding; more is not.
    assert standardise([1e9, 1e9 - 2], [0, 0], "mean").tolist() == [0.0, 0.0]
    assert standardise([1e9, 1e9 - 3], [0, 0], "mean").tolist() == [1.5, -1.5]
    assert standardise([1.0, -1.0], [0, 0], "mean", sizes=[1e9, 0]).tolist() == [0.0, 0.0]
    assert standardise([1.0, -1.0], [0, 0], "mean", sizes=[-9e8, 0]).tolist() == [1.0, -1.0]


def test_means_of_groups():
    np.testing.assert_array_equal(group_mean([1, 3, 5], [0, 0, 2]), [2.0, np.nan, 5.0])
    np.testing.assert_array_equal(group_mean([1, 3], [1, 1], 4), [np.nan, 2.0, np.nan, np.nan])
    assert group_mean([], []).tolist() == []


def test_returns_of_a_long_trajectory_behind_a_short_one_do_not_overflow():
    rewards = np.zeros(1001)
    rewards[[0, -1]] = 1.0
    graph = StateGraph.from_arrays(np.zeros(1001, int), [1, 1000], [1.0, 1.0], rewards=rewards)
    np.testing.assert_allclose(returns(graph, 0.1)[[0, -2, -1]], [1, 0.1, 1])


def test_returns_of_rewards_per_step():
    rewards = np.array([1.0, 0.0, 2.0, 0.0, 3.0, 1.0])
    graph = StateGraph.from_arrays(np.zeros(6, int), [4, 2], [3.0, 4.0], rewards=rewards)
    wanted = [1 + 0.25 * 2, 0.5 * 2, 2, 0, 3.5, 1]
    np.testing.assert_allclose(returns(graph, 0.5), wanted)
    # A turn in several parts: from part to part nothing is discounted, from turn to turn once, and over turns
    # that left no step (one of nothing kept) as often as there were turns.
    parts = StateGraph.from_arrays(
        np.zeros(6, int), [4, 2], [3.0, 4.0], rewards=rewards, togo=[5, 5, 4, 1, 3, 1]
    )
    wanted = [1 + 0.5 * 2, 0 + 0.5 * 2, 2 + 0.5**3 * 0, 0, 3 + 0.5**2 * 1, 1]
    np.testing.assert_allclose(returns(parts, 0.5), wanted)
    late = StateGraph.from_arrays(np.zeros(4, int), [4], [1.0], rewards=[0, 0, 0, 1.0], togo=[9, 6, 6, 2])
    np.testing.assert_allclose(returns(late, 0.5), [0.5**7, 0.5**4, 0.5**4, 1])
    whole = StateGraph.from_arrays([0, 1, 2, 2], [4], [8.0], togo=[4, 4, 2, 1])
    np.testing.assert_allclose(returns(whole, 0.5), [1, 1, 4, 8])
    np.testing.assert_allclose(node_values(whole, 0.5), [0.5, 0.5, 3, 8])
    # A reward on the last step alone is the reward of the episode, for runs as long as they come.
    outcomes, lengths = [1.0, 0.0, 2.0], [3000, 1, 17]
    last = np.zeros(sum(lengths))
    last[np.cumsum(lengths) - 1] = outcomes
    both = [
        StateGraph.from_arrays(np.zeros(len(last), int), lengths, outcomes, rewards=r) for r in (last, None)
    ]
    np.testing.assert_allclose(returns(both[0], 0.99), returns(both[1], 0.99), rtol=1e-9)


def test_distances_to_the_goal():
    # 0 -> 1 -> 2 -> win; a loop 0 -> 3 -> 0 in a lost run; 4 leads nowhere.
    graph = graph_of([[0, 1, 2], [0, 3, 0, 4]], [1.0, 0.0], [0, 0])
    far = goal_distances(graph)
    by_label = {int(label): far[i] for i, label in enumerate(graph.labels) if label >= 0}
    assert by_label == {0: 3.0, 1: 2.0, 2: 1.0, 3: 4.0, 4: np.inf}
    assert np.isinf(goal_distances(graph_of([[0], [1]], [0.0, 0.0], [0, 0]))).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm": "max"}, "unknown norm"),
        ({"visit": "last"}, "unknown visit"),
        ({"over": "tokens"}, "unknown over"),
        ({"gamma": 0.0}, "gamma"),
        ({"gamma": 1.1}, "gamma"),
        ({"step_weight": -1.0}, "step weight"),
        ({"step_weight": float("nan")}, "step weight"),
        ({"win": 0.0}, "win"),
        ({"history": -1}, "history"),
        ({"invalid_penalty": -0.1}, "invalid_penalty"),
        ({"win": -1.0}, "win"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        CreditSettings(**change)


def test_settings_at_their_limits():
    limit = CreditSettings(step_weight=0.0, win=0.5, history=0, invalid_penalty=0.0, gamma=1.0)
    assert (limit.step_weight, limit.win, limit.history) == (0.0, 0.5, 0)


def test_an_unknown_method_is_refused():
    with pytest.raises(BadInput, match="known: grpo"):
        step_advantages(graph_of([[0]], [1.0], [0]), "ppo")
