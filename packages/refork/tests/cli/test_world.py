"""``refork world show`` and ``play`` where a world breaks: what is said, and that nothing played is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.cli import world as verbs
from refork.errors import BadInput, CannotDo, InternalError
from refork.worlds.base import Observation, Task

REFORK = str(Path(sys.executable).with_name("refork"))
mcp = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the extra mcp is not installed")


@dataclass
class Fragile:
    """A world that raises where it is told to, and counts what is open."""

    at: str
    error: Exception
    name: str = "fragile"
    version: str = "1"
    max_turns: int = 9
    deterministic: bool = True
    open: list[str] = field(default_factory=list)

    def fails(self, where):
        if where == self.at:
            raise self.error

    def tasks(self, split, count, seed=0):
        self.fails("tasks")
        return [Task(f"fragile/{n}", self.name, split, "go on", {}) for n in range(count)]

    def start(self, task, seed):
        self.fails("start")
        self.open.append("episode")
        return FragileEpisode(self)


class FragileEpisode:
    def __init__(self, world):
        self.world = world

    @property
    def first(self):
        self.world.fails("first")
        return Observation("a room")

    def step(self, action):
        self.world.fails(action)
        return Observation(f"did {action}", done=action == "end", reward=1.0 if action == "end" else None)

    def close(self):
        self.world.open.clear()


@pytest.fixture
def fragile(monkeypatch):
    def made(at, error=None):
        world = Fragile(at, error or RuntimeError("the server is gone"))
        monkeypatch.setattr(verbs, "open_world", lambda spec: world)
        return world

    return made


def refork(*arguments):
    return CliRunner().invoke(verbs.app, list(arguments))


def test_nothing_between_semicolons_is_no_action(fragile):
    fragile("nowhere")
    told = json.loads(refork("play", "fragile", "--actions", "look; ;end;", "--json").output)
    assert [turn["action"] for turn in told["turns"]] == ["look", "end"]


def test_a_task_beyond_those_there_are_is_said_to_be_that(fragile, monkeypatch):
    world = fragile("nowhere")
    monkeypatch.setattr(world, "tasks", lambda split, count, seed: [Task("a", "fragile", split, "go", {})])
    with pytest.raises(BadInput, match="there are 1 train tasks, and so no task 1"):
        raise refork("show", "fragile", "--task", "1").exception


def test_a_world_that_breaks_under_way_is_said_after_what_was_played(fragile):
    world = fragile("bang")
    done = refork("play", "fragile", "--actions", "go; look ;bang;never")
    assert done.stdout.split("\n") == ["go on", "a room", "> go", "did go", "> look", "did look", ""]
    assert isinstance(done.exception, CannotDo)
    assert done.exception.what == "the world broke: RuntimeError: the server is gone"
    assert done.exception.where == "world fragile, task fragile/0, turn 3 ('bang')"
    assert "docs/worlds.md" in str(done.exception.hint)
    assert world.open == []


def test_json_holds_the_turns_and_the_error(fragile):
    fragile("bang", CannotDo("no page", where="here"))
    done = refork("play", "fragile", "--json", "--actions", "go;bang")
    told = json.loads(done.stdout)
    assert [turn["action"] for turn in told["turns"]] == ["go"]
    assert told["error"] == "no page"
    assert isinstance(done.exception, CannotDo)
    assert done.exception.where == "here"
    fragile("nowhere")
    whole = json.loads(refork("play", "fragile", "--json", "--actions", "go;end;go").stdout)
    assert [turn["action"] for turn in whole["turns"]] == ["go", "end"]
    assert "error" not in whole


@pytest.mark.parametrize("verb", [("show", "fragile"), ("play", "fragile", "--actions", "go")])
@pytest.mark.parametrize(
    ("at", "what"), [("tasks", "cannot be opened"), ("start", "broke"), ("first", "broke")]
)
def test_worlds_that_do_not_open_or_begin(fragile, verb, at, what):
    world = fragile(at, ValueError("invalid literal"))
    done = refork(*verb)
    assert isinstance(done.exception, CannotDo)
    assert f"the world {what}" in done.exception.what
    assert "ValueError: invalid literal" in done.exception.what
    assert world.open == []


def test_our_own_errors_stay_what_they_are(fragile):
    fragile("tasks", BadInput("too many"))
    assert isinstance(refork("show", "fragile").exception, BadInput)
    world = fragile("go", InternalError("a bug"))
    assert isinstance(refork("play", "fragile", "--actions", "go").exception, InternalError)
    assert world.open == []


def test_a_size_that_only_looks_like_a_number():
    done = refork("show", "household:²")
    assert isinstance(done.exception, CannotDo)
    assert done.exception.where == "world household:²"


_SERVER = """
import os
from mcp.server.mcpserver import MCPServer

app, calls = MCPServer("brief"), []

@app.tool()
def go() -> str:
    calls.append(1)
    if len(calls) == 2:
        os._exit(7)
    return "went"

app.run()
"""


@mcp
def test_an_mcp_server_that_dies_at_the_second_call(tmp_path):
    (tmp_path / "server.py").write_text(_SERVER)
    spec = f"tools:mcp?command={sys.executable}%20{tmp_path / 'server.py'}"
    call = json.dumps({"name": "go", "arguments": {}})
    done = refork("play", spec, "--actions", f"{call};{call};{call}")
    assert done.stdout.rstrip().endswith(f"> {call}\nwent")
    assert isinstance(done.exception, CannotDo)
    assert "ServerBroken: the MCP server broke" in done.exception.what
    assert "turn 2" in str(done.exception.where)


@mcp
def test_ctrl_c_and_a_closed_pipe_leave_no_traceback(tmp_path):
    begun = tmp_path / "begun"
    program = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    (tmp_path / "deaf.py").write_text(program)
    spec = f"tools:mcp?command={sys.executable}%20{tmp_path / 'deaf.py'}"
    shown = subprocess.Popen(
        [REFORK, "world", "show", spec], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not begun.exists() and shown.poll() is None:
        time.sleep(0.05)
    shown.send_signal(signal.SIGINT)
    out, err = shown.communicate()
    assert (shown.returncode, out) == (130, "")
    assert "stopped" in err
    assert "Traceback" not in err
    read, write = os.pipe()
    os.close(read)
    piped = subprocess.run(
        [REFORK, "world", "list"], stdout=write, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(write)
    assert (piped.returncode, piped.stderr) == (1, "")
