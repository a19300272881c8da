"""Building graphs, anchors, collision reports, edges, exports."""

import json
import os

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.credit.graph.advantages import METHODS, node_values, step_advantages
from refork_methods.credit.graph.anchors import (
    apply_anchor,
    codes,
    exact,
    last_states,
    merge_similar,
    normalised,
)
from refork_methods.credit.graph.collisions import collision_report, compared_steps, merged_steps
from refork_methods.credit.graph.compare import compare_methods
from refork_methods.credit.graph.edges import critical_edges, distinct_trajectories, edges
from refork_methods.credit.graph.export import graph_json, write_graph
from refork_methods.credit.graph.records import Recorded, RecordedStep
from refork_methods.credit.graph.state_graph import StateGraph


def recorded(group, name, seen, reward, **more):
    return Recorded("task", group, name, tuple(RecordedStep(s, **more) for s in seen), reward)


RUNS = [
    recorded("g", "a", ["hall", "room 1"], 1.0),
    recorded("g", "b", ["hall", "room  1", "attic"], 0.0),
    recorded("h", "a", ["hall"], 1.0),
    recorded("h", "b", ["cellar"], 0.0),
]


# Graphs


def test_states_merge_within_a_group_only():
    graph = StateGraph.from_trajectories(RUNS)
    assert graph.nodes[0] == graph.nodes[2]
    assert graph.nodes[0] != graph.nodes[5]
    assert graph.states == 6
    assert sorted(map(graph.name, range(len(graph.graphs)))) == sorted(
        ["hall", "room 1", "room  1", "attic", "hall", "cellar", *["end 0", "end 1"] * 2]
    )


def test_task_scope_merges_groups():
    graph = StateGraph.from_trajectories(RUNS, scope="task")
    assert graph.nodes[0] == graph.nodes[5]
    assert len(np.unique(graph.graphs)) == 1
    # The mean outcome stays the group's: its rollouts came from one policy.
    assert len(np.unique(graph.groups)) == 2


def test_anchors_of_records():
    assert StateGraph.from_trajectories(RUNS, "normalised").states == 5
    assert StateGraph.from_trajectories(RUNS, lambda text: text[0]).states == 5
    assert StateGraph.from_trajectories(RUNS, history=2).states == 6
    assert StateGraph.from_trajectories(RUNS, fuzzy=0.5).states == 5
    named = [recorded("g", n, ["x", "y"], r, anchor="same") for n, r in (("a", 0.0), ("b", 1.0))]
    assert StateGraph.from_trajectories(named, "state").states == 1
    assert StateGraph.from_trajectories(named).states == 1
    with pytest.raises(BadInput, match="no recorded anchor"):
        StateGraph.from_trajectories(RUNS, "state")
    with pytest.raises(BadInput, match="unknown anchor"):
        StateGraph.from_trajectories(RUNS, "smell")


def test_the_last_observations_must_be_equal():
    runs = [recorded("g", n, s, r) for n, s, r in (("a", "xyxy", 1.0), ("b", "yxy", 0.0), ("c", "xxy", 0.0))]
    #                                                one:  x y x y        y x y           x x y
    for history, wanted in ((1, [0, 1, 0, 1, 1, 0, 1, 0, 0, 1]), (2, [0, 1, 2, 1, 3, 2, 1, 0, 4, 1])):
        graph = StateGraph.from_trajectories(runs, history=history)
        same = graph.nodes[:, None] == graph.nodes
        np.testing.assert_array_equal(same, np.equal.outer(wanted, wanted))
        assert [graph.name(node) for node in graph.nodes] == list("xyxyyxyxxy")


def test_records_bring_their_rewards_and_marks():
    steps = {
        "a": (RecordedStep("x", reward=0.5), RecordedStep("y", reward=0.5)),
        "b": (RecordedStep("z", reward=0.0, valid=False),),
        "c": (RecordedStep("x", reward=0.25), RecordedStep("y")),
    }
    runs = [
        Recorded("task", "g", name, made, sum(one.reward or 0.0 for one in made))
        for name, made in steps.items()
    ]
    graph = StateGraph.from_trajectories(runs)
    assert graph.rewards.tolist() == [0.5, 0.5, 0.0, 0.25, 0.0]
    assert graph.valid.tolist() == [True, True, False, True, True]
    assert StateGraph.from_trajectories(RUNS).rewards is None
    with pytest.warns(UserWarning, match="1 of 1"):
        assert StateGraph.from_trajectories(runs[:1]).rewards.tolist() == [0.5, 0.5]


def test_arrays_of_any_kind_of_number():
    graph = StateGraph.from_arrays(
        np.array([0, 3, 0], dtype=np.uint8),
        [2.0, 1.0],
        [1, 0],
        valid=[1, 0, 1],
        togo=[4, 2, 1],
        rewards=[0, 1, 0],
    )
    assert graph.valid.tolist() == [True, False, True]
    assert graph.valid.dtype == np.bool_
    assert (graph.outcomes.dtype, graph.rewards.dtype) == (np.float64, np.float64)
    assert graph.togo.tolist() == [4, 2, 1]
    assert graph.labels.tolist() == [0, 3, -1, -1]
    assert graph.visits().tolist() == [2, 1, 1, 1]
    assert graph.nexts.tolist() == [1, 3, 2]
    np.testing.assert_array_equal(graph.ends, [np.nan, np.nan, 0.0, 1.0])


def test_tasks_keep_their_states_apart():
    graph = StateGraph.from_arrays([0, 0, 0], [1, 1, 1], [1.0, 1.0, 1.0], tasks=["b", "a", "b"], scope="task")
    assert graph.nodes[0] == graph.nodes[2] != graph.nodes[1]
    assert graph.nexts[0] == graph.nexts[2] != graph.nexts[1]


@pytest.mark.parametrize("anchor", ["exact", "normalised", str])
def test_steps_without_an_observation_are_no_state(anchor):
    """Some have the environment's name and some a text: neither can stand for all."""
    steps = (RecordedStep(None, anchor="a"), RecordedStep("here"), RecordedStep(None, anchor="b"))
    with pytest.raises(BadInput, match=r"no observation.*step 0"):
        StateGraph.from_trajectories([Recorded("t", "g", "one", steps, 1.0)], anchor)


def test_rounding_is_measured_in_the_groups_own_outcomes():
    graph = StateGraph.from_arrays([0] * 5, [1] * 5, [1.0, 2.0, 2.0, 1e10, -1e10], [0, 0, 0, 1, 1])
    assert graph.ends[np.isfinite(graph.ends)].tolist() == [1.0, 2.0, -1e10, 1e10]


def test_labels_that_would_run_over_are_refused():
    for labels in ([0, 2**62], [0, 2**63 - 1]):
        with pytest.raises(BadInput, match=r"too large.*step 1"):
            StateGraph.from_arrays(labels, [1, 1], [0.0, 1.0], [0, 1])
    with pytest.raises(BadInput, match=r"too large.*step 1"):
        StateGraph.from_arrays([0, 2**63 - 1], [2], [0.0])
    largest = StateGraph.from_arrays([0, 2**63 - 2], [2], [0.0])
    assert largest.labels.tolist() == [0, 2**63 - 2, -1]


def test_outcomes_that_differ_by_rounding_are_one_end():
    for outcomes, ends in (
        ([1e9, 1e9 - 1], 1),
        ([1e9, 1e9 - 2], 2),
        ([0.0, 0.0], 1),
        ([0.1 + 0.2, 0.3], 1),
        ([0.0, 1e9, 1e9 - 0.5], 2),
    ):
        each = np.ones(len(outcomes), dtype=int)
        assert np.isfinite(StateGraph.from_arrays(each, each, outcomes).ends).sum() == ends


@pytest.mark.parametrize("total", [1e6 + 1e-4, 1e6])
def test_rewards_that_sum_up_but_for_rounding(total):
    graph = StateGraph.from_arrays([0, 1, 2], [2, 1], [1e6, 0.0], rewards=[total - 1, 1, 5e-10])
    assert graph.rewards.tolist() == [total - 1, 1, 5e-10]


def test_a_group_of_one_warns():
    with pytest.warns(UserWarning, match="1 of 2 groups have one trajectory") as told:
        graph = StateGraph.from_trajectories(RUNS[:3])
    assert step_advantages(graph, "grpo")[-1] == 0.0
    if "MUTANT_UNDER_TEST" not in os.environ:  # whose own frames lie between
        assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], [], []), "integers"),
        (([0], [], []), "no trajectory"),
        (([0.5], [1], [1.0]), "integers"),
        (([0], [1], [1.0, 2.0]), "1 trajectories but 2 outcomes"),
        (([0], [1, 0], [1.0, 2.0]), "no steps"),
        (([0, 1], [1], [1.0]), "2 labels for 1 steps"),
        (([-1], [1], [1.0]), "negative"),
        (([0], [1], [np.nan]), "outcome is nan"),
        (([0], [1], [None]), r"outcome is nan \(trajectory 0\)"),
        (([0, 0, 0], [1, 1, 1], [1.0, np.inf, np.nan]), r"outcome is inf \(trajectory 1\)"),
        (([0, 0], [1, 0], [1.0, 2.0]), r"no steps \(trajectory 1\)"),
        (([0, 0, -1], [2, 1], [1.0, 2.0]), r"negative \(step 2\)"),
        (([0], [1], [1.0], [0, 1]), "1 trajectories but 2 groups"),
    ],
)
def test_arrays_that_do_not_fit(arguments, words):
    with pytest.raises(BadInput, match=words):
        StateGraph.from_arrays(*arguments)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scope": "world"}, "unknown scope"),
        ({"scope": "task"}, "needs the task"),
        ({"scope": "task", "tasks": ["a", "b"]}, "1 trajectories but 2 tasks"),
        ({"rewards": [1.0, None]}, r"not finite \(step 1\)"),
        ({"rewards": [1.0, 1e-7]}, "the steps earn 1, the episode 1"),
        ({"togo": [1]}, "turns to go"),
        ({"togo": [1, 0]}, "turns to go"),
        ({"valid": [True]}, "marks of validity"),
        ({"rewards": [1.0]}, "2 steps but 1 rewards"),
        ({"rewards": [1.0, np.nan]}, "not finite"),
        ({"rewards": [1.0, 1.0]}, "the steps earn 2, the episode 1"),
    ],
)
def test_options_that_do_not_fit(more, words):
    with pytest.raises(BadInput, match=words):
        StateGraph.from_arrays([0, 1], [2], [1.0], **more)


@pytest.mark.parametrize(("outcome", "earned"), [(1e3, 1e3 + 1e-5), (0.0, 5e-9), (0.0, 0.5), (1.0, 1.5)])
def test_the_trajectory_whose_rewards_do_not_sum_up_is_named(outcome, earned):
    with pytest.raises(BadInput, match=r"^the steps earn .* \(trajectory 1\)"):
        StateGraph.from_arrays([0, 0, 0], [1, 1, 1], [1.0, outcome, 2.0], rewards=[1.0, earned, 7.0])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_estimator_is_finite_and_visits_add_up(data):
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
    steps = data.draw(st.lists(st.integers(0, 4), min_size=sum(lengths), max_size=sum(lengths)))
    outcomes = data.draw(
        st.lists(st.sampled_from([0.0, 0.5, 1.0, -1.0]), min_size=len(lengths), max_size=len(lengths))
    )
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    graph = StateGraph.from_arrays(steps, lengths, outcomes, groups)
    for method in METHODS:
        assert np.isfinite(step_advantages(graph, method)).all()
    assert graph.visits().sum() == len(steps) + len(lengths)
    assert np.isfinite(node_values(graph)).all()
    assert edges(graph).visits.sum() == len(steps)


# Anchors


def test_exact():
    assert exact("a  b") == "a  b"
    assert exact({"b": 1, "a": [True, None, 2.0]}) == exact({"a": [True, None, 2.0], "b": 1})
    for noisy in (0.25, [1, 0.3], {"x": {"y": 1.5}}):
        with pytest.raises(BadInput, match="fractions"):
            exact(noisy)
    with pytest.raises(BadInput, match="cannot be compared"):
        exact({1, 2})
    with pytest.raises(BadInput, match="cannot be compared"):
        normalised(np.zeros(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("at 2026-01-02T03:04:05Z ok", "at 2025-11-12 13:14 ok"),
        ("it is 9:05", "it is 10:55:01"),
        ("file 3f2a91c0aa", "file 77b1e0d2ff"),
        ("run 123e4567-e89b-12d3-a456-426614174000", "run 00000000-e89b-12d3-a456-426614174fff"),
        ("job 1234567", "job 7654321"),
        ("x = 0.1230001", "x = 0.1234567"),
        ("a \n b", "a b "),
    ],
)
def test_normalised_takes_out_what_varies(one, other):
    assert normalised(one) == normalised(other)


def test_normalised_keeps_what_counts():
    assert normalised("door 12 facade") == "door 12 facade"
    assert normalised("door 12") != normalised("door 13")
    assert normalised({"x": 0.25}) == '{"x": 0.25}'


def test_codes_and_labels():
    numbers, names = codes(["b", "a", "b"])
    assert (numbers.tolist(), names) == ([0, 1, 0], ["b", "a"])
    with pytest.raises(BadInput, match="cannot be hashed"):
        codes([["a"]])
    called = []
    labels, names = apply_anchor(["x", "y", "x", "x"], lambda text: called.append(text) or "same")
    assert (labels.tolist(), names, called) == ([0, 0, 0, 0], ["same"], ["x", "y"])


def test_last_states():
    labels, places = np.array([0, 1, 1, 0, 1, 2, 1]), np.array([0, 1, 2, 0, 1, 0, 1])
    same = [[0, 3], [1, 4], [2], [5], [6]]
    found = last_states(labels, places, 2)
    assert sorted(np.flatnonzero(found == v).tolist() for v in set(found)) == sorted(same)
    # Three back: a start is only like another start.
    found = last_states(labels, places, 3)
    assert len(set(found)) == 5
    with pytest.raises(BadInput, match="history of 0"):
        last_states(labels, places, 0)


def test_similar_texts():
    names = ["a red door", "a red door now", "an open sea", "a red"]
    labels = merge_similar(names, 0.6)
    assert labels[0] == labels[1] == labels[3] != labels[2]
    order = [2, 0, 3, 1]
    again = merge_similar([names[i] for i in order], 0.6)
    assert [again.tolist().count(v) for v in again] == [1, 3, 3, 3]
    assert len(set(merge_similar(names, 1.0))) == 4
    assert merge_similar(["", " "], 0.9).tolist() == [0, 1]
    for least in (0.0, 1.5):
        with pytest.raises(BadInput, match="similarity"):
            merge_similar(names, least)


# Collisions


def test_report_of_a_group_that_merges():
    graph = StateGraph.from_arrays([0, 1, 2, 0, 1, 3, 0, 4, 1], [3, 3, 3], [1.0, 0.0, 0.0])
    report = collision_report(graph)
    assert (report.steps, report.states, report.graphs, report.mixed, report.alone) == (9, 5, 1, 1, 0)
    assert report.merged == pytest.approx(6 / 9)
    assert report.merged_later == pytest.approx(3 / 6)
    assert report.compared == pytest.approx(6 / 9)
    assert report.by_place[:3] == pytest.approx([1.0, 2 / 3, 1 / 3])
    assert report.enough
    assert (report.trajectories, report.visits_per_state) == (3, 9 / 5)


def test_two_trajectories_are_enough_to_merge():
    graph = StateGraph.from_arrays([0, 1, 0, 2, 3], [2, 2, 1], [1.0, 0.0, 0.0])
    assert merged_steps(graph).tolist() == [True, False, True, False, False]
    assert compared_steps(graph).tolist() == [True, False, True, False, False]
    short = collision_report(graph, top=1)
    assert short.by_place == pytest.approx((2 / 5,))
    assert collision_report(graph, top=2).by_place == pytest.approx((2 / 3, 0.0))
    long = StateGraph.from_arrays(np.arange(50), [25, 25], [1.0, 0.0])
    assert len(collision_report(long).by_place) == 20


@pytest.mark.parametrize(
    ("steps", "most", "share"), [(20, 10, 0.5), (20, 11, 0.55), (19, 19, 0.0), (21, 20, 20 / 21)]
)
def test_a_crowd_is_more_than_half_of_a_graph_of_twenty_steps(steps, most, share):
    labels = [0] * most + list(range(1, steps - most + 1))
    report = collision_report(StateGraph.from_arrays(labels, [10, steps - 10], [1.0, 0.0]))
    assert report.crowded == pytest.approx(share)
    assert any("one state holds" in text for text in report.warnings) == (share > 0.5)


def test_merging_is_rare_below_a_tenth():
    # Twenty steps behind the start, of which so many leave a state that both trajectories saw.
    for both, warned in ((2, False), (0, True)):
        labels = [99, *range(10), 99, *range(both // 2), *range(20, 30 - both // 2)]
        report = collision_report(StateGraph.from_arrays(labels, [11, 11], [1.0, 0.0]))
        assert report.merged_later == both / 20
        assert any("merging is too rare" in text for text in report.warnings) == warned
        assert any(
            "merging is too rare" in t
            for t in collision_report(
                StateGraph.from_arrays(labels, [11, 11], [1.0, 0.0]), rare=0.11
            ).warnings
        )


def test_warnings():
    alone = collision_report(StateGraph.from_arrays([0, 1], [1, 1], [1.0, 0.0], [0, 1]))
    assert [text.split(":")[0] for text in alone.warnings][:2] == [
        "2 groups have one trajectory",
        "no group has two different outcomes",
    ]
    unique = collision_report(StateGraph.from_arrays(np.arange(12), [4, 4, 4], [1.0, 0.0, 0.0]))
    assert any("no state was left in two ways" in text for text in unique.warnings)
    assert not unique.enough
    # All start alike, and part for good.
    starts = [0, 1, 2, 3, 0, 4, 5, 6]
    rare = collision_report(StateGraph.from_arrays(starts, [4, 4], [1.0, 0.0]))
    assert any("0.0% of the steps behind the start" in text for text in rare.warnings)
    crowd = collision_report(StateGraph.from_arrays([0] * 15 + [1] * 5 + [0] * 4, [12, 12], [1.0, 0.0]))
    assert any("one state holds 79%" in text for text in crowd.warnings)
    short = collision_report(StateGraph.from_arrays([0, 0], [1, 1], [1.0, 0.0]))
    assert short.merged_later is None


# Edges and exports


def test_edges_and_what_decided():
    graph = StateGraph.from_arrays([0, 1, 0, 1, 0, 2], [2, 2, 2], [10.0, 10.0, 0.0])
    found = edges(graph)
    assert found.visits.tolist() == [2, 1, 2, 1]
    assert found.trajectories.tolist() == [2, 1, 2, 1]
    assert found.of.tolist() == [0, 2, 0, 2, 1, 3]
    top = critical_edges(graph, 2)
    values = node_values(graph)
    assert [(e.source_name, e.target_name) for e in top] == [("state 0", "state 2"), ("state 0", "state 1")]
    assert top[0].gain == pytest.approx(-values[0])
    assert top[1].gain == pytest.approx(9.5 - values[0])
    # V(1) - V(0): 3 returns of 9.025, 9.025, 0; two pass, and are all that reach 1.
    spread = np.var([9.025, 9.025, 0.0], ddof=1)
    assert top[1].error == pytest.approx(np.sqrt(spread * (1 / 2 - 1 / 3)))
    assert critical_edges(graph, 9, least=2)[-1].visits == 2
    # An end is worth what it is worth: only the mean of its source can err.
    mixed = StateGraph.from_arrays([0, 0, 0], [1, 1, 1], [10.0, 0.0, 0.0])
    error = np.sqrt(np.var([9.5, 0.0, 0.0], ddof=1) / 3)
    assert [e.error for e in critical_edges(mixed)] == pytest.approx([error, error])
    assert critical_edges(StateGraph.from_arrays([0], [1], [1.0]))[0].error is None
    # Back to itself a state gains exactly nothing.
    around = critical_edges(StateGraph.from_arrays([0, 0, 0], [2, 1], [1.0, 0.0]))
    (loop,) = [edge for edge in around if edge.target_name == edge.source_name]
    assert (loop.gain, loop.error) == (0.0, 0.0)


def test_every_figure_of_an_edge_one_by_one():
    """Two graphs; states left once and often, reached from one state and from two, and left for an end."""
    runs = [[0, 1, 2], [0, 1], [0, 2, 0, 1], [3, 2], [3, 1, 0], [2], [4, 0], [5], [0, 5, 0]]
    outcomes, owner = [8.0, 0.0, 4.0, 8.0, 2.0, 8.0, 0.0, 4.0, 8.0], [0] * 6 + [1] * 3
    graph = StateGraph.from_arrays([s for run in runs for s in run], list(map(len, runs)), outcomes, owner)
    gamma = 0.5
    seen, taken, first, place = {}, {}, {}, 0
    for i, run in enumerate(runs):
        for k, label in enumerate(run):
            source = (owner[i], f"state {label}")
            last = k + 1 == len(run)
            target = (owner[i], f"end {outcomes[i]:g}" if last else f"state {run[k + 1]}")
            seen.setdefault(source, []).append(gamma ** (len(run) - k) * outcomes[i])
            taken.setdefault((source, target), []).append(i)
            first.setdefault((source, target), place)
            place += 1
    found = {
        ((e.graph, e.source_name), (e.graph, e.target_name)): e
        for e in critical_edges(graph, 99, gamma=gamma)
    }
    assert found.keys() == taken.keys()
    value = {key: np.mean(got) for key, got in seen.items()}
    value |= {(g, f"end {r:g}"): r for g, r in zip(owner, outcomes, strict=True)}
    names = [(int(g), graph.name(i)) for i, g in enumerate(graph.graphs)]
    for (source, target), edge in found.items():
        assert (names[edge.source], names[edge.target]) == (source, target)
        assert edge.visits == len(taken[source, target])
        assert edge.trajectories == len(set(taken[source, target]))
        assert edge.step == first[source, target]
        assert edge.value == pytest.approx(value[target])
        assert edge.gain == pytest.approx(value[target] - value[source])
        n, m, whole = len(seen[source]), edge.visits, len(seen.get(target, []))
        if n == 1:
            assert edge.error is None
            continue
        spread = np.var(seen[source], ddof=1)
        variance = spread * (1 / whole + 1 / n - 2 * m / (whole * n)) if whole else spread / n
        assert edge.error == pytest.approx(np.sqrt(max(variance, 0.0)))
    gains = [abs(e.gain) for e in critical_edges(graph, 99, gamma=gamma)]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) > 11
    assert critical_edges(graph, gamma=gamma) == critical_edges(graph, 10, gamma=gamma)
    assert len(critical_edges(graph)) == 10
    assert critical_edges(graph) == critical_edges(graph, gamma=0.95)
    # Taken as won or lost, ends of 8 alone are worth anything.
    won = {e.target_name: e.value for e in critical_edges(graph, 99, win=8.0) if "end" in e.target_name}
    assert won == {"end 0": 0.0, "end 2": 0.0, "end 4": 0.0, "end 8": 8.0}


def test_trajectories_are_counted_for_every_group_asked_for():
    graph = StateGraph.from_arrays([0, 1, 0, 0], [2, 2], [1.0, 0.0])
    assert distinct_trajectories(graph, np.array([2, 0, 2, 2]), 5).tolist() == [1, 0, 2, 0, 0]


def test_exports(tmp_path):
    graph = StateGraph.from_trajectories(RUNS)
    data = graph_json(graph)
    assert sum(node["kind"] == "state" for node in data["nodes"]) == graph.states
    assert sum(edge["visits"] for edge in data["edges"]) == len(graph)
    write_graph(graph, tmp_path / "g.json")
    assert json.loads((tmp_path / "g.json").read_text()) == json.loads(json.dumps(data))
    write_graph(graph, tmp_path / "g.graphml")
    back = nx.read_graphml(tmp_path / "g.graphml", node_type=int)
    assert back.number_of_nodes() == len(data["nodes"])
    for edge in data["edges"]:
        assert back.edges[edge["source"], edge["target"]]["gain"] == pytest.approx(edge["gain"])
    assert {back.nodes[n]["name"] for n in back if back.nodes[n]["kind"] == "end"} == {"end 0", "end 1"}


def test_exports_that_cannot_be_written(tmp_path):
    graph = StateGraph.from_trajectories(RUNS)
    with pytest.raises(BadInput, match="not known"):
        write_graph(graph, tmp_path / "g.png")
    with pytest.raises(BadInput, match="cannot be written"):
        write_graph(graph, tmp_path / "none" / "g.json")
    odd = StateGraph.from_arrays([0], [1], [1.0], names=["a\x00b"])
    write_graph(odd, tmp_path / "odd.graphml")
    assert "ab" in {data["name"] for _, data in nx.read_graphml(tmp_path / "odd.graphml").nodes(data=True)}


def test_estimators_side_by_side():
    graph = StateGraph.from_arrays([0, 1, 2, 0, 1, 0, 3, 3, 3], [3, 2, 4], [0.0, 10.0, 0.0])
    rows = {row.method: row for row in compare_methods(graph)}
    assert list(rows) == list(METHODS)
    assert rows["grpo"].within == pytest.approx(0.0, abs=1e-12)
    assert rows["g2po"].within > 0
    assert rows["grpo"].rescued == 0.0
    assert rows["g2po"].rescued > 0
    assert rows["grpo"].agreement == pytest.approx(1.0)
    equal = StateGraph.from_arrays([0] * 3, [1] * 3, [0.1] * 3)
    assert {row.rescued for row in compare_methods(equal)} == {None}, "a mean above them by rounding"
    flat = compare_methods(StateGraph.from_arrays([0, 1], [1, 1], [0.0, 0.0]))[0]
    assert (flat.within, flat.rescued, flat.agreement, flat.zero) == (None, None, None, 1.0)
