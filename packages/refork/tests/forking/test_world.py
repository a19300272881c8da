from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from refork.errors import BadInput, ReplayDiverged
from refork.forking import EditMessage, Insert, SwapWorld, compare, fork, sweep
from refork.forking.context import conversation, live_episode
from refork.forking.run_on import run_on
from refork.growing import RandomNode, grow, grow_trees
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from support.worlds import TwoTurns

LAW = Sampling(max_tokens=12)
MOVES = ["go north", "go south", "go west", "go east", "take key"]


class NoSnapshot:
    """A world that can only be replayed; optionally one that answers differently the second time."""

    def __init__(self, inner, lies=False):
        self.inner, self.lies = inner, lies

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def start(self, task, seed):
        return _NoSnapshot(self.inner.start(task, seed), self.lies)


class _NoSnapshot:
    def __init__(self, inner, lies):
        self.inner, self.lies = inner, lies

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def step(self, action):
        seen = self.inner.step(action)
        return replace(seen, text=seen.text + " , but different") if self.lies else seen

    def snapshot(self):
        return None


@pytest.fixture
def policy():
    return ScriptedPolicy.from_replies(MOVES)


def recorded(tree, policy, world, draws=3):
    group = grow(tree, policy, world, world.tasks("train", 1), draws=draws, settings=LAW)[0]
    return group.forks[0].leaves()


def outcome(arm):
    return [[(s.node.kind, s.text, s.node.state_key) for s in trajectory] for trajectory in arm.leaves()]


@pytest.mark.parametrize("spec", ["household:1", "household:1?slip=0.2", "household:2", "maze:2,2,2"])
def test_replay_and_snapshot_lead_to_the_same_draws(policy, spec):
    world = open_world(spec)
    with Tree.memory() as with_snapshots, Tree.memory() as without:
        found = []
        for tree, place in ((with_snapshots, world), (without, NoSnapshot(world))):
            trajectory = recorded(tree, policy, place)[0]
            point = tree.at(trajectory.steps[6].node)
            assert point.node.kind == "observation"
            assert (point.node.snapshot is None) == isinstance(place, NoSnapshot)
            arm = fork(point, policy, 6, world=place)
            found.append(outcome(arm))
            origins = {s.node.origin for w in arm.leaves() for s in w if s.node.fork == arm.record.id}
            expected = "replayed" if isinstance(place, NoSnapshot) else "real"
            assert origins - {None} == {expected}
        assert found[0] == found[1]


def test_a_diverging_replay_names_the_first_difference(policy):
    world = open_world("household:1")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, NoSnapshot(world))[0]
        with pytest.raises(ReplayDiverged, match=r"replayed turn 1 .*but different") as caught:
            fork(tree.at(trajectory.steps[4].node), policy, 2, world=NoSnapshot(world, lies=True))
        assert trajectory.steps[2].node.id[:12] in str(caught.value)


def test_each_draw_has_its_own_luck(policy):
    world = open_world("household:1?slip=0.5")
    always = ScriptedPolicy.from_replies(["go north"])
    with Tree.memory() as tree:
        trajectory = recorded(tree, always, world, draws=1)[0]
        arm = fork(tree.at(trajectory.steps[2].node), always, 24, world=world)
        seen = {w.steps[4].text for w in arm.leaves()}
        assert len(seen) > 1, "the same actions slip differently in different draws"


def test_mid_turn_forks_finish_the_turn_before_the_world_acts(policy):
    world = open_world("household:1")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, world)[0]
        action = trajectory.steps[3].node
        token = 1
        arm = fork(tree.at(action, token), policy, 8, world=world)
        head = action.text_upto(token)
        for draw in arm.leaves():
            said = [s for s in draw if s.node.kind == "action"]
            assert said[1].text == head
            assert head + said[2].text in MOVES
            assert [m["content"] for m in conversation(draw).messages if m["role"] == "assistant"][1] in MOVES


def test_the_end_of_a_turn_lets_the_world_answer_first(policy):
    world = open_world("household:1?slip=0.5")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, world)[0]
        arm = fork(tree.at(trajectory.steps[3].node), policy, 16, world=world)
        after = {draw.steps[4].text for draw in arm.leaves()}
        assert len(after) > 1
        assert all(draw.steps[4].node.kind == "observation" for draw in arm.leaves())


def test_an_inserted_action_is_what_the_world_hears(policy):
    world = open_world("household:1")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, world)[0]
        point = tree.at(trajectory.steps[0].node)
        done = fork(point, policy, 2, Insert(text="take"), settings=LAW, world=world)
        for draw in done.leaves():
            assert draw.steps[1].text + draw.steps[2].text == "take key"


def test_swapping_the_world_changes_its_answers(policy):
    plain, slippery = open_world("household:1"), open_world("household:1?slip=1.0")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, plain)[0]
        arm = fork(tree.at(trajectory.steps[2].node), policy, 4, SwapWorld(slippery), world=plain)
        assert arm.record.world == slippery.name
        assert any("slipped" in s.node.extra for w in arm.leaves() for s in w)


def test_an_edited_message_keeps_the_state_of_the_world(policy):
    world = open_world("household:1")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, world)[0]
        point = tree.at(trajectory.steps[4].node)
        base = fork(point, policy, 6, world=world)
        other = fork(point, policy, 6, EditMessage(2, "You saw nothing."), world=world)
        effect = compare(base, other)
        assert effect.difference == 0, "this policy reads nothing, so nothing may change"
        after = [[s for s in draw if s[0] != "rewrite"] for draw in outcome(other)]
        assert after == outcome(base)
        assert other.leaves()[0].steps[5].node.kind == "rewrite"


def test_a_task_of_another_world_is_refused(policy):
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, open_world("household:1"))[0]
        with pytest.raises(BadInput, match="belongs to world"):
            fork(tree.at(trajectory.steps[2].node), policy, 1, world=open_world("maze:2,2,2"))


def test_nested_forks_replay_the_luck_of_every_part(policy):
    world = open_world("household:1?slip=0.6")
    with Tree.memory() as tree:
        trajectory = recorded(tree, policy, NoSnapshot(world))[0]
        for inner in fork(tree.at(trajectory.steps[4].node), policy, 8, world=NoSnapshot(world)).leaves():
            deep = inner.steps[12].node
            assert deep.kind == "observation"
            episode, origin = live_episode(tree, tree.path(deep), NoSnapshot(world))
            assert origin == "replayed"
            assert episode.step("go nowhere").text.endswith(deep.text.removeprefix("nothing happens ; "))


def two_turns(luck=1.0):
    policy = ScriptedPolicy.from_chain(
        {"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}}, name="ab"
    )
    return TwoTurns(luck), policy


def trace_of(tree, policy, world, words):
    group = grow(tree, policy, world, world.tasks("train", 1), draws=40, settings=LAW)[0]
    for trajectory in group.forks[0].leaves():
        if [s.text for s in trajectory if s.node.kind == "action"] == words:
            return trajectory
    raise AssertionError(words)


@pytest.mark.parametrize("luck", [1.0, 0.5])
@pytest.mark.parametrize("reuse", [True, False])
def test_a_sweep_through_turns_has_the_exact_values(luck, reuse):
    # Draws follow the trace across turns only where the world has no chance of its own.
    # 400 draws a point, four points: 4.5 standard errors, wrong once in 30,000 seeds.
    world, policy = two_turns(luck)
    with Tree.memory() as tree:
        trajectory = trace_of(tree, policy, world, [" a", " b"])
        result = sweep(tree.at(trajectory.leaf), policy, 400, reuse=reuse, world=world)
        good = 0.6 * luck
        heard = trajectory.steps[2].node.text == "heard [True]"
        exact = [good**2, luck * good, good if heard else 0.0, 0.0]
        assert [p.keep for p in result.points] == [0, 1, 0, 1]
        assert result.value == pytest.approx(np.array(exact), abs=4.5 * 0.5 / 20)
        assert (result.count >= 400).all()


def test_an_unfinished_trace_runs_on_from_its_end():
    world, policy = two_turns()
    with Tree.memory() as tree:
        trajectory = trace_of(tree, policy, world, [" a", " a"])
        result = sweep(tree.at(trajectory.steps[2].node), policy, 400, world=world)
        assert result.outcome is None
        # 400 draws, two points: 4.5 standard errors, wrong once in 70,000 seeds.
        assert result.value == pytest.approx(np.array([0.36, 0.6]), abs=4.5 * 0.5 / 20)


def test_run_on_without_branches_does_nothing(policy):
    with Tree.memory() as tree:
        assert run_on(tree, [], policy, LAW).tokens == {}


def test_a_full_context_ends_the_draw_not_the_run(policy):
    world = open_world("household:1")
    policy._card = replace(policy.card, context=40)
    tree = Tree.memory()
    (group,) = grow(tree, policy, world, world.tasks("train", 1), draws=3, settings=LAW)
    (arm,) = group.forks
    assert [draw.end for draw in arm.draws] == ["limit"] * 3
    assert arm.values() == [0.0] * 3
    assert all(trajectory.leaf.extra["reason"] == "context limit" for trajectory in arm.leaves())
    assert all(sum(step.node.kind == "action" for step in trajectory) == 1 for trajectory in arm.leaves())


def never_the_same(episode, action, answers):
    seen = episode.inner.step(action)
    return replace(seen, text=f"{seen.text} {next(answers)}")


def test_growing_a_tree_in_a_world_that_cannot_be_forked_is_refused_and_loses_nothing(policy, monkeypatch):
    world, answers = NoSnapshot(open_world("household:1"), lies=True), count()
    monkeypatch.setattr(_NoSnapshot, "step", lambda self, action: never_the_same(self, action, answers))
    tree = Tree.memory()
    kept = RandomNode(seed=0, roots=2, at_once=2)
    with pytest.raises(ReplayDiverged):
        grow_trees(tree, policy, world, world.tasks("train", 2), selector=kept, leaves=6, settings=LAW)
    assert all(draw.end in ("done", "limit") for arm in tree.forks() for draw in tree.draws(arm.id))
    assert sum(len(tree.draws(arm.id)) for arm in tree.forks()) == 4
    assert list(tree.verify()) == []


def test_draws_that_the_answer_to_a_whole_turn_ends_say_nothing_more():
    from refork.policies.open import open_policy

    world, policy = open_world("lock"), open_policy("scripted:lock")
    sampling = Sampling(max_tokens=40)
    with Tree.memory() as tree:
        (group,) = grow(tree, policy, world, world.tasks("held-out", 1, 0), draws=1, settings=sampling)
        said = group.forks[0].leaves()[0].steps[1].node
        arm = fork(tree.at(said), policy, 6, world=world, settings=sampling)
        assert [d.end for d in arm.draws] == ["done"] * 6
        assert arm.tokens == 0
        assert arm.values() == group.values() * 6
