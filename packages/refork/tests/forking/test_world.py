from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from refork.errors import BadInput, BadPoint, ReplayDiverged
from refork.forking import (
    Ban,
    Compose,
    EditMessage,
    Force,
    Insert,
    SwapPolicy,
    SwapWorld,
    compare,
    fork,
    sweep,
)
from refork.forking import arm as arm_module
from refork.forking.arm import _Limits, _Start, fork_id, prepare
from refork.forking.backend.unit import _arm
from refork.forking.backend.worker import _walk
from refork.forking.context import conversation, live_episode
from refork.forking.run_on import run_on
from refork.growing import RandomNode, grow, grow_trees
from refork.growing.plant import plant
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import NewNode, Trajectory
from refork.tree.tree import Tree
from refork.types import token_array
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


# Behind a whole turn


def talkative(more=None):
    """Says " a" or " b", and " more" behind " a" if nobody answers first."""
    chain = {"": {" a": 0.5, " b": 0.5}, " a": {" more": 0.5, "": 0.5}, " b": {"": 1.0}, " more": {"": 1.0}}
    return ScriptedPolicy.from_chain(chain | (more or {}))


def whole_turn(tree, agent, world, text=" a"):
    """The end of a first turn that says this, in a world that has answered it."""
    (group,) = grow(tree, agent, world, world.tasks("train", 1), draws=40, settings=LAW)
    return next(tree.at(s.node) for w in group.forks[0].leaves() for s in w.steps[1:2] if s.node.text == text)


def own(arm):
    """What every draw of an arm wrote itself."""
    return [[(s.node.kind, s.text) for s in w if s.node.fork == arm.record.id] for w in arm.leaves()]


OTHER_WORDS = talkative({" zz": {"": 1.0}})


@pytest.mark.parametrize(
    ("change", "agent"),
    [
        (EditMessage(0, "other task"), talkative()),
        (SwapPolicy(OTHER_WORDS), OTHER_WORDS),
        (Compose(EditMessage(0, "other task"), SwapPolicy(OTHER_WORDS)), OTHER_WORDS),
    ],
    ids=["message", "tokenizer", "both"],
)
def test_a_whole_turn_stays_whole_whatever_is_written_anew_before_it(change, agent):
    world = TwoTurns()
    with Tree.memory() as tree:
        point = whole_turn(tree, talkative(), world)
        control = fork(point, talkative(), 8, world=world, settings=LAW)
        changed = fork(point, talkative(), 8, change, world=world, settings=LAW)
        assert own(control) == own(changed), "one table and one noise: the change changes what is seen alone"
        assert {said[0] for said in own(changed)} == {("observation", "heard [True]")}
        for path in changed.leaves():
            seen = [step for step in path.context if step.node.kind != "action"]
            first = "other task" if "other task" in str(change.to_json()) else path.root.text
            messages = [
                {"role": "user", "content": first},
                {"role": "assistant", "content": " a"},
                {"role": "user", "content": "heard [True]"},
            ]
            shown = agent.render([], token_array([]), messages).tokens.tolist()
            tokens = np.concatenate([s.tokens for s in seen if s.tokens is not None]).tolist()
            assert tokens == shown
        with pytest.raises(BadPoint, match="no world to answer"):
            fork(point, talkative(), 2, change, settings=LAW)


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (None, {" a", " b", " a more"}),
        (Force(text=" b"), {" b"}),
        (Force(text=" a more"), {" a more"}),
        (Ban(text=" a"), {" b"}),
        (Compose(Force(text=" a"), Ban(text=" more")), {" a"}),
    ],
)
@pytest.mark.parametrize("behind", [False, True], ids=["turn", "answer"])
def test_what_comes_next_is_the_first_turn_that_a_draw_says_itself(change, first, behind):
    """At the end of a turn the answer to it comes first; the turn after it is free."""
    world = TwoTurns(max_turns=3)
    with Tree.memory() as tree:
        point = whole_turn(tree, talkative(), world)
        if behind:
            point = tree.at(next(iter(tree.children(point.node))))
        arm = fork(point, talkative(), 64, change, world=world, settings=LAW)
        said = [[text for kind, text in draw if kind == "action"] for draw in own(arm)]
        assert {draw[0] for draw in said} == first
        assert {draw[1] for draw in said} == {" a", " b", " a more"}


def test_an_arm_that_dropped_what_was_forced_is_another_arm():
    """Arms behind a whole turn were once drawn without it: they are not found again, all others are."""
    world = TwoTurns()
    with Tree.memory() as tree:
        point = whole_turn(tree, talkative(), world)
        job = prepare(point, talkative(), 1, world=world, settings=LAW)
        start = _Start(point.node.id, None, token_array([1]), (), " a", False, True)
        given = {"seed": 0, "stream": 0, "limits": _Limits(1, None)}
        forced = replace(job.plan, settings=LAW.but(forced=(3,)))
        same = replace(start, complete=False)
        digest, bodies = arm_module._digest, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(arm_module, "_digest", lambda body: bodies.append(body) or digest(body))
            for plan, begin in ((job.plan, start), (forced, start), (forced, same), (job.plan, same)):
                fork_id(plan, None, start=begin, **given)
        assert ["first own turn" in body for body in bodies] == [False, True, False, False]


def test_a_turn_that_is_cut_at_its_limit_is_answered_where_it_was_cut():
    agent = ScriptedPolicy.from_chain({"": {" a": 1.0}, " a": {" more": 1.0}, " more": {"": 1.0}})
    world = TwoTurns()
    with Tree.memory() as tree:
        (start,) = plant(tree, agent, world, world.tasks("train", 1))
        said = fork(start, agent, 1, world=world, settings=LAW).leaves()[0].steps[1].node
        assert said.text == " a more"
        arm = fork(tree.at(said, 1), agent, 1, world=world, settings=LAW.but(max_tokens=1))
        path = arm.leaves()[0]
        assert [s.text for s in path][1:3] == [" a", "heard [True]"]
        assert path.steps[1].keep == 1
        assert (
            path.tokens[: len(tree.path(tree.at(said, 1)).tokens)].tolist()
            == tree.path(tree.at(said, 1)).tokens.tolist()
        )


def test_penalties_of_a_new_turn_begin_anew_behind_a_turn_at_its_limit():
    agent = ScriptedPolicy.from_chain({"": {" a": 1.0}, " a": {" more": 1.0}, " more": {"": 1.0}})
    world, asked = TwoTurns(), []

    class Heard:
        def __getattr__(self, name):
            return getattr(agent, name)

        def sample(self, requests, settings):
            asked.extend(request.generated for request in requests)
            return agent.sample(requests, settings)

    with Tree.memory() as tree:
        (start,) = plant(tree, agent, world, world.tasks("train", 1))
        said = fork(start, agent, 1, world=world, settings=LAW).leaves()[0].steps[1].node
        fork(tree.at(said, 2), Heard(), 1, world=world, settings=LAW.but(max_tokens=2))
        fork(tree.at(said, 1), Heard(), 1, world=world, settings=LAW.but(max_tokens=2))
    assert asked == [0, 1, 0]


@pytest.mark.parametrize("extra", [{}, {"scaffold": True}], ids=["view", "scaffold"])
def test_what_answers_nothing_uses_up_no_turn(extra):
    world, agent = TwoTurns(), talkative()
    with Tree.memory() as tree:
        (start,) = plant(tree, agent, world, world.tasks("train", 1))
        look = NewNode(
            kind="observation", parent=start.node.id, text="look", tokens=agent.encode("look"), extra=extra
        )
        arm = fork(tree.at(tree.append([look])[0]), agent, 8, world=world, settings=LAW)
        assert arm.record.extra["turns"] == fork(start, agent, 1, world=world).record.extra["turns"] == 2
        assert {path.leaf.extra["reason"] for path in arm.leaves()} == {"world"}


@pytest.mark.parametrize("most", [0, -1])
def test_no_turn_at_all_is_refused(most):
    world, agent = TwoTurns(), talkative()
    with Tree.memory() as tree:
        (start,) = plant(tree, agent, world, world.tasks("train", 1))
        with pytest.raises(BadInput, match=f"max_turns is {most}; at least 1"):
            fork(start, agent, 1, world=world, max_turns=most)
        assert list(tree.forks()) == []


@pytest.mark.parametrize("place", ["turn", "middle", "answer"])
@pytest.mark.parametrize("saves", [False, True], ids=["replay", "snapshot"])
def test_a_replay_has_the_luck_of_the_draw_that_was_answered(policy, place, saves):
    """A fork behind a whole turn: the answer is the new draw's chance, and so is a replay of it."""
    inner = open_world("household:1?slip=0.5")
    world = inner if saves else NoSnapshot(inner)
    with Tree.memory() as tree:
        (start,) = plant(tree, policy, world, world.tasks("train", 1))
        path = fork(start, policy, 6, world=world, settings=LAW, max_turns=6).leaves()[0]
        turn = [s.node for s in path if s.node.kind == "action"][1]
        points = {"turn": tree.at(turn), "middle": tree.at(turn, 1)}
        points["answer"] = tree.at(next(s.node for s in path if s.node.parent == turn.id))
        arm = fork(points[place], policy, 6, world=world, settings=LAW, max_turns=6)
        for draw in arm.leaves():
            # Two deep: what comes after the answer goes on with the same chance.
            seen = [s.node for s in draw if s.node.kind == "observation" and s.node.fork == arm.record.id]
            for node in seen[:3]:
                tried = NoSnapshot(inner)
                steps = [
                    replace(s, node=replace(s.node, snapshot=None)) for s in tree.path(node).steps
                ]  # as of a world that saved nothing
                live_episode(tree, Trajectory(tuple(steps)), tried)[0].close()


def test_a_worker_replays_with_the_luck_of_the_draw_that_was_answered(policy):
    """Its store knows no arms: what it needs of them comes with the nodes."""
    world = NoSnapshot(open_world("household:1?slip=0.5"))
    with Tree.memory() as tree:
        (start,) = plant(tree, policy, world, world.tasks("train", 1))
        path = fork(start, policy, 1, world=world, settings=LAW, max_turns=6).leaves()[0]
        turn = [s.node for s in path if s.node.kind == "action"][1]
        arm = fork(tree.at(turn), policy, 6, world=world, settings=LAW, max_turns=6)
        for draw in arm.leaves():
            answer = next(s.node for s in draw if s.node.fork == arm.record.id)
            job = prepare(tree.at(answer), policy, 1, world=world, settings=LAW, max_turns=6)
            sent = json.loads(json.dumps(_arm(job, str)))
            with Tree.memory() as store:
                live_episode(store, _walk(sent, store), world)[0].close()


@pytest.mark.parametrize("place", ["turn", "middle", "answer"])
def test_an_unpaired_policy_resumes_an_interrupted_fork(place):
    """What an interrupted try wrote stays, and another try of the draw has a name of its own."""
    world, agent = open_world("household:1"), ScriptedPolicy.from_replies(MOVES)

    class Unpaired:
        calls, dies = 0, None
        card = replace(agent.card, capabilities=agent.card.capabilities - {"paired"})

        def __getattr__(self, name):
            return getattr(agent, name)

        def sample(self, requests, settings):
            Unpaired.calls += 1
            if Unpaired.calls == Unpaired.dies:
                raise KeyboardInterrupt
            other = [replace(r, noise=replace(r.noise, seed=100 * Unpaired.calls)) for r in requests]
            yield from agent.sample(other, settings)

    unpaired = Unpaired()
    with Tree.memory() as tree:
        (start,) = plant(tree, unpaired, world, world.tasks("train", 1))
        path = fork(start, unpaired, 1, world=world, settings=LAW, max_turns=6).leaves()[0]
        turn = path.steps[1].node
        points = {"turn": tree.at(turn), "middle": tree.at(turn, 1), "answer": tree.at(path.steps[2].node)}
        for more in (2, 3):
            Unpaired.dies = Unpaired.calls + more
            with pytest.raises(KeyboardInterrupt):
                fork(points[place], unpaired, 4, world=world, settings=LAW, max_turns=6)
        Unpaired.dies = None
        arm = fork(points[place], unpaired, 4, world=world, settings=LAW, max_turns=6)
        assert [draw.end for draw in arm.draws if draw.end == "error"] == []
        assert len(arm.draws) == 4
