from __future__ import annotations

import inspect
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.forking import (
    Ban,
    Compose,
    Force,
    Set,
    fork,
    plan_sweep,
    potential,
    potential_scores,
    sweep,
    token_chances,
)
from refork.forking.arm import prepare, run_jobs
from refork.forking.potential import (
    Paired,
    Passage,
    Sweep,
    _openings,
    _over,
    _serve,
    first_passage,
    pair_up,
    run_sweep,
)
from refork.forking.settings import ForkSettings
from refork.growing import grow
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge, Verdict
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy, filtered
from refork.progress import silent
from refork.sampling.grammar import Grammar
from refork.sampling.noise import NoiseKey, stream_of, uniforms
from refork.tree.node import NewNode, Point
from refork.tree.score import Producer
from refork.tree.tree import Tree
from support.chain import PLAIN, TABLE
from support.nodes import make_node, make_walk
from support.worlds import TwoTurns

EXACT = {(): 0.55, (" think",): 0.9, (" guess",): 0.2}


def trace(tree, start, policy, judge, text):
    base = fork(start, policy, 60, settings=PLAIN, judge=judge)
    return tree.at(next(w.leaf for w in base.leaves() if w.leaf.text == text))


def noise(draw, length):
    return uniforms([NoiseKey(3, stream_of("test"), draw)], length)[0]


def test_every_point_is_served_by_at_least_the_draws_asked_for():
    follow = np.array([0.9, 0.5, 0.99, 0.2, 1.0])
    passage = first_passage(follow, np.ones(5, dtype=bool), 64, noise)
    assert all(passage.serving(b).sum() == 64 for b in range(5))
    assert (passage.leave >= passage.start).all()


def test_a_trace_that_is_never_followed_costs_all_draws_everywhere():
    passage = first_passage(np.zeros(4), np.ones(4, dtype=bool), 10, noise)
    assert len(passage.start) == 40
    assert (passage.leave == passage.start).all()


def test_a_certain_trace_costs_no_continuation():
    passage = first_passage(np.ones(6), np.ones(6, dtype=bool), 16, noise)
    assert len(passage.start) == 16
    assert (passage.leave == 6).all()


def test_unwanted_points_are_passed_but_not_topped_up():
    wanted = np.array([True, False, False, True])
    passage = first_passage(np.full(4, 0.5), wanted, 32, noise)
    assert passage.serving(3).sum() == 32
    assert passage.serving(1).sum() < 32
    assert set(passage.start.tolist()) <= {0, 3}


def test_departures_have_the_law_of_the_trace():
    # 20,000 draws, three geometric shares: 4.5 standard errors, wrong once in 100,000 seeds.
    follow = np.array([0.8, 0.6, 0.3])
    said = uniforms([NoiseKey(3, stream_of("test"), draw) for draw in range(20_000)], 3)
    passage = first_passage(follow, np.array([True, False, False]), 20_000, lambda draw, _: said[draw])
    share = np.bincount(passage.leave, minlength=4) / 20_000
    expected = np.array([0.2, 0.8 * 0.4, 0.48 * 0.7, 0.48 * 0.3])
    assert np.all(abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 20_000))


@pytest.mark.parametrize("wanted", [[1, 1, 1, 1, 1, 1], [1, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0], [0] * 6])
def test_passages_one_by_one(wanted):
    """Each wanted boundary is topped up with draws that begin there and follow while their number allows."""
    follow = np.array([0.9, 0.4, 0.7, 1.0, 0.2, 0.8])
    passage = first_passage(follow, np.array(wanted, dtype=bool), 7, noise)
    rows = []
    for boundary in np.flatnonzero(wanted):
        while sum(start <= boundary <= leave for start, leave in rows) < 7:
            says = noise(len(rows), 6)
            leave = boundary
            while leave < 6 and says[leave] < follow[leave]:
                leave += 1
            rows.append((boundary, leave))
    assert list(zip(passage.start.tolist(), passage.leave.tolist(), strict=True)) == rows
    assert (passage.start.dtype, passage.leave.dtype) == (np.int64, np.int64)
    for boundary in range(7):
        serving = [start <= boundary <= leave for start, leave in rows]
        assert passage.serving(boundary).tolist() == serving
    exactly = first_passage(np.full(3, 0.5), np.ones(3, dtype=bool), 4, lambda draw, size: np.full(size, 0.5))
    assert (exactly.leave == exactly.start).all(), "a number as large as the chance does not follow"


@pytest.mark.parametrize("outcome", [None, 0.25])
@pytest.mark.parametrize("seed", range(6))
def test_values_and_pairs_one_by_one(seed, outcome):
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 5, 24))
    leave = np.minimum(start + rng.integers(0, 4, 24), 5)
    passage, values = Passage(start, leave), rng.choice([0.0, 0.5, 1.0, np.nan], 24)
    asked = np.array([0, 1, 3, 4])
    total, count, served = _serve(passage, asked, values)
    found = pair_up(passage, asked, values, outcome)
    rows = []
    for j, boundary in enumerate(asked):
        here = [i for i in range(24) if start[i] <= boundary <= leave[i]]
        known = [values[i] for i in here if not np.isnan(values[i])]
        assert (total[j], count[j]) == (sum(known), len(known))
        rows.append(len(here))
        if boundary == asked[-1]:
            gaps = [values[i] - (np.nan if outcome is None else outcome) for i in here]
        else:
            there = [i for i in range(24) if start[i] <= asked[j + 1] <= leave[i]]
            left, begun = [i for i in here if i not in there], [i for i in there if i not in here]
            gaps = [0 * values[i] for i in here if i in there]
            gaps += [values[a] - values[b] for a, b in zip(left, begun, strict=False)]
        gaps = [gap for gap in gaps if not np.isnan(gap)]
        assert found.count[j] == len(gaps)
        assert (found.total[j], found.square[j]) == pytest.approx((sum(gaps), sum(gap**2 for gap in gaps)))
        mean, error = found.mean()[j], found.error()[j]
        assert mean == pytest.approx(np.mean(gaps) if gaps else np.nan, nan_ok=True)
        n = len(gaps)
        wanted = np.sqrt(max(sum(g**2 for g in gaps) - sum(gaps) ** 2 / n, 0)) / n if n > 1 else np.nan
        assert error == pytest.approx(wanted, nan_ok=True)
    assert served == sum(rows)
    assert (count.dtype, found.count.dtype, total.dtype) == (np.int64, np.int64, np.float64)
    both = found + found
    for name in ("count", "total", "square"):
        np.testing.assert_array_equal(getattr(both, name), 2 * getattr(found, name))


def test_errors_need_two_pairs_and_are_never_below_zero():
    few = Paired(np.array([0, 1, 2, 9]), np.array([0.0, 1.0, 1.0, 0.3]), np.array([0.0, 1.0, 1.0, 0.00999]))
    np.testing.assert_array_equal(few.mean()[:3], [np.nan, 1.0, 0.5])
    np.testing.assert_allclose(few.error(), [np.nan, np.nan, np.sqrt(0.5) / 2, 0.0])


def swept(total, count, outcome):
    """A sweep of nothing but its figures."""
    none = np.zeros(0)
    return Sweep(None, (), np.array(total), np.array(count), outcome, none, 0, 0, 0, 0.0, None)


def test_the_steepest_fall_counts_the_outcome_and_leaves_out_what_nobody_graded():
    one = swept([1.0, 3.0, 0.0, 1.0], [1, 4, 0, 2], 0.0)
    np.testing.assert_array_equal(one.value, [1.0, 0.75, np.nan, 0.5])
    np.testing.assert_array_equal(one.drops(), [0.25, np.nan, np.nan, 0.5])
    assert one.steepest() == 3
    assert swept([1.0, 3.0, 0.0, 1.0], [1, 4, 0, 2], None).steepest() == 0
    with pytest.raises(BadInput, match="no point of this trace could be graded"):
        swept([0.0, 1.0], [0, 2], None).steepest()


@pytest.mark.parametrize("reuse", [True, False])
def test_values_are_unbiased(tree, start, policy, judge, reuse):
    # 3,000 draws a point: 4.5 standard errors, wrong once in 50,000 seeds.
    end = trace(tree, start, policy, judge, " guess wrong")
    result = sweep(end, policy, 3000, reuse=reuse, judge=judge)
    exact = [0.55, 0.2, 0.0]
    for value, true, count in zip(result.value, exact, result.count, strict=True):
        assert count >= 3000
        assert value == pytest.approx(true, abs=4.5 * max(true * (1 - true) / 3000, 1e-12) ** 0.5 + 1e-12)
    assert result.outcome == 0.0


def test_reuse_saves_continuations(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    with_reuse = sweep(end, policy, 64, judge=judge)
    without = sweep(end, policy, 64, reuse=False, judge=judge)
    assert without.sampled == without.served == 3 * 64
    assert with_reuse.served >= 3 * 64
    assert with_reuse.sampled < 0.7 * without.sampled


def test_the_steepest_fall_is_found(tree, start, policy, judge):
    result = sweep(trace(tree, start, policy, judge, " guess wrong"), policy, 200, judge=judge)
    assert result.steepest() == 0, "0.55 -> 0.20 is the largest fall"


def test_a_sweep_again_draws_nothing(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " think right")
    one = sweep(end, policy, 50, judge=judge)
    two = sweep(end, policy, 50, judge=judge)
    assert two.tokens == 0
    assert np.array_equal(one.value, two.value)


def test_more_draws_later_stay_exact(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " think right")
    sweep(end, policy, 20, judge=judge)
    larger = sweep(end, policy, 400, judge=judge)
    assert larger.value[0] == pytest.approx(0.55, abs=0.12)
    assert larger.value[1] == pytest.approx(0.9, abs=0.08)


def test_a_resampled_departure_never_repeats_the_trace(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    sweep(end, policy, 64, judge=judge)
    token = end.node.tokens
    for node in tree.walk(start.node.id):
        if "excluded_first" in node.extra:
            kept = node.keep if node.parent == end.node.id else 0
            assert node.tokens[0] != token[kept or 0]


def test_scores_are_per_token(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    result = sweep(end, policy, 64, judge=judge)
    producer, scores = potential_scores(result, policy, 0, 64)
    tree.add_producer(producer)
    tree.add_scores(scores)
    stored = list(tree.scores(node=end.node.id, name="potential"))
    assert stored[0].value.shape == (end.node.length,)


@pytest.mark.parametrize(
    "other",
    [
        {"settings": PLAIN.but(max_tokens=3), "reuse": False},
        {"reuse": False},
        {"at": [0, 1, 2]},
        {"score": "marks", "judge": MatchJudge("wrong", score="marks")},
        {"judge": MatchJudge("wrong")},
        {"max_turns": 2},
    ],
)
def test_another_sweep_of_a_node_is_another_producers_word(tree, start, policy, judge, other):
    end = trace(tree, start, policy, judge, " guess wrong")
    found = []
    for given in ({}, {}, other):
        result = sweep(end, policy, 16, **{"judge": judge} | given)
        producer, scores = potential_scores(result, policy, 0, 16)
        tree.add_producer(producer)
        tree.add_scores(scores)
        found.append(producer.id)
    assert found[0] == found[1] != found[2]


def test_turns_without_token_ids_have_no_score_of_a_token(tree, policy, judge):
    begin = plant_prompt(tree, policy, "Well?")
    said = tree.append([NewNode(kind="action", parent=begin.node.id, text=" think right", finish="stop")])[0]
    result = sweep(tree.at(said), policy, 4, every="turn", judge=judge, settings=PLAIN)
    assert (result.points[0].keep, begin.node.length) == (begin.node.length, begin.node.length)
    assert potential_scores(result, policy, 0, 4)[1] == []


def test_scores_say_who_gave_them_and_stand_at_their_tokens():
    nodes = [make_node(name, tokens=[1, 2, 3]) for name in ("a", "b")]
    points = (
        Point(nodes[0], 0),
        Point(nodes[0], 1),
        Point(nodes[0], 2),
        Point(nodes[1], 0),
        Point(nodes[1], 1),
    )
    one = replace(swept([1.0, 0.0, 1.0, 1.0, 1.0], [2, 1, 1, 1, 1], None), points=points)
    for weights, told in (("w", "w"), (None, "name")):
        policy = SimpleNamespace(card=SimpleNamespace(weights=weights, name="name"))
        producer, scores = potential_scores(one, policy, 3, 7)
        assert producer == Producer(
            "sweep", "1", {"policy": told, "seed": 3, "draws": 7, "points": "before token"}
        )
        assert [(score.node, score.name, score.value.tolist(), score.producer) for score in scores] == [
            ("a", "potential", [0.5, 0.0, 1.0], producer.id)
        ], "the third token of b was not valued"


@pytest.mark.parametrize(
    ("kind", "mid", "finish", "answered", "over"),
    [
        ("verdict", False, None, False, True), ("verdict", True, None, True, True),
        ("action", False, "stop", False, True), ("action", True, "stop", False, False),
        ("action", False, None, False, False), ("observation", False, "stop", False, False),
        ("action", False, "stop", True, False),
    ],
)  # fmt: skip
def test_nothing_follows_a_verdict_or_a_finished_turn_that_nobody_answers(kind, mid, finish, answered, over):
    end = SimpleNamespace(node=SimpleNamespace(kind=kind, finish=finish), mid_node=mid)
    assert _over(end, answered) is over


def test_turns_begin_where_somebody_else_stops():
    task, seen = make_node("t", "task", [1, 2]), make_node("o", "observation", [3, 4, 5])
    said = [make_node(name, tokens=[6]) for name in ("a", "b", "c")]
    trajectory = make_walk(
        task, said[0], seen, said[1], said[2], make_node("v", "verdict", None), keeps=[None, None, 2]
    )
    home = object()
    found = _openings(trajectory, home)
    assert [(point.node.id, point.keep) for point in found] == [("t", 2), ("o", 2)]
    assert all(point.tree is home for point in found)


@pytest.fixture
def cut(tree, start, policy, judge):
    """A graded trace, cut behind its first token: what it scored is no outcome of that."""
    return tree.at(trace(tree, start, policy, judge, " guess wrong").node, 1)


def test_draws_that_say_all_of_an_unfinished_trace_run_on(tree, cut, policy, judge):
    plan = plan_sweep(cut, policy, 60, judge=judge)
    whole = np.flatnonzero(plan.passage.leave == 1).tolist()
    assert 0 < len(whole) < 60
    assert (plan.whole, plan.runs_on, plan.continuations, plan.outcome) == (whole, True, 60, None)
    result = run_sweep(plan, judge=judge)
    assert (result.count.tolist(), result.served, result.sampled) == ([60], 60, 60)
    assert result.trajectory is plan.trajectory
    assert result.value[0] == pytest.approx(0.55, abs=0.3)  # 4.5 standard errors of 60 draws
    assert np.isnan(result.drops()).all()
    at_end = plan_sweep(tree.at(cut.node), policy, 60, judge=judge)
    assert (at_end.outcome, at_end.runs_on) == (0.0, False)
    assert at_end.whole
    assert at_end.continuations == int((at_end.passage.leave < 3).sum())
    certain = run_sweep(at_end, judge=judge)
    assert min(certain.count) >= 60, "who says the whole trace has its outcome"


@pytest.mark.parametrize("backend", [None, "workers"])
def test_what_a_sweep_asks_for(cut, policy, monkeypatch, backend):
    late, asked, made = MatchJudge("right"), [], []
    prepared, ran = potential.prepare, potential.run_jobs

    def prepare(point, given, draws, **options):
        made.append((point, given, draws, options))
        return prepared(point, given, draws, **options)

    def run_jobs(jobs, **options):
        asked.append(options)
        return ran(jobs, judge=options["judge"])

    monkeypatch.setattr(potential, "prepare", prepare)
    monkeypatch.setattr(potential, "run_jobs", run_jobs)
    plan = plan_sweep(cut, policy, 20, judge=late, seed=5)
    run_sweep(plan, judge=late, progress=print, backend=backend)
    assert asked == [{"judge": late, "progress": print, "stage": "sweeping", "backend": backend}]
    left = [i for i in range(20) if i not in plan.whole]
    first = int(cut.node.tokens[0])
    wanted = [(Point(cut.node, 0), left, first), (cut, plan.whole, None)]
    assert [(point, draws, options["exclude_first"]) for point, _, draws, options in made] == wanted
    for point, given, _, options in made:
        assert given is policy
        assert options["backend"] == backend
        assert (options["seed"], options["world"], options["simulator"]) == (5, None, None)
        assert options["stream"] == stream_of("sweep", point.address)
        assert options["settings"] == plan.arms.on.settings


WORLD = Producer("world:lock")


@pytest.mark.parametrize(
    ("recorded", "name", "judged", "outcome"),
    [
        ({}, "success", 0.5, 0.5),
        ({"mine": 0.75}, "success", 0.5, 0.75),
        ({"mine": 0.0, "other": 1.0}, "success", 0.5, 0.0),
        # Another judge's word is none of this one's; the world's is, where this one has none.
        ({"other": 1.0}, "success", 0.5, 0.5),
        ({"other": 1.0}, "success", None, None),
        ({"other": 1.0, WORLD.id: 0.25}, "success", 0.5, 0.5),
        ({"other": 1.0, WORLD.id: 0.25}, "success", None, 0.25),
        # It says nothing of another score: the world counts, and where it is silent the newest.
        ({}, "marks", 0.5, None),
        ({WORLD.id: 0.25, "other": 1.0}, "marks", 0.5, 0.25),
        ({"other": 1.0}, "marks", 0.5, 1.0),
    ],
)  # fmt: skip
def test_an_outcome_is_what_the_judge_says_or_else_the_world_else_the_newest(recorded, name, judged, outcome):
    trajectory = make_walk(make_node("a", tokens=[1]))

    class Told:
        score = "success"
        producer = SimpleNamespace(id="mine")

        def judge(self, given):
            assert given is trajectory
            return Verdict(judged)

    def score_map(score, nodes, producer=None):
        assert (score, nodes) == (name, ["a"])
        value = recorded.get(producer) if producer else next(reversed(recorded.values()), None)
        return {} if value is None else {"a": value}

    tree = SimpleNamespace(score_map=score_map, producers=lambda: [Producer("judge"), WORLD])
    end = Point(trajectory.leaf)
    newest = next(reversed(recorded.values()), None)
    for judge, found in ((Told(), outcome), (None, recorded.get(WORLD.id, newest))):
        shared = potential._Shared("policy", ForkSettings(judge=judge))
        assert potential._outcome(end, tree, trajectory, name, shared) == found


def test_a_sweep_has_one_judge(tree, start, policy):
    """ " guess wrong", graded before by another judge: the exact values are of this call's judge alone."""
    end = trace(tree, start, policy, MatchJudge("right"), " guess wrong")
    result = sweep(end, policy, 3000, judge=MatchJudge("wrong"))
    assert result.outcome == 1.0
    # 3,000 draws a point: 4.5 standard errors, wrong once in 50,000 seeds.
    assert result.value == pytest.approx(np.array([0.45, 0.8, 1.0]), abs=4.5 * 0.5 / 3000**0.5)
    assert result.value[2] == 1.0
    with Tree.memory() as alone:
        begin = plant_prompt(alone, policy, "Well?")
        fork(begin, policy, 60, settings=PLAIN)
        fresh = sweep(alone.at(end.node.id), policy, 3000, judge=MatchJudge("wrong"))
    np.testing.assert_array_equal(result.total, fresh.total)


class SaysB(MatchJudge):
    """Whether the last turn is " b", whatever was answered to it."""

    def judge(self, trajectory):
        return Verdict(float([s.text for s in trajectory if s.node.kind == "action"][-1] == " b"))


@pytest.mark.parametrize("judge", [None, SaysB("")])
def test_a_sweep_may_end_at_a_whole_turn_that_the_world_answers(judge):
    """Whoever says the whole turn again is answered and goes on: no draw is lost, and none ends there."""
    world = TwoTurns()
    agent = ScriptedPolicy.from_chain({"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}})
    with Tree.memory() as tree:
        (group,) = grow(tree, agent, world, world.tasks("train", 1), draws=40, settings=PLAIN)
        said = [" a", " a"] if judge is None else [" a", " b"]
        path = next(
            w for w in group.forks[0].leaves() if [s.text for s in w if s.node.kind == "action"] == said
        )
        for end in path.steps[1:3]:  # the first turn, and its answer
            result = sweep(tree.at(end.node), agent, 2000, world=world, judge=judge)
            assert result.outcome is None
            assert result.count.tolist() == [2000, 2000]
            # Both turns say " a", or the second says " b"; the turn's end is certain. 4.5 standard errors.
            exact = [0.36, 0.6] if judge is None else [0.4, 0.4]
            assert result.value == pytest.approx(np.array(exact), abs=4.5 * 0.5 / 2000**0.5)
            assert result.sampled >= 2000, "a draw that says all of the trace is run on, too"


def test_a_sweep_tells_what_it_took(cut, policy, judge, monkeypatch):
    """Figures of the plan are those of the sweep; the share of a simulator's answers counts draws."""
    plan = plan_sweep(cut, policy, 4, judge=judge)
    jobs, owners = ["one", "two"], [{0}, {1, 2, 3}]
    monkeypatch.setattr(potential, "_departures", lambda *_: (list(jobs), list(owners)))
    monkeypatch.setattr(potential.SweepPlan, "runs_on", False)

    def arm(simulated, tokens, seconds, draws):
        records = [SimpleNamespace(draw=draw) for draw, _ in draws]
        return SimpleNamespace(
            simulated=simulated, tokens=tokens, seconds=seconds, draws=records,
            values=lambda score: [value for _, value in draws],
        )  # fmt: skip

    arms = [
        arm(0.5, 3, 1.5, [(0, 1.0), (1, 0.0)]),
        arm(1.0, 4, 0.25, [(1, 0.0), (2, None), (3, 1.0), (9, 1.0)]),
    ]
    monkeypatch.setattr(potential, "run_jobs", lambda *_, **__: arms)
    plan = replace(
        plan, outcome=0.25, follow=np.array([0.5]), passage=Passage(np.zeros(4, int), np.array([0, 0, 0, 1]))
    )
    found = run_sweep(plan, judge=judge)
    assert (found.tokens, found.seconds, found.simulated) == (7, 1.75, (0.5 * 2 + 1.0 * 4) / 6)
    assert (found.outcome, found.follow, found.sampled, found.served) == (0.25, plan.follow, 3, 4)
    assert (found.count.tolist(), found.total.tolist()) == ([3], [2.0])
    pairs = pair_up(plan.passage, np.array([0]), np.array([1.0, 0.0, np.nan, 1.0]), 0.25)
    assert (found.paired.count.tolist(), found.paired.total.tolist()) == (
        pairs.count.tolist(),
        pairs.total.tolist(),
    )
    monkeypatch.setattr(potential, "_departures", lambda *_: ([], []))
    monkeypatch.setattr(potential, "run_jobs", lambda *_, **__: [])
    assert run_sweep(plan).simulated == 0.0


def test_the_usual_sweep_has_64_draws_of_the_first_seed(cut, policy, judge):
    usual = plan_sweep(cut, policy, judge=judge)
    mine = plan_sweep(cut, policy, 64, judge=judge, seed=0)
    np.testing.assert_array_equal(usual.passage.leave, mine.passage.leave)
    assert usual.arms.on.seed == 0
    assert (plan_sweep(cut, policy, 64, judge=judge, seed=1).passage.leave != mine.passage.leave).any()


def test_boundaries_that_are_asked_for(tree, cut, policy, judge):
    end = tree.at(cut.node)
    plan = plan_sweep(end, policy, 4, judge=judge, at=[2, 0])
    assert plan.wanted.tolist() == [True, False, True]
    assert plan_sweep(end, policy, 4, judge=judge, every="turn").wanted.tolist() == [True, False, False]
    assert plan_sweep(end, policy, 4, judge=judge).wanted.tolist() == [True] * 3
    for at, says in (
        ([3], "boundary 3 is not on this trace"),
        ([0, -1], "boundary -1 is not"),
        ([], "no boundary"),
    ):
        with pytest.raises(BadInput, match=says):
            plan_sweep(end, policy, 4, judge=judge, at=at)
    with pytest.raises(BadInput, match=rf"node {cut.node.id[:12]}\b"):
        plan_sweep(end, policy, 4)


def test_chances_are_read_anew_where_none_are_recorded():
    """Each turn's own tokens, as many as the path keeps: here one of two, and two of three behind it."""
    task, said = make_node("t", "task", [1, 2]), make_node("a", tokens=[3, 4], parent="t")
    more = make_node("b", tokens=[5, 6, 7], parent="a", keep=1)
    trajectory, asked = make_walk(task, said, more, keeps=[None, 1, 2]), []

    def logprobs(rows):
        asked.extend(row.tolist() for row in rows)
        return [np.log(row[1:] / 10).astype(np.float32) for row in rows]

    policy = SimpleNamespace(card=SimpleNamespace(weights="w"), logprobs=logprobs)
    assert potential._follow(policy, trajectory, Sampling()) == pytest.approx([0.3, 0.5, 0.6], rel=1e-6)
    assert asked == [[1, 2, 3], [1, 2, 3, 5, 6]]


@pytest.mark.parametrize(
    ("extra", "asked", "chances"),
    [
        ({}, {}, [0.5, 0.25]), ({"excluded_first": 3}, {}, [0.0, 0.25]),
        ({}, {"banned_first": (9,)}, [0.0, 0.25]), ({}, {"forced": (3,)}, [0.0, 0.25]),
        ({"excluded_first": 3}, {"forced": (3,)}, [0.0, 0.0]),
    ],
)  # fmt: skip
def test_a_token_that_was_not_free_leaves_no_chance(extra, asked, chances):
    logs = np.log(np.array([0.5, 0.25], dtype=np.float32))
    recorded = PLAIN.but(**asked).to_json()
    said = make_node(
        "a", tokens=[3, 4], parent="t", extra=extra, logprobs=logs, settings=recorded, weights="w"
    )
    policy = SimpleNamespace(card=SimpleNamespace(weights="w"))
    assert potential._follow(policy, make_walk(make_node("t", "task", [1]), said), PLAIN) == pytest.approx(
        chances
    )


def test_who_said_a_node():
    policy = SimpleNamespace(card=SimpleNamespace(weights="w"))
    for extra, weights, said in (
        ({}, "w", True),
        ({}, "v", False),
        ({"worker": "one"}, "v", True),
        ({}, None, False),
    ):
        assert potential._said_by(make_node("a", extra=extra, weights=weights), policy) is said


def test_an_arm_of_a_sweep_has_what_all_have_and_a_stream_of_its_own(cut, monkeypatch):
    asked = []
    monkeypatch.setattr(potential, "prepare", lambda *given, **options: asked.append((given, options)))
    mine = ForkSettings(settings=PLAIN, world="world", seed=3, max_turns=2, simulator="simulator")
    potential._Shared("policy", mine).arm(cut, [2, 5], 7, "crew")
    options = {**mine.options(), "backend": "crew", "exclude_first": 7}
    options["stream"] = stream_of("sweep", cut.address)
    assert asked == [((cut, "policy", [2, 5]), options)]


def test_where_no_draw_may_follow_no_token_is_excluded(tree, cut, monkeypatch):
    asked = []
    monkeypatch.setattr(
        potential, "prepare", lambda *given, **options: asked.append((given, options)) or "job"
    )
    shared = potential._Shared("policy", ForkSettings(settings=PLAIN, seed=3))
    boundaries = [Point(cut.node, token, tree) for token in range(3)]
    passage = Passage(np.array([0, 0, 1, 1]), np.array([2, 0, 3, 0]))
    jobs, owners = potential._departures(boundaries, passage, np.array([0.5, 0.5, 0.0]), shared, "crew")
    assert (jobs, owners) == (["job", "job"], [{1, 3}, {0}])
    told = [(given[0], given[2], options["exclude_first"], options["backend"]) for given, options in asked]
    assert told == [
        (boundaries[0], [1, 3], int(cut.node.tokens[0]), "crew"),
        (boundaries[2], [0], None, "crew"),
    ]


def test_a_sweep_is_its_plan_run(monkeypatch):
    asked = []

    def noted(name):
        return lambda *given, **options: asked.append((name, given, options)) or "result"

    monkeypatch.setattr(potential, "plan_sweep", noted("plan"))
    monkeypatch.setattr(potential, "run_sweep", noted("run"))
    points = {"every": "turn", "at": [1], "score": "marks", "reuse": False}
    mine = {"settings": PLAIN, "world": "world", "judge": "judge", "seed": 3, "simulator": "simulator"}
    mine |= {"progress": print, "backend": "workers"}
    usual = {"every": "token", "at": None, "score": "success", "reuse": True}
    assert sweep("end", "policy", 9, **points, **mine) == "result"
    sweep("end", "policy")
    assert asked == [
        ("plan", ("end", "policy", 9), points | mine),
        ("run", ("result",), {"judge": "judge", "progress": print, "backend": "workers"}),
        ("plan", ("end", "policy", 64), usual),
        ("run", ("result",), {"judge": None, "progress": silent, "backend": None}),
    ]
    given = inspect.signature(plan_sweep).parameters
    shared = ForkSettings().options()
    assert {name: one.default for name, one in given.items() if name in usual | shared} == usual | shared
    assert given["draws"].default == 64


def test_the_progress_of_a_sweep_may_be_left_out(tree, cut, policy, monkeypatch):
    asked = []
    monkeypatch.setattr(potential, "run_jobs", lambda jobs, **options: asked.append(options) or [])
    plan = plan_sweep(tree.at(cut.node), policy, 1, judge=MatchJudge("right"))
    monkeypatch.setattr(potential, "_departures", lambda *_: ([], []))
    run_sweep(plan)
    assert asked == [{"judge": None, "progress": silent, "stage": "sweeping", "backend": None}]


def test_refusals(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")
    with pytest.raises(BadInput, match="'token' or 'turn'"):
        sweep(end, policy, 4, every="word", judge=judge)
    with pytest.raises(BadInput, match="at least 1"):
        sweep(end, policy, 0, judge=judge)
    with pytest.raises(BadInput, match="no sampled action"):
        sweep(start, policy, 4, judge=judge)
    with pytest.raises(CannotDo, match="reuse=False"):
        sweep(end, policy, 4, settings=PLAIN.but(temperature=0.5), judge=judge)


def test_a_longer_chain_is_unbiased_with_filters(tree, judge):
    # A six-token chain under top-p and temperature, against exact values by recursion.
    table = {
        "": {" a": 0.7, " b": 0.3},
        " a": {" a2": 0.6, " b": 0.25, " c": 0.15},
        " a2": {" right": 0.5, " wrong": 0.5},
        " b": {" right": 0.1, " wrong": 0.9},
        " c": {" right": 0.95, " wrong": 0.05},
        " right": {"": 1.0},
        " wrong": {"": 1.0},
    }
    policy = ScriptedPolicy.from_chain(table)
    sampling = PLAIN.but(temperature=1.3, top_p=0.95)

    def chances(state):
        names, p = zip(*table[state].items(), strict=True)
        q = np.array(p) ** (1 / 1.3)
        q /= q.sum()
        order = np.argsort(-q)
        keep = order[: int(np.searchsorted(np.cumsum(q[order]), 0.95) + 1)]
        r = np.zeros(len(q))
        r[keep] = q[keep] / q[keep].sum()
        return dict(zip(names, r, strict=True))

    def value(state):
        if state in (" right", " wrong"):
            return float(state == " right")
        return sum(p * value(s) for s, p in chances(state).items())

    begin = plant_prompt(tree, policy, "Well?")
    base = fork(begin, policy, 80, settings=sampling, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " a a2 wrong")
    result = sweep(tree.at(leaf), policy, 4000, judge=judge)
    exact = [value(""), value(" a"), value(" a2"), 0.0]
    # 4,000 draws a point, four points: 4.5 standard errors, wrong once in 30,000 seeds.
    assert result.value == pytest.approx(np.array(exact), abs=4.5 * 0.5 / 4000**0.5)


@pytest.mark.parametrize("only", ["all", "presence_penalty", "frequency_penalty"])
def test_values_are_unbiased_where_penalties_count_what_the_turn_has_said(tree, judge, only):
    """Draws that leave a trace inside a turn must count its beginning: exact values over all turns."""
    both = {" go": 0.35, " back": 0.35}
    policy = ScriptedPolicy.from_chain(
        {
            "": {" go": 0.5, " back": 0.5},
            " go": both | {" right": 0.3},
            " back": both | {" wrong": 0.3},
            " right": {"": 1.0},
            " wrong": {"": 1.0},
        }
    )
    asked = {"repetition_penalty": 1.6, "frequency_penalty": 0.9, "presence_penalty": 0.7, "min_p": 0.05}
    sampling = PLAIN.but(**(asked if only == "all" else {only: 1.5}), max_tokens=6)

    from refork.growing.plant import plant_prompt

    begin = plant_prompt(tree, policy, "Well go?")
    prompt = [int(token) for token in tree.path(begin).tokens]

    def value(said):
        """The chance that a turn which began so ends right."""
        if said and said[-1] in (right, wrong):
            return float(said[-1] == right)
        if len(said) == sampling.max_tokens:
            return 0.0
        bare = policy.next_logprobs([np.array([*prompt, *said])])[0].astype(np.float64)
        chance = np.exp(filtered(bare, sampling, (), prompt, said))
        return sum(chance[t] * value([*said, t]) for t in (go, back, right, wrong) if chance[t] > 0)

    go, back, right, wrong = (int(policy.encode(word)[0]) for word in (" go", " back", " right", " wrong"))
    base = fork(begin, policy, 200, settings=sampling, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " go back wrong")
    result = sweep(tree.at(leaf), policy, 3000, judge=judge)
    exact = [value([]), value([go]), value([go, back])]
    # 3,000 draws a point, three points: 4.5 standard errors, wrong once in 30,000 seeds. Counting anew behind
    # the point would be nearly twice as far off.
    assert result.value[:3] == pytest.approx(np.array(exact), abs=4.5 * 0.5 / 3000**0.5)


def test_table_is_a_law():
    assert all(sum(sampling.values()) == pytest.approx(1) for sampling in TABLE.values())


def test_what_nobody_graded_gets_no_score(tree, start, policy, judge):
    end = trace(tree, start, policy, judge, " guess wrong")

    class Silent(MatchJudge):
        def judge(self, trajectory):
            return Verdict(None)

    silent = Silent("right")
    ungraded = fork(start, policy, 1, settings=PLAIN, seed=9).leaves()[0].leaf
    blind = sweep(tree.at(ungraded), policy, 4, judge=silent)
    assert np.isnan(blind.value).any()
    _, scores = potential_scores(blind, policy, 0, 4)
    assert scores == []
    assert potential_scores(sweep(end, policy, 8, judge=judge), policy, 0, 8)[1]


def test_a_fork_where_a_sweep_has_drawn_shares_no_noise_with_it(tree, start, policy, judge):
    """What found a token takes no part in proving it, even under the same seed."""
    from refork.sampling.noise import stream_of

    base = fork(start, policy, 40, settings=PLAIN, judge=judge)
    leaf = next(w.leaf for w in base.leaves() if w.leaf.text == " guess wrong")
    before = {arm.id for arm in tree.forks()}
    result = sweep(tree.at(leaf), policy, 32, judge=judge, seed=5)
    swept = {(arm.seed, arm.stream) for arm in tree.forks() if arm.id not in before}
    assert swept
    swept.add((5, stream_of("passage", tree.at(leaf).address)))
    for point in result.points:
        arm = fork(point, policy, 32, judge=judge, seed=5)
        assert (arm.record.seed, arm.record.stream) not in swept


THINK, RIGHT, WRONG, STOP = 0.5, 0.9, 0.1, 1.0


@pytest.mark.parametrize(
    ("change", "said", "chances"),
    [
        (None, " think wrong", [THINK, WRONG, STOP]),
        (Force(text=" think wrong"), " think wrong", [0, 0, STOP]),
        (Ban(text=" guess"), " think wrong", [0, WRONG, STOP]),
        # What is banned first is so of the first free token: the one behind those that are forced.
        (Compose(Force(text=" think"), Ban(text=" right")), " think wrong", [0, 0, STOP]),
        (Set(temperature=1.0), " think right", [THINK, RIGHT, STOP]),
    ],
    ids=["control", "force", "ban", "force and ban", "set"],
)
def test_conditional_log_probs_are_no_chances_of_a_trace(tree, start, policy, judge, change, said, chances):
    arm = fork(start, policy, 60, change, settings=PLAIN, judge=judge)
    trajectory = next(w for w in arm.leaves() if w.leaf.text == said)
    assert token_chances(policy, trajectory) == pytest.approx(np.array(chances), abs=1e-6)
    # The value of every point by the chances and the exact values of departures: an identity of the
    # distribution.
    follow = plan_sweep(tree.at(trajectory.leaf), policy, 8, judge=judge).follow
    assert follow == pytest.approx(np.array(chances), abs=1e-6)


def test_a_departure_of_a_sweep_leaves_no_chance_at_its_first_token(tree, start, policy, judge):
    think = int(policy.encode(" think")[0])
    (arm,) = run_jobs([prepare(start, policy, 20, settings=PLAIN, exclude_first=think)], judge=judge)
    trajectory = next(w for w in arm.leaves() if w.leaf.text == " guess wrong")
    assert trajectory.leaf.logprobs[0] == 0, "given that it is not the other one, it is certain"
    assert token_chances(policy, trajectory) == pytest.approx([0, 0.8, 1], abs=1e-6)
    exact = {"": 0.55, " guess": 0.2, " wrong": 0.0}
    found = sweep(tree.at(trajectory.leaf), policy, 4000, judge=judge)
    # 4,000 draws a point, three points: 4.5 standard errors, wrong once in 40,000 seeds.
    assert found.value == pytest.approx(np.array(list(exact.values())), abs=4.5 * 0.5 / 4000**0.5)


def test_log_probs_of_other_weights_are_no_chances_of_this_policy(tree, start, policy, judge):
    other = ScriptedPolicy.from_chain(TABLE | {"": {" think": 0.25, " guess": 0.75}})
    arm = fork(start, policy, 60, settings=PLAIN, judge=judge)
    trajectory = next(w for w in arm.leaves() if w.leaf.text == " think right")
    assert token_chances(other, trajectory) == pytest.approx([0.25, RIGHT, STOP], abs=1e-6)
    cold = next(w for w in fork(start, policy, 60, settings=PLAIN.but(temperature=0.9)).leaves())
    with pytest.raises(CannotDo, match="no log-probs under the distribution"):
        token_chances(other, cold)


def test_chances_under_a_grammar_are_those_it_leaves(tree):
    pytest.importorskip("llguidance")
    from support.models import tiny_policy

    policy = tiny_policy()
    start = plant_prompt(tree, policy, "Well?")
    held = Sampling(max_tokens=4, grammar=Grammar.regex("[xy]z"))
    trajectory = fork(start, policy, 1, settings=held).leaves()[0]
    x, y, z = (int(policy.encode(c)[0]) for c in "xyz")
    assert trajectory.leaf.tokens[0] in (x, y)
    prefix = tree.path(start).tokens
    sampling = np.exp(policy.next_logprobs([prefix])[0].astype(float))
    first = int(trajectory.leaf.tokens[0])
    # By hand: of the two tokens that the grammar allows first, the one that was said; then z is certain.
    under = token_chances(policy, trajectory)
    assert under[:2] == pytest.approx([sampling[first] / (sampling[x] + sampling[y]), 1.0], abs=1e-5)
    free = token_chances(policy, trajectory, Sampling(max_tokens=4))
    after = np.exp(policy.next_logprobs([np.append(prefix, first).astype(np.int32)])[0].astype(float))
    assert free[:2] == pytest.approx([sampling[first], after[z]], rel=1e-3)
    with pytest.raises(CannotDo, match="no log-probs under the distribution"):
        token_chances(policy, trajectory, held.but(grammar=Grammar.regex("[xyz]z")))
    bare = fork(start, policy, 1, settings=Sampling(max_tokens=2)).leaves()[0]
    with pytest.raises(CannotDo, match="no log-probs under the distribution"):
        token_chances(policy, bare, held)


def test_a_law_holds_the_ends_of_a_turn_only_under_a_grammar():
    grammar = Grammar.regex("a+")
    free, held = (PLAIN.but(grammar=given, stop_ids=(4, 2)) for given in (None, grammar))
    sampling = potential._sampling_key
    assert sampling(free) == sampling(PLAIN.but(max_tokens=3)) != sampling(PLAIN.but(temperature=0.5))
    assert sampling(held) == sampling(held.but(stop_ids=(2, 4)))
    assert (
        len(
            {
                sampling(held),
                sampling(free),
                sampling(held.but(stop_ids=(2,))),
                sampling(held.but(ignore_eos=True)),
            }
        )
        == 4
    )


def test_a_chance_is_never_above_one():
    logs = np.array([1e-6, -1.0], dtype=np.float32)
    said = make_node("a", tokens=[3, 4], parent="t", logprobs=logs, settings=PLAIN.to_json(), weights="w")
    policy = SimpleNamespace(card=SimpleNamespace(weights="w"))
    assert potential._follow(policy, make_walk(make_node("t", "task", [1]), said), PLAIN)[0] == 1.0


class World:
    """A world with chance of its own, or without."""

    def __init__(self, deterministic):
        self.deterministic = deterministic


@pytest.mark.parametrize("bare", [False, True], ids=["tokens", "messages"])
@pytest.mark.parametrize(
    ("world", "simulator", "fresh"),
    [
        (None, None, False), (World(True), None, False), (World(False), None, True), (None, "sim", True),
        (World(True), "sim", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("settings", [None, PLAIN.but(temperature=0.5)])
def test_a_plan_from_its_parts(monkeypatch, bare, world, simulator, fresh, settings):
    """Reuse ends with a turn where the world has chance of its own; nobody's token ids mean no reuse."""
    first, second = make_node("a", tokens=[1, 2, 3]), make_node("b", tokens=[4, 5])
    tree, trajectory, steps = object(), object(), [] if bare else [(first, 3), (second, 2)]
    end, asked, recorded = Point(second, None, tree), [], PLAIN.but(top_k=3)
    openings = [Point(first, 0, tree), Point(second, 0, tree)]
    monkeypatch.setattr(potential, "_trace", lambda *given: asked.append(given) or (tree, trajectory, steps))
    monkeypatch.setattr(potential, "need_grader", lambda *given: asked.append(given))
    monkeypatch.setattr(potential, "recorded_settings", lambda *given: asked.append(given) or recorded)
    monkeypatch.setattr(potential, "_openings", lambda *given: asked.append(given) or openings)
    monkeypatch.setattr(potential, "_follow", lambda *given: asked.append(given) or np.full(5, 0.8))
    monkeypatch.setattr(potential, "_outcome", lambda *given: asked.append(given) or 0.5)
    plan = plan_sweep(
        end, "policy", 6, every="turn", score="marks", settings=settings, world=world, judge="judge",
        seed=4, simulator=simulator,
    )  # fmt: skip
    law = settings or recorded
    begins = end if bare else Point(first, 0, tree) if steps[-1][0] is first else Point(second, 0, tree)
    wanted = [
        (end, 6, "turn"),
        ("marks", world, "judge", "node b"),
        (end, tree, trajectory, "marks", plan.arms),
    ]
    wanted += [] if settings else [(begins, trajectory)]
    wanted += [(trajectory, tree)] if bare else [("policy", trajectory, law)]
    assert sorted(map(repr, asked)) == sorted(map(repr, wanted))
    follow = [0.0, 0.0] if bare else [0.8, 0.8, 0.0, 0.8, 0.0] if fresh else [0.8] * 5
    assert plan.follow.tolist() == follow
    assert plan.wanted.tolist() == ([True, True] if bare else [True, False, False, True, False])
    assert plan.wanted.dtype == np.bool_
    points = (
        openings
        if bare
        else [Point(first, t, tree) for t in range(3)] + [Point(second, t, tree) for t in range(2)]
    )
    assert list(plan.boundaries) == points

    def noise(draw, length):
        return uniforms([NoiseKey(4, stream_of("passage", end.address), draw)], length)[0]

    passage = first_passage(np.array(follow), plan.wanted, 6, noise)
    np.testing.assert_array_equal(plan.passage.leave, passage.leave)
    np.testing.assert_array_equal(plan.passage.start, passage.start)
    assert (plan.outcome, plan.score, plan.end, plan.trajectory) == (0.5, "marks", end, trajectory)
    shared = ForkSettings(
        settings=settings if bare else law, world=world, judge="judge", seed=4, simulator=simulator
    )
    assert plan.arms == potential._Shared("policy", shared)
    assert plan.asked == {"at": "turn", "reuse": not bare}
    every = plan_sweep(end, "policy", 6, at=[1], score="marks", judge="judge", settings=PLAIN)
    assert np.flatnonzero(every.wanted).tolist() == [1]


def test_a_turn_that_was_edited_is_no_sample():
    said, edited = make_node("a", tokens=[1]), make_node("b", tokens=[2], extra={"edit": "by hand"})
    trajectory = make_walk(make_node("t", "task", [9]), said, edited)
    assert [node.id for node, _ in potential.action_steps(trajectory)] == ["a"]


@pytest.mark.parametrize(
    ("nodes", "every", "swept"),
    [
        # Turns of which some have no token ids are valued alike, where the messages end.
        ([("a", "action", [1]), ("o", "observation", [3]), ("b", "action", None)], "turn", []),
        ([("a", "action", [1]), ("o", "observation", [3]), ("b", "action", None)], "token", ["a"]),
        # What the world said without token ids changes nothing of that.
        ([("a", "action", [1]), ("o", "observation", None), ("b", "action", [2])], "turn", ["a", "b"]),
        ([("a", "action", [1]), ("o", "observation", None), ("b", "action", [2])], "token", ["a", "b"]),
    ],
)
def test_which_turns_of_a_trace_are_swept_by_tokens(nodes, every, swept):
    made = [make_node(name, kind, tokens) for name, kind, tokens in nodes]
    trajectory = make_walk(make_node("t", "task", [9]), *made)
    end = SimpleNamespace(tree=SimpleNamespace(path=lambda point: trajectory), node=made[-1])
    tree, path, steps = potential._trace(end, 1, every)
    assert (tree, path) == (end.tree, trajectory)
    assert [node.id for node, _ in steps] == swept


def test_one_simulated_draw_is_all_of_them(cut, policy, judge, monkeypatch):
    plan = plan_sweep(cut, policy, 1, judge=judge)
    one = SimpleNamespace(
        simulated=1.0, tokens=1, seconds=1.0, draws=[SimpleNamespace(draw=0)], values=lambda score: [1.0]
    )
    monkeypatch.setattr(potential, "_departures", lambda *_: (["job"], [{0}]))
    monkeypatch.setattr(potential.SweepPlan, "runs_on", False)
    monkeypatch.setattr(potential, "run_jobs", lambda *_, **__: [one])
    assert run_sweep(plan, judge=judge).simulated == 1.0
