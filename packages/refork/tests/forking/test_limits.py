"""The limit of a turn is the turn's, and the limit of turns the run's, through any number of forks and edits.

What is exact is checked exactly: the requests that a policy gets are valued by enumerating its distribution.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from refork.errors import BadChange, BadPoint
from refork.forking import (
    Ban,
    Compose,
    EditMessage,
    Force,
    Insert,
    Remove,
    Replace,
    Set,
    SwapPolicy,
    fork,
    plan_sweep,
    run_sweep,
    sweep,
)
from refork.forking.arm import prepare, run_jobs
from refork.growing import EVERY, RandomNode, grow, grow_trees
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import END, ScriptedPolicy
from refork.tree.node import NewNode
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from support.shelf import Shelf, model

LIMIT = 20
LAW = Sampling(max_tokens=LIMIT)
TABLE = {"": {" go": 1.0}, " go": {" go": 0.7, " on": 0.2, "": 0.1}, " on": {" go": 0.85, "": 0.15}}


class Heard:
    """A policy that remembers what it was asked."""

    def __init__(self, policy):
        self.policy, self.requests = policy, []

    def __getattr__(self, name):
        return getattr(self.policy, name)

    @property
    def card(self):
        return self.policy.card

    def sample(self, requests, settings):
        self.requests += [(request, settings) for request in requests]
        return self.policy.sample(requests, settings)


@pytest.fixture
def talker():
    return Heard(ScriptedPolicy.from_chain(TABLE))


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def ends_in_time(policy, prefix, room, without=None):
    """The chance that a turn of the chain ends by itself within ``room`` more tokens, by enumeration."""

    @cache
    def value(last, left):
        if left == 0:
            return 0.0
        sampling = np.exp(
            policy.next_logprobs([np.array([*prefix[:-1], last], dtype=np.int32)])[0].astype(float)
        )
        sampling = sampling / sampling.sum()
        if without is not None and left == room:
            sampling[without] = 0.0
            sampling = sampling / sampling.sum()
        return float(
            sampling[END]
            + sum(sampling[t] * value(t, left - 1) for t in np.flatnonzero(sampling) if t != END)
        )

    return value(int(prefix[-1]), room)


def room_of(request, settings):
    return settings.max_tokens if request.max_tokens is None else request.max_tokens


def long_turn(tree, policy, start=None, **more):
    """A drawn turn that met its limit."""
    begin = start or plant_prompt(tree, policy, "Well?")
    arm = fork(begin, policy, 64, settings=LAW, **more)
    return next(trajectory.leaf for trajectory in arm.leaves() if trajectory.leaf.finish == "length")


def said(trajectory):
    """Tokens of the turn that a trajectory ends in."""
    total = 0
    for step in reversed(trajectory.steps):
        if step.node.kind != "action":
            break
        total += len(step.tokens)
    return total


CHANGES = [
    None,
    Remove(2),
    Replace(1, text=" on go go"),
    Insert(text=" go on go"),
    Force(text=" on go"),
    Ban(text=" on"),
    Set(temperature=0.9),
    EditMessage(0, "Now?"),
    Compose(EditMessage(0, "And now?"), Ban(text=" on")),
]


@pytest.mark.parametrize("given", [None, LAW], ids=["recorded settings", "given settings"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.kind if c else "control")
def test_nested_forks_and_edits_never_let_a_turn_pass_its_limit(tree, talker, change, given):
    node = long_turn(tree, talker)
    for keep in (4, 3, 2):  # each time in the turn's newest part, so that the turn lies on ever more nodes
        talker.requests.clear()
        arm = fork(tree.at(node, keep), talker, 32, change, settings=given)
        request, settings = talker.requests[0]
        # Whatever stands behind the last turn mark is of this turn: the context after an edit included.
        ids = request.tokens.tolist()
        already = len(ids) - 1 - max(i for i, t in enumerate(ids) if t not in turn_tokens(talker))
        assert already > keep - 3
        assert room_of(request, settings) == LIMIT - already
        exact = ends_in_time(talker.policy, ids, LIMIT - already)
        assert ends_in_time(talker.policy, ids, room_of(request, settings)) == pytest.approx(exact, abs=0)
        longest = max((w.leaf for w in arm.leaves()), key=lambda leaf: leaf.length)
        assert already + longest.length <= LIMIT
        assert any(w.leaf.finish == "length" and already + w.leaf.length == LIMIT for w in arm.leaves())
        node = longest


def turn_tokens(policy):
    return {int(i) for i in policy.encode(" go on")}


def test_a_sweep_of_a_nested_trace_is_unbiased_exactly(tree, talker):
    node = long_turn(tree, talker)
    for keep in (7, 6):
        arm = fork(tree.at(node, keep), talker, 64)
        # A trace that ends by itself, so that its own outcome is 1.
        node = next(w.leaf for w in arm.leaves() if w.leaf.length > (6 if keep == 7 else 2))
    trajectory = tree.path(node)
    judge = MatchJudge("")  # graded by hand below
    talker.requests.clear()
    plan = plan_sweep(tree.at(node), talker, 256, judge=judge, seed=5)
    run_sweep(plan, judge=judge)
    length = said(trajectory)
    assert len(plan.boundaries) == length
    prefix = trajectory.tokens.tolist()
    begin = len(prefix) - length
    # Every departure as the policy was asked for it: how likely its turn ends in time.
    asked = {}
    for request, settings in talker.requests:
        at = len(request.tokens) - begin
        asked[at] = ends_in_time(
            talker.policy, request.tokens.tolist(), room_of(request, settings), request.exclude_first
        )
    outcome = float(trajectory.leaf.finish == "stop")
    value, exact, reached = 0.0, ends_in_time(talker.policy, prefix[:begin], LIMIT), 1.0
    for at, follow in enumerate(plan.follow):
        if at in asked:
            value += reached * (1 - follow) * asked[at]
        elif follow < 1:  # no draw of these left here: what it would have been
            own = ends_in_time(talker.policy, prefix[: begin + at], LIMIT - at, prefix[begin + at])
            value += reached * (1 - follow) * own
        reached *= follow
    assert len(asked) > 4
    assert value + reached * outcome == pytest.approx(exact, abs=1e-6)


def test_a_turn_at_its_limit_is_over(tree, talker):
    node = long_turn(tree, talker)
    with pytest.raises(BadPoint, match="turn is over"):
        fork(tree.at(node, LIMIT - 2), talker, 4, Insert(text=" go go"))
    with pytest.raises(BadPoint, match=r"23 tokens of this turn .* limit is 20"):
        fork(tree.at(node, LIMIT - 2), talker, 4, Insert(text=" go go go go go"))
    with pytest.raises(BadChange, match="3 tokens are forced, and the turn may say 2 more"):
        fork(tree.at(node, LIMIT - 2), talker, 4, Force(text=" go go go"))
    longer = LAW.but(max_tokens=30)
    assert fork(tree.at(node, LIMIT - 2), talker, 4, Insert(text=" go go go go go"), settings=longer).draws


def test_a_swap_to_another_tokenizer_counts_in_its_own_tokens(tree, talker):
    node = long_turn(tree, talker)
    letters = Heard(ScriptedPolicy.from_text(lambda text: {"g": 0.5, "o": 0.4, "": 0.1}, name="letters"))
    arm = fork(tree.at(node, 3), letters, 8, SwapPolicy(letters))
    request, settings = letters.requests[0]
    assert room_of(request, settings) == LIMIT - len(letters.encode(" go go go"))
    assert len(arm.draws) == 8


def test_a_room_of_its_own_is_recorded_as_the_turns_limit(tree, talker):
    node = long_turn(tree, talker)
    (arm,) = run_jobs([prepare(tree.at(node, 15), talker, 64, settings=LAW, room=12)])
    leaf = next(w.leaf for w in arm.leaves() if w.leaf.length == 12)
    assert leaf.extra["turn_limit"] == 27
    talker.requests.clear()
    fork(tree.at(leaf, 10), talker, 1)
    assert room_of(*talker.requests[0]) == 2


def test_a_log_that_names_no_limit_leaves_room_at_every_point_of_its_longest_turn(tree, talker):
    begin = plant_prompt(tree, talker, "Well?")
    ids = talker.encode(" go" * 300)
    turn = tree.append(
        [
            NewNode(
                kind="action",
                parent=begin.node.id,
                key="log",
                text=" go" * 300,
                tokens=ids,
                offsets=np.arange(3, 901, 3),
            )
        ]
    )[0]
    for keep in (1, 150, 299):
        talker.requests.clear()
        fork(tree.at(turn, keep), talker, 1)
        assert room_of(*talker.requests[0]) == 300 + Sampling().max_tokens - keep


def test_growing_inside_turns_keeps_their_limit():
    policy = Heard(ScriptedPolicy.from_text(lambda text: {"a": 0.5, "b": 0.45, "": 0.05}, name="ab"))
    world = open_world("lock")
    with Tree.memory() as tree:
        grow_trees(
            tree, policy, world, world.tasks("train", 1), selector=RandomNode(1, inside=EVERY), leaves=24,
            settings=Sampling(max_tokens=9),
        )  # fmt: skip
        nested = [request for request, _ in policy.requests if request.generated]
        assert len(nested) > 8
        assert all(request.max_tokens == 9 - request.generated for request in nested)
        assert max(said(trajectory) for trajectory in tree.paths([node.id for node in turns(tree)])) == 9


def turns(tree):
    return [node for node in tree.walk() if node.kind == "action"]


# Turns


WALKER = ScriptedPolicy.from_replies(["go north", "go south", "go west", "go east"])


def answered(trajectory):
    return sum(step.node.kind == "observation" for step in trajectory)


@pytest.mark.parametrize("most", [None, 6])
def test_turns_already_used_are_subtracted_through_nested_forks(tree, most):
    world = open_world("household:1")
    limit = most or world.max_turns
    sampling = Sampling(max_tokens=12)
    group = grow(tree, WALKER, world, world.tasks("train", 1), draws=2, settings=sampling, max_turns=most)[0]
    trajectory = group.forks[0].leaves()[0]
    assert answered(trajectory) == limit
    for _ in range(3):  # each fork begins two answers deeper, on the newest draw
        place = [step.node for step in trajectory if step.node.kind == "observation"][-3]
        before = answered(tree.path(place))
        for point in (
            tree.at(place),
            tree.at(next(s.node for s in trajectory if s.node.parent == place.id), 1),
        ):
            arm = fork(point, WALKER, 2, world=world, max_turns=most)
            assert {answered(w) for w in arm.leaves()} == {limit}, f"{before} turns were used"
        trajectory = arm.leaves()[0]


def test_simulated_turns_already_used_are_subtracted(tree):
    from refork_methods.simulate.world import LearnedSimulator

    agent = ScriptedPolicy.from_replies(["ls", "rm b", "touch z"])
    simulator = LearnedSimulator(model(settings=Sampling(max_tokens=40)))
    world = Shelf()
    group = grow(
        tree, agent, world, world.tasks("train", 1), draws=1, settings=Sampling(max_tokens=12), max_turns=2
    )[0]
    point = next(tree.at(s.node) for s in group.forks[0].leaves()[0] if s.node.kind == "observation")
    first = fork(point, agent, 4, simulator=simulator, max_turns=5)

    def made_up(trajectory):
        return [s.node for s in trajectory if s.node.origin == "simulated"]

    trajectory = max(first.leaves(), key=lambda w: len(made_up(w)))
    assert len(made_up(trajectory)) == 5
    again = fork(tree.at(made_up(trajectory)[2]), agent, 4, simulator=simulator, max_turns=5)
    assert max(len(made_up(w)) for w in again.leaves()) == 5


def test_a_swept_finished_turn_still_says_how_it_ended(tree, talker):
    node = long_turn(tree, talker)
    found = sweep(tree.at(node), talker, 64, judge=MatchJudge("on"))
    assert math.isfinite(found.value[0])
