"""Environments of the verifiers library: on the library where it is installed, else on an imitation."""

from __future__ import annotations

import importlib.util
import json
import signal
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, MissingExtra, ReplayDiverged
from refork.forking import fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import Episode, World, open_world, resume
from refork.worlds.open import task_from_json, task_to_json
from refork_worlds import verifiers
from support import verifiers_imitation

GUESS = "verifiers:refork-guess"
REAL = importlib.util.find_spec("verifiers") is not None
DIGITS = [str(n) for n in range(10)]


@pytest.fixture(
    params=[
        "imitation",
        pytest.param("library", marks=pytest.mark.skipif(not REAL, reason="verifiers is not installed")),
    ]
)
def library(request, tmp_path, monkeypatch):
    """A module of environments that can be loaded by its name."""
    (tmp_path / "refork_guess.py").write_text(verifiers_imitation.ENVIRONMENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "refork_guess", raising=False)
    if request.param == "imitation":
        monkeypatch.setitem(sys.modules, "verifiers", verifiers_imitation.module())
        monkeypatch.setattr(verifiers, "version", lambda name: {"verifiers": "0"}[name])
        monkeypatch.setattr(verifiers, "PackageNotFoundError", KeyError)
    yield request.param
    sys.modules.pop("refork_guess", None)


def play(world, actions, task=None, seed=0):
    task = task or world.tasks("train", 1)[0]
    episode = world.start(task, seed)
    seen = []
    for action in actions:
        seen.append(episode.step(action))
        if seen[-1].done:
            break
    episode.close()
    return seen


def test_a_game_of_several_turns(library):
    world = open_world(GUESS)
    assert isinstance(world, World)
    assert (world.name, world.max_turns, world.deterministic) == (GUESS, 6, False)
    assert world.version.startswith("1+verifiers-")
    task = world.tasks("train", 1)[0]
    assert task.prompt.startswith("one digit a turn\nguess the number of box ")
    assert [one["role"] for one in task.data["messages"]] == ["system", "user"]
    answer = task.data["row"]["answer"]
    episode = world.start(task, 0)
    assert isinstance(episode, Episode)
    assert episode.first.text == ""
    other = next(digit for digit in DIGITS if digit != answer)
    assert episode.step(other).text == ("higher" if other < answer else "lower")
    end = episode.step(f" {answer}\n")
    assert (end.text, end.done, end.reward) == ("right", True, 1.0)
    assert end.info["metrics"]["right"] == 1.0
    assert episode.step("9") == end
    assert episode.snapshot() is None
    with pytest.raises(CannotDo, match="replay"):
        world.restore(task, b"{}")


def test_turns_run_out_by_the_environments_own_rule(library):
    world = open_world(GUESS + "?turns=2")
    seen = play(world, ["x", "x", "x"])
    assert [one.reward for one in seen] == [None, 0.0]
    assert seen[-1].info["stop"] == "max_turns_reached"


def test_tools_are_offered_and_called(library):
    world = open_world(GUESS + "?kind=tools")
    task = world.tasks("train", 1)[0]
    assert '"name": "add"' in task.prompt
    assert task.data["messages"][0]["tools"][0]["function"]["name"] == "add"
    call = json.dumps({"name": "add", "arguments": {"a": 3, "b": 4}})
    two = f"<think>{call}</think>\n<tool_call>{call}</tool_call>\n<tool_call>{call}</tool_call>"
    seen = play(world, [two, '{"name":"fly","arguments":{}}', "it is 7"], task)
    assert seen[0].text == "7\n7"
    assert "fly" in seen[1].text
    assert (seen[2].text, seen[2].done, seen[2].reward) == ("", True, 1.0)


def test_single_turns_and_what_cannot_be_graded(library):
    world = open_world(GUESS + "?kind=once")
    task = world.tasks("train", 1)[0]
    assert world.max_turns == 1
    assert play(world, [task.data["row"]["answer"]])[0].reward == 1.0
    assert play(world, ["ten"])[0].reward == 0.0
    broken = play(open_world(GUESS + "?kind=broken"), ["1"])[0]
    assert (broken.done, broken.reward) == (True, None)
    assert "out of ink" in broken.info["ungraded"]
    crashed = play(open_world(GUESS), ["x", "crash"])[-1]
    assert (crashed.done, crashed.reward) == (True, None)
    assert "the box is stuck" in crashed.info["ungraded"]


def test_an_environment_that_hangs_is_left_and_the_next_one_works(library):
    world = open_world(GUESS + "?seconds=0.2")
    seen = play(world, ["hang"])[-1]
    assert (seen.done, seen.reward) == (True, None)
    assert seen.text == "the environment did not answer in 0.2 s"
    assert play(world, ["x"])[0].text in ("higher", "lower")


def test_splits_are_disjoint_seeded_and_survive_json(library):
    world = open_world(GUESS)
    train, held = world.tasks("train", 20), world.tasks("held-out", 5)
    assert {one.id for one in train}.isdisjoint(one.id for one in held)
    assert world.tasks("train", 7) == train[:7]
    assert [one.id for one in world.tasks("train", 20, seed=1)] != [one.id for one in train]
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]
    with pytest.raises(BadInput, match="found only"):
        world.tasks("held-out", 40)
    with pytest.raises(BadInput, match="lacks 'env'"):
        task_from_json(world, task_to_json(train[0]) | {"data": {}})
    own = open_world(GUESS + "?evaluated=10")
    train, held = own.tasks("train", 36), own.tasks("held-out", 10)
    assert {one.prompt for one in train}.isdisjoint(one.prompt for one in held)
    with pytest.raises(BadInput, match="found only 36"):
        own.tasks("train", 37)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=st.lists(st.sampled_from([*DIGITS, "", "naïve ✓", "\n"]), min_size=1, max_size=7))
def test_a_replay_meets_the_same_answers(library, actions):
    world = open_world(GUESS)
    task = world.tasks("held-out", 1)[0]
    seen = play(world, actions, task)
    done = len(seen)
    for cut in (0, done - 1):
        back, _ = resume(world, task, 5, actions[:cut], [one.text for one in seen[:cut]])
        assert [back.step(action) for action in actions[cut:done]] == seen[cut:]
        back.close()


def test_a_recorded_rollout_is_forked_by_checked_replay(library):
    world = open_world(GUESS)
    policy = ScriptedPolicy.from_replies([*DIGITS, "x"])
    with Tree.memory() as tree:
        task = world.tasks("train", 1)
        trajectory = (
            grow(tree, policy, world, task, draws=2, settings=Sampling(max_tokens=4))[0].forks[0].leaves()[0]
        )
        point = tree.at(
            next(step.node for step in trajectory.steps if step.node.kind == "observation" and step.text)
        )
        assert point.node.snapshot is None
        arm = fork(point, policy, 4, world=world)
        mine = [step.node for leaf in arm.leaves() for step in leaf if step.node.fork == arm.record.id]
        assert {node.origin for node in mine if node.kind == "observation"} == {"replayed"}
        assert len(arm.leaves()) == 4
    with pytest.raises(ReplayDiverged, match="turn 1"):
        resume(world, task[0], 0, ["x"], ["sideways"])


def test_what_cannot_be_opened_is_said(library):
    for bad, why in (
        ("verifiers", "which environment"),
        ("verifiers:no-such-env", "no-such-env"),
        (GUESS + "?colour=red", "colour"),
        (GUESS + "?turns=0", "at least 1"),
        (GUESS + "?seconds=0", "above 0"),
        (GUESS + "?turns=many", "cannot be"),
    ):
        with pytest.raises(BadInput, match=why):
            open_world(bad)
    world = open_world(GUESS)
    other = world.tasks("train", 1)[0]
    with pytest.raises(BadInput, match="is of x"):
        world.start(type(other)("t", "w", "train", "", {**other.data, "env": "x"}), 0)


def test_ctrl_c_stays_ours(library):
    before = signal.getsignal(signal.SIGINT)
    open_world(GUESS)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_library_that_is_missing_or_too_new_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    with pytest.raises(MissingExtra, match="pip install 'verifiers<"):
        open_world(GUESS)
    bare = type(sys)("verifiers")
    monkeypatch.setitem(sys.modules, "verifiers", bare)
    monkeypatch.setattr(verifiers, "version", lambda name: "9")
    with pytest.raises(CannotDo, match="no load_environment"):
        open_world(GUESS)


def test_calls_are_read_only_where_tools_are_offered():
    call = '{"name":"add","arguments":{"a":1}}'
    assert "tool_calls" not in verifiers.assistant_message(call, 1, tools=False)
    made = verifiers.assistant_message(call, 2, tools=True)["tool_calls"][0]
    assert (made["id"], made["function"]) == ("call_2_0", {"name": "add", "arguments": '{"a": 1}'})
    assert "tool_calls" not in verifiers.assistant_message('{"name": ', 1, tools=True)


def test_two_questions_at_once_are_refused():
    class Both:
        async def run_rollout(self, row, client, model, sampling):
            import asyncio

            ask = client.chat.completions.create
            await asyncio.gather(ask(messages=[], model=model), ask(messages=[], model=model))

    rollout = verifiers.Rollout(Both(), {}, 5.0)
    found = [rollout.begin(), rollout._next()]
    assert any(isinstance(one, verifiers.Broken) and "two questions" in one.why for one in found)
    rollout.close()
