"""The terminal world: tasks, answers, what is exact, grading, and snapshots that go on alike."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest

from refork.errors import BadInput, CannotDo
from refork.sandbox.shell import Ran, ShellLostError, ShellState
from refork.worlds.base import Task
from refork.worlds.dice import split_of
from refork.worlds.environment import Environment
from refork.worlds.open import open_world
from refork_testbed.worlds.terminal.actions import action_in, knowable, note, submitted
from refork_testbed.worlds.terminal.goals import KINDS, Drawn
from refork_testbed.worlds.terminal.world import TerminalWorld
from support.poisons import processes


@pytest.fixture(scope="module")
def world() -> TerminalWorld:
    found = open_world("terminal")
    assert isinstance(found, TerminalWorld)
    try:
        found.shell()
    except CannotDo as error:
        pytest.skip(str(error))
    return found


@pytest.fixture(scope="module")
def tasks(world: TerminalWorld) -> list[Task]:
    return world.tasks("train", 90)


def played(world: TerminalWorld, task: Task, actions: tuple[str, ...]) -> list[Any]:
    episode = world.start(task, 0)
    return [episode.step(action) for action in actions]


def test_every_kind_is_solved_by_its_script_and_not_without_it(
    world: TerminalWorld, tasks: list[Task]
) -> None:
    assert isinstance(world, Environment)
    by_kind = {task.data["kind"]: task for task in tasks}
    assert set(by_kind) == set(KINDS)
    for task in by_kind.values():
        last = played(world, task, tuple(task.data["script"]))[-1]
        assert (last.text, last.done, last.reward) == ("accepted", True, 1.0), task.data["kind"]
        last = played(world, task, ("submit 999",))[-1]
        assert (last.text, last.done, last.reward) == ("rejected", True, 0.0), task.data["kind"]


def test_no_path_is_in_both_splits(world: TerminalWorld, tasks: list[Task]) -> None:
    held = world.tasks("held-out", 30)
    assert world.tasks("train", 10) == tasks[:10]
    for split, some in (("train", tasks), ("held-out", held)):
        for task in some:
            assert {split_of(path) for path in Drawn.from_json(task.data).files} == {split}
            for seed in range(2):
                actor = world.agent(task, seed)
                lines = [actor.act([("", "")] * turn) or "" for turn in range(world.max_turns)]
                named = re.findall(r"[a-z]+/?[a-z]+\.(?:txt|md|csv)", " ".join(lines))
                strange = {path for path in named if split_of(path) != split}
                assert all(
                    re.search("lost|none|gone|miss", path) or f"-name {path}" in " ".join(lines)
                    for path in strange
                )


def test_what_else_was_there_must_stay(world: TerminalWorld, tasks: list[Task]) -> None:
    task = next(task for task in tasks if task.data["kind"] == "write")
    other = next(iter(task.data["files"]))
    script = (*task.data["script"][:-1], f"rm {other}", "submit")
    last = played(world, task, script)[-1]
    assert last.reward == 0.0
    assert last.info["note"] == f"no {other}"


def test_a_restored_episode_goes_on_alike(world: TerminalWorld, tasks: list[Task]) -> None:
    task = tasks[0]
    path = next(iter(task.data["files"]))
    actions = (
        f"cat {path}",
        "mkdir -p a/b; cd a; N=3",
        f"echo $N >> ../{path}; pwd",
        f"cat ../{path}",
        "nope",
        "submit",
    )
    straight, episode = played(world, task, actions), world.start(task, 0)
    for action, seen in zip(actions, straight, strict=True):
        saved = episode.snapshot()
        episode = world.restore(task, saved)
        assert episode.snapshot() == saved
        assert episode.step(action) == seen
    assert straight[2].text == "/home/agent/a"
    assert straight[3].text.endswith("3")
    assert len({seen.state_key for seen in straight}) == 4
    with pytest.raises(BadInput, match="snapshot is of task"):
        world.restore(tasks[1], saved)
    with pytest.raises(BadInput, match="not a snapshot"):
        world.restore(task, b"{}")


def test_time_is_up_without_a_submission(world: TerminalWorld, tasks: list[Task]) -> None:
    short = TerminalWorld(turns=2)
    seen = played(short, tasks[0], ("ls", "ls"))
    assert (seen[1].done, seen[1].reward) == (True, 0.0)
    assert short.standing(tasks[0], [("ls", "x"), ("ls", "x")]) == (True, 0.0)
    assert short.standing(tasks[0], [("ls", "x")]) == (False, None)
    assert short.standing(tasks[0], [("<think>hm</think>submit 3", "accepted\n")]) == (True, 1.0)


def test_an_episode_whose_shell_was_lost_is_an_error(world: TerminalWorld, tasks: list[Task]) -> None:
    episode, other = world.start(tasks[0], 0), world.start(tasks[1], 0)
    before = episode.step("ls").text
    os.kill(processes(world.shell())[-1], signal.SIGKILL)
    with pytest.raises(ShellLostError):
        episode.step("ls")
    assert other.step("echo on").text == "on"
    assert episode.step("ls").text == before


@pytest.mark.parametrize(
    "command",
    ["cat a.txt", "ls", "ls -R", "ls -1 docs", "ls list.txt", "grep -rl red . | sort", "stat -c %a a.txt",
     "wc -l a.txt", "cd docs", "cat date.txt"],
)  # fmt: skip
def test_answers_that_follow_from_the_folder(command: str) -> None:
    assert knowable(command, Ran("a\nb\n", 0, "exit", ShellState()))


@pytest.mark.parametrize(
    "command",
    ["date", "ls -l", "ls docs -la", "ls -t", "ps", "echo $$", "find .", "grep -rl red .", "stat a.txt",
     "ls /usr", "du -s",
     "cat /proc/1/stat", "env", "sort --help", "mktemp", "id -u", "(date)", "shuf a.txt",
     "sort -R a.txt", "test a -nt b && echo yes"],
)  # fmt: skip
def test_answers_that_do_not(command: str) -> None:
    assert not knowable(command, Ran("a\nb\n", 0, "exit", ShellState()))


def test_turns_are_read_without_thoughts() -> None:
    assert action_in("<think>a <think>b</think> c</think>\n$ ls docs ") == "ls docs"
    assert action_in("I look first.\n```sh\nls\n```\nthen\n```\ncat <<E\nx\nE\n```") == "cat <<E\nx\nE"
    assert action_in("<think>never closed ls") == ""
    lines = ("submit", "submit 3 4", "submitx", "ls", "submit\nx")
    assert [submitted(one) for one in lines] == ["", "3 4", None, None, None]


def test_the_note_is_the_state_that_decides() -> None:
    state = ShellState.of_files({"docs/a.txt": "red\nblue\n", "b.txt": ""})
    assert note(state, "cat docs/a.txt") == "in . , docs/a.txt is red / blue"
    assert note(state, "ls") == "in . , . holds b.txt docs"
    assert note(state, "cat b.txt c.txt") == "in . , b.txt is empty , no c.txt"
    inner = ShellState(state.entries, "/home/agent/docs")
    assert note(inner, "cat a.txt") == "in docs , a.txt is red / blue"


def test_bad_options_and_tasks_are_refused(world: TerminalWorld, tasks: list[Task]) -> None:
    for spec in ("terminal:x", "terminal?turns=0", "terminal?speed=3"):
        with pytest.raises(BadInput):
            open_world(spec)
    with pytest.raises(BadInput, match="lacks"):
        world.start(Task("x", "terminal", "train", "", {}), 0)
