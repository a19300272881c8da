"""The parts of a sweep, one by one: what its values hang on, where its trace ends, what becomes a score."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from refork.forking import potential, potential_scores
from refork.forking.potential import Passage, Sweep, SweepPlan, _ends_log, _outcome, _Shared, run_sweep
from refork.forking.settings import ForkSettings
from refork.policies.base import Sampling
from refork.tree.node import Point
from support.nodes import make_node, make_walk

JUDGE = SimpleNamespace(score="success", producer=SimpleNamespace(id="judge:mine"))


def planned(passage=None, *, outcome=None, **given):
    """A plan of one boundary, behind the second token of a turn of three."""
    said = make_node("a", tokens=[1, 2, 3])
    end, none = Point(said, 2), np.zeros(0, dtype=np.int64)
    return SweepPlan(
        end, make_walk(said), (end,), np.array([True]), np.zeros(1), passage or Passage(none, none),
        outcome, "marks", _Shared("policy", ForkSettings(**given)), {"at": [0], "reuse": False},
    )  # fmt: skip


# What values hang on


def test_what_the_values_of_a_sweep_hang_on():
    """Names and values are part of a producer's id: others would be another producer's word."""
    bare = planned()
    nothing = {"settings": None, "world": None, "simulator": None, "judge": None, "max_turns": None}
    assert bare.terms == {"at": [0], "reuse": False, "end": "a:2", "score": "marks"} | nothing
    full = planned(
        settings=Sampling(max_tokens=8, temperature=0.5), world=SimpleNamespace(name="lock", version="3"),
        simulator=SimpleNamespace(identity={"model": "m"}), judge=JUDGE, max_turns=7,
    )  # fmt: skip
    assert full.terms == bare.terms | {
        "settings": Sampling(max_tokens=8, temperature=0.5).to_json(),
        "world": ["lock", "3"],
        "simulator": {"model": "m"},
        "judge": "judge:mine",
        "max_turns": 7,
    }


# Whether scores are successes


@pytest.mark.parametrize(
    ("values", "binary"),
    [
        ([0.0, 1.0], True),
        ([0.0, 1.0, None], True),
        ([None], True),
        ([0.0, 0.5], False),
        ([2.0, 1.0], False),
        ([0.5, None], False),
    ],
)
def test_scores_are_successes_where_each_that_is_known_is_0_or_1(monkeypatch, values, binary):
    draws = [SimpleNamespace(draw=draw) for draw in range(len(values))]
    arm = SimpleNamespace(simulated=0.0, tokens=0, seconds=0.0, draws=draws, values=lambda score: values)
    monkeypatch.setattr(potential, "_departures", lambda *_: (["job"], [set(range(len(values)))]))
    monkeypatch.setattr(potential, "run_jobs", lambda *_, **__: [arm])
    begin = np.zeros(len(values), dtype=np.int64)
    assert run_sweep(planned(Passage(begin, begin))).binary is binary


# Where a trace ends


@pytest.mark.parametrize(
    ("fork", "children", "ends"),
    [
        (None, [], True),
        (None, ["arm", "other"], True),
        (None, ["arm", None], False),
        (None, [None], False),
        ("arm", [], False),
        ("arm", ["other"], False),
    ],
)
def test_a_log_ends_where_only_draws_of_forks_go_on(fork, children, ends):
    last = make_node("a", tokens=[1], fork=fork)
    below = {last: [make_node(str(number), fork=of) for number, of in enumerate(children)]}
    assert _ends_log(Point(last), SimpleNamespace(children=below.__getitem__)) is ends


@pytest.mark.parametrize("who", ["world", "simulator", None])
@pytest.mark.parametrize(
    ("kind", "fork", "goes_on", "known"),
    [
        ("verdict", "arm", [], True),
        ("verdict", None, [], True),
        ("action", None, [], True),
        ("action", None, [None], False),
        ("action", "arm", [], False),
        ("observation", None, [None], False),
    ],
)
def test_what_a_trace_scored_is_no_outcome_where_somebody_answers_and_it_goes_on(
    kind, fork, goes_on, known, who
):
    last = make_node("a", kind, fork=fork)
    below = {last: [make_node(str(number), fork=of) for number, of in enumerate(goes_on)]}
    tree = SimpleNamespace(
        children=below.__getitem__,
        score_map=lambda score, nodes, by: dict.fromkeys(nodes, 0.25),
        producers=list,
    )
    shared = _Shared("policy", ForkSettings(**({who: "somebody"} if who else {})))
    found = _outcome(Point(last), tree, make_walk(last), "success", shared)
    assert found == (0.25 if known or who is None else None)


# What becomes a score


def test_a_whole_turn_has_no_score_and_those_behind_it_have():
    seen, said = make_node("o", "observation", [7, 8]), make_node("a", tokens=[1, 2])
    none = np.zeros(0)
    points = (Point(seen), Point(said, 0), Point(said, 1))
    result = Sweep(
        None, points, np.array([1.0, 1.0, 3.0]), np.array([4, 2, 4]), None, none, 0, 0, 0, 0.0, None
    )  # fmt: skip
    policy = SimpleNamespace(card=SimpleNamespace(weights="w", name="name"))
    _, scores = potential_scores(result, policy, 0, 4)
    assert [(score.node, score.value.tolist()) for score in scores] == [("a", [0.5, 0.75])]
