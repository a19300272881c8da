"""Recording environments, and reading trajectories as their environment saw them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refork.errors import BadInput, CannotDo
from refork.forking.context import live_episode, need_tokens
from refork.formats.openai_chat import OpenAIChat
from refork.growing.recorder import (
    read_trajectories,
    record,
    trajectories,
    trajectory_of,
    write_trajectories,
)
from refork.policies.local import LocalPolicy
from refork.thoughts import without_thoughts
from refork.tree.node import NewNode
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds.base import Observation, Split, Task
from refork.worlds.environment import (
    ActionObservation,
    Brief,
    DomainName,
    Environment,
    EnvTrajectory,
    ScriptedAgent,
    Transition,
)
from refork.worlds.lock import LockWorld
from refork_testbed.models import build


@dataclass
class Counting:
    """An episode that counts; ``odd`` turns of an unsteady world depend on how often it was run."""

    world: Counter
    count: int = 0

    @property
    def first(self) -> Observation:
        return Observation("at 0")

    def step(self, action: str) -> Observation:
        self.count += 1
        self.world.steps += 1
        if action == "break":
            raise RuntimeError("the cable is loose")
        if action == "interrupt" and not self.world.rang:
            self.world.rang = True
            os.kill(os.getpid(), signal.SIGINT)
        text = f"now {self.world.steps}" if action == "clock" else f"at {self.count}"
        done = action == "submit"
        info = {"exact": True, "note": f"was {self.count - 1}"}
        return Observation(text, str(self.count), done, 1.0 if done else None, info)

    def snapshot(self) -> bytes | None:
        return None

    def reseed(self, seed: int) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass
class Says:
    lines: tuple[str, ...]

    def act(self, seen: Sequence[ActionObservation]) -> str | None:
        return self.lines[len(seen)] if len(seen) < len(self.lines) else None


@dataclass
class Counter:
    """A tiny environment; ``lines`` are what its actors say, by seed."""

    lines: dict[int, tuple[str, ...]] = field(default_factory=lambda: {0: ("up", "submit"), 1: ("up", "up")})
    steps: int = 0
    rang: bool = False

    name = "counter"
    version = "1"
    max_turns = 5
    deterministic = True
    domain: DomainName = "tools"

    def tasks(self, split: Split, count: int, seed: int = 0) -> list[Task]:
        return [Task(f"counter/{at}", "counter", split, f"count {at}", {}) for at in range(count)]

    def start(self, task: Task, seed: int) -> Counting:
        return Counting(self)

    def restore(self, task: Task, snapshot: bytes) -> Counting:
        raise NotImplementedError

    def brief(self, task: Task) -> Brief:
        return Brief(task_description=task.prompt, initial_state="at 0")

    def agent(self, task: Task, seed: int) -> ScriptedAgent:
        return Says(self.lines[seed])

    def standing(self, task: Task, seen: Sequence[ActionObservation]) -> tuple[bool, float | None]:
        return bool(seen) and seen[-1][0] == "submit", None


def test_episodes_are_recorded_once_with_all_a_fork_needs() -> None:
    world, tree = Counter(), Tree.memory()
    assert isinstance(world, Environment)
    told = record(world, world.tasks("train", 2), tree, seeds=(0, 1))
    assert (told.trajectories, told.turns, told.exact, told.accepted, told.errors) == (4, 8, 8, 2, 0)
    before = len(tree)
    again = record(world, world.tasks("train", 3), tree, seeds=(0, 1))
    assert (again.present, again.trajectories) == (4, 2)
    assert len(tree) == before + 1 + 10
    assert list(tree.verify()) == []
    found = list(trajectories(tree))
    first = found[0]
    assert first.turns == (
        Transition("up", "at 1", True, "was 0", "1"),
        Transition("submit", "at 2", True, "was 1", "2"),
    )
    assert (first.domain, first.source, first.split) == ("tools", "counter", "train")
    assert first.brief.initial_state == "at 0"
    assert first.extra["reward"] == 1.0
    assert first.extra["task"] == "counter/0"
    assert "reward" not in found[1].extra  # its actor ended, not the world
    scores = tree.score_map("success", list(tree.leaves()))
    assert sorted(scores.values()) == [1.0] * 3
    trajectory = tree.path(next(iter(tree.leaves())))
    episode, origin = live_episode(tree, trajectory, world)
    assert (origin, episode.step("up").text) == ("replayed", "at 3")


def test_what_a_simulator_answers_is_recorded_as_such() -> None:
    class Made(Counting):
        simulator: ClassVar[dict[str, str]] = {"model": "a model"}
        graded = True

    class Simulated(Counter):
        def start(self, task: Task, seed: int) -> Counting:
            return Made(self)

    tree = Tree.memory()
    record(Simulated(), Counter().tasks("train", 1), tree)
    nodes = [
        step.node for leaf in tree.leaves() for step in tree.path(leaf) if step.node.kind == "observation"
    ]
    assert [(node.origin, node.extra["simulator"]) for node in nodes] == [("simulated", Made.simulator)] * 2
    (item,) = trajectories(tree)
    assert item.extra["simulated"] == 2
    assert [turn.target for turn in item.turns] == [False, False]


def test_a_policy_that_is_to_fork_gives_its_token_ids() -> None:
    policy = LocalPolicy.load(str(build("test-tiny")))
    world = Counter()
    (task,) = world.tasks("train", 1)
    with Tree.memory() as tree:
        record(world, [task], tree)
        record(world, [task], tree, policy=policy)
        walks = [tree.path(leaf) for leaf in tree.leaves()]
        bare, trajectory = sorted(walks, key=lambda one: "tokenizer" in one.root.extra)
        with pytest.raises(CannotDo, match="without token ids"):
            need_tokens(bare)
        need_tokens(trajectory)
        said = [step.node for step in trajectory if step.node.kind == "action"]
        assert all(
            node.tokens is not None and (node.tokens == policy.encode(node.text)).all() for node in said
        )
        messages = [step.node.message for step in trajectory if step.node.message is not None]
        whole = policy.render([], token_array([]), [m for m in messages if m["content"]])
        assert [node.text for node in said] == [step.node.text for step in bare if step.node.kind == "action"]
        first = next(step.node for step in trajectory).tokens
        assert first is not None
        assert whole.tokens[: len(first)].tolist() == first.tolist()
        assert record(world, [task], tree, policy=policy).present == 1


def test_what_breaks_is_data_and_what_changes_is_not_exact() -> None:
    world, tree = Counter({0: ("up", "break", "submit"), 1: ("clock", "submit")}), Tree.memory()
    told = record(world, world.tasks("train", 1), tree, seeds=(0, 1), verify=True)
    assert (told.errors, told.trajectories, told.unsteady) == (1, 1, 1)
    assert "the cable is loose" in told.reasons[0]
    broken, unsteady = trajectories(tree)
    assert [turn.action for turn in broken.turns] == ["up"]
    assert "the cable is loose" in broken.extra["error"]
    assert [turn.exact for turn in unsteady.turns] == [False, True]
    assert record(world, world.tasks("train", 1), tree, seeds=(0, 1)).present == 2


@dataclass
class OnceOnly(Counter):
    """A world in which nothing but the first turn can be done a second time."""

    done: list[tuple[str, int, str]] = field(default_factory=list)

    def start(self, task: Task, seed: int) -> Counting:
        episode = super().start(task, seed)
        act = episode.step

        def once(action: str) -> Observation:
            answer = act(action)
            if (task.id, episode.count, action) in self.done and episode.count > 1:
                raise RuntimeError("that was once only")
            self.done.append((task.id, episode.count, action))
            return answer

        episode.step = once  # type: ignore[method-assign]
        return episode


def test_a_world_that_breaks_when_it_is_run_again_keeps_its_first_run() -> None:
    world, tree = OnceOnly(), Tree.memory()
    told = record(world, world.tasks("train", 2), tree, verify=True)
    assert (told.errors, told.trajectories, told.unsteady) == (0, 2, 2)
    assert [[turn.exact for turn in item.turns] for item in trajectories(tree)] == [[True, False]] * 2


def test_ctrl_c_keeps_what_is_done_and_goes_on_later() -> None:
    world, tree = Counter({0: ("up", "interrupt", "submit")}), Tree.memory()
    told = record(world, world.tasks("train", 3), tree)
    assert (told.stopped, told.trajectories) == (True, 1)
    again = record(world, world.tasks("train", 3), tree)
    assert (again.stopped, again.present, again.trajectories) == (False, 1, 2)
    assert all(item.turns[-1].action == "submit" for item in trajectories(tree))


def test_half_a_pair_of_surrogates_is_refused() -> None:
    body = EnvTrajectory(id="a", source="s", brief=Brief(), turns=(Transition("ls", "\ud800"),)).to_json()
    with pytest.raises(BadInput, match="no file can hold"):
        EnvTrajectory.from_json(body)


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be recorded"):
        record(LockWorld(), LockWorld().tasks("train", 1), Tree.memory())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="nothing to record"):
        record(Counter(), [], Tree.memory())


def chat(tmp_path: Path, *messages: dict[str, Any], **rest: Any) -> list[EnvTrajectory]:
    """Trajectories of an imported log."""
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"messages": messages, **rest}) + "\n")
    with Tree.memory() as tree:
        tree.load(OpenAIChat().read(file))
        return list(trajectories(tree))


def said(content: str | None, *calls: tuple[str, str, str], **rest: Any) -> dict[str, Any]:
    listed = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"role": "assistant", "content": content, **({"tool_calls": listed} if calls else {}), **rest}


def tool(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content}


ASK = {"role": "user", "content": "count the files"}


def test_reasoning_is_taken_out(tmp_path: Path) -> None:
    (found,) = chat(
        tmp_path,
        {"role": "system", "content": "A shell."}, ASK,
        said("<think>first <think>ls</think> then</think>ls", reasoning_content="I list"),
        {"role": "user", "content": "a b"},
        said("Let me count.", ("1", "wc", '{"path": "a", "all": true}'), reasoning="hm"),
        tool("1", "3 a"),
        said("There are 3 lines."),
    )  # fmt: skip
    assert found.history() == (("ls", "a b"), ('{"name":"wc","arguments":{"path":"a","all":true}}', "3 a"))
    assert found.brief.task_description == "A shell.\ncount the files"
    assert found.extra["warnings"] == ["the initial state is empty: a simulator has to make it up"]
    assert found.domain is None
    assert not {"I list", "Let me", "first"} & {part for turn in found.turns for part in turn.action.split()}


def test_calls_and_answers_are_paired_by_id(tmp_path: Path) -> None:
    calls = (("1", "add", '{"n": 1}'), ("2", "add", '{"n": 2}'))
    answers = (tool("2", "two"), tool("1", "one"))
    together = chat(tmp_path, ASK, said(None, *calls), *answers, tools=[{"function": {"name": "add"}}])
    assert [turn.observation for turn in together[0].turns] == ["one", "two"]
    assert together[0].brief.action_space == '{"name":"add"}'


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ((said(None, ("1", "add", "{}")),), "tool call of turn 1 has no observation"),
        ((said(None, ("1", "add", "{}"), ("2", "add", "{}")), tool("1", "x")), "turn 2 has no observation"),
        ((said(None, ("1", "add", "{}")), said("well")), "tool call of turn 1 has no observation"),
        ((said(None, ("1", "add", "{}")), {"role": "user", "content": "go on"}), "has no observation"),
        ((said("ls"), said("pwd"), {"role": "user", "content": "/"}), "action of turn 1 has no observation"),
        ((said("<think>ls or pwd"), {"role": "user", "content": "?"}), "reasoning without an action"),
        ((said(None, ("1", "add", "{}")), tool("9", "x")), r"no observation|unknown call"),
    ],
)  # fmt: skip
def test_walks_with_holes_are_refused(tmp_path: Path, messages: tuple[dict[str, Any], ...], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        chat(tmp_path, ASK, *messages)


def test_refused_walks_can_be_collected(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    logs = [[ASK, said(None, ("1", "add", "{}"))], [ASK, said("ls"), {"role": "user", "content": "a"}]]
    file.write_text("".join(json.dumps({"messages": log}) + "\n" for log in logs))
    refused: list[str] = []
    with Tree.memory() as tree:
        tree.load(OpenAIChat().read(file))
        assert [item.history() for item in trajectories(tree, refused=refused)] == [(("ls", "a"),)]
    assert len(refused) == 1


def test_grown_walks_take_their_brief_from_the_world() -> None:
    world, tree = Counter(), Tree.memory()
    (task,) = world.tasks("held-out", 1)
    data = {"id": task.id, "world": "counter", "split": "held-out", "prompt": "count 0", "data": {}}
    (root,) = tree.append(NewNode(kind="task", text="count 0", extra={"world": "counter", "task": data}))
    (first,) = tree.append(NewNode(kind="action", parent=root.id, text="<think>go</think>up"))
    (seen,) = tree.append(NewNode(kind="observation", parent=first.id, text="at 1", origin="simulated"))
    (last,) = tree.append(NewNode(kind="action", parent=seen.id, text="submit"))
    (end,) = tree.append(NewNode(kind="verdict", parent=last.id, text="success", extra={"reward": 1.0}))
    found = trajectory_of(tree.path(end), world=world, source="mine")
    assert found.history() == (("up", "at 1"), ("submit", ""))
    assert found.brief == world.brief(task)
    assert (found.domain, found.split, found.source) == ("tools", "held-out", "mine")
    assert (found.extra["simulated"], found.extra["reward"]) == (1, 1.0)


def test_files_come_back_as_they_were(tmp_path: Path) -> None:
    world, tree = Counter(), Tree.memory()
    record(world, world.tasks("train", 2), tree)
    items = list(trajectories(tree))
    path = tmp_path / "t.jsonl"
    assert write_trajectories(path, items) == 2
    assert list(read_trajectories(path)) == items
    with path.open("a") as out:
        out.write('{"id": "x"}\n')
    with pytest.raises(BadInput, match=r"t\.jsonl:3"):
        list(read_trajectories(path))
    with pytest.raises(BadInput, match="no such file"):
        list(read_trajectories(tmp_path / "none"))
    with pytest.raises(ZeroDivisionError):
        write_trajectories(path, (items[1 // 0] for _ in items))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.jsonl"]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a</think> b", "b"),
        ("a <THINKING>b", "a"),
        ("b</think>c", "c"),
        ("<think><think>a</think>b</think>c<reasoning>d</reasoning>e", "ce"),
        ("a < b > c", "a < b > c"),
    ],
)
def test_thoughts(text: str, rest: str) -> None:
    assert without_thoughts(text) == rest
