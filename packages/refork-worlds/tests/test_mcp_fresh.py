"""A server that keeps what it is told on the disk: every episode finds the folder as it was given."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from urllib.parse import quote

import pytest

from refork.errors import ReplayDiverged
from refork.forking import fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import open_world, resume
from refork_worlds import mcp_fresh
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp_client import ServerBroken

pytest.importorskip("mcp")

#: An MCP server in the standard library alone: a diary in a file, and where it lies.
SERVER = """
import json, os, sys
from pathlib import Path

NAMES = ("add", "where", "die")
TOOLS = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in NAMES]

def called(name, given):
    diary = Path("diary.txt")
    if name == "die":
        os._exit(1)
    if name == "where":
        return str(diary.resolve()) + " " + str(given.get("path", "") == str(Path.cwd()))
    with diary.open("a") as book:
        book.write(given.get("line", "") + ";")
    return diary.read_text()

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, given = asked["method"], asked.get("params", {})
    if method == "initialize":
        told = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "diary", "version": "1"}}
    elif method == "tools/list":
        told = {"tools": TOOLS}
    elif method == "tools/call":
        text = called(given["name"], given.get("arguments") or {})
        told = {"content": [{"type": "text", "text": text}]}
    else:
        wrong = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": wrong}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
"""


@pytest.fixture
def given(tmp_path):
    (tmp_path / "server.py").write_text(SERVER)
    folder = tmp_path / "begin"
    folder.mkdir()
    (folder / "diary.txt").write_text("begun;")
    return tmp_path, folder


def opened(given, *, fresh):
    place, folder = given
    server = f"{sys.executable} {place / 'server.py'}"
    command = (
        f"{sys.executable} {mcp_fresh.__file__} {folder} {server}"
        if fresh
        else f"sh -c 'cd {folder} && {server}'"
    )
    return open_world(f"tools:mcp?turns=5&command={quote(command)}")


def test_every_episode_begins_with_the_folder_as_it_was(given):
    world = opened(given, fresh=True)
    task = world.tasks("train", 1)[0]
    first, second = world.start(task, 0), world.start(task, 0)
    actions = [call_text("add", {"line": word}) for word in ("one", "two")]
    texts = [first.step(action).text for action in actions]
    assert texts == ["begun;one;", "begun;one;two;"]
    assert second.step(call_text("add", {"line": "x"})).text == "begun;x;"
    again, origin = resume(world, task, 0, actions, texts)
    assert origin == "replayed"
    assert again.step(call_text("add", {"line": "three"})).text == "begun;one;two;three;"
    for episode in (first, second, again):
        episode.close()
    assert (given[1] / "diary.txt").read_text() == "begun;"


def test_without_a_copy_a_replay_meets_what_was_left_behind(given):
    world = opened(given, fresh=False)
    task = world.tasks("train", 1)[0]
    episode, action = world.start(task, 0), call_text("add", {"line": "one"})
    text = episode.step(action).text
    episode.close()
    with pytest.raises(ReplayDiverged, match="begun;one;one;"):
        resume(world, task, 0, [action], [text])


def test_paths_are_the_same_in_every_episode_and_work_both_ways(given):
    world = opened(given, fresh=True)
    task = world.tasks("train", 1)[0]
    said = []
    for _ in range(2):
        episode = world.start(task, 0)
        said.append(episode.step(call_text("where", {"path": mcp_fresh.MOUNT_POINT})).text)
        episode.close()
    assert said == [f"{mcp_fresh.MOUNT_POINT}/diary.txt True"] * 2


def test_a_server_that_dies_breaks_its_episode(given):
    world = opened(given, fresh=True)
    episode = world.start(world.tasks("train", 1)[0], 0)
    with pytest.raises(ServerBroken, match=r"closed the connection \(status 1\)"):
        episode.step(call_text("die"))
    episode.close()


def test_a_recorded_rollout_is_forked(given):
    world = opened(given, fresh=True)
    policy = ScriptedPolicy.from_replies([call_text("add", {"line": word}) for word in "ab"])
    sampling = Sampling(max_tokens=80)
    with Tree.memory() as tree:
        trajectory = (
            grow(tree, policy, world, world.tasks("train", 1), draws=1, settings=sampling)[0]
            .forks[0]
            .leaves()[0]
        )
        seen = [step.node for step in trajectory.steps if step.node.kind == "observation"]
        arm = fork(tree.at(seen[1]), policy, 2, world=world)
        mine = [step for leaf in arm.leaves() for step in leaf if step.node.fork == arm.record.id]
        assert {step.node.origin for step in mine if step.node.kind == "observation"} == {"replayed"}
        assert all(step.text.startswith(seen[1].text) for step in mine if step.node.kind == "observation")


def test_what_is_no_command_is_said(tmp_path, capsys):
    held = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    assert mcp_fresh.main([]) == 2
    assert mcp_fresh.main([str(tmp_path / "none"), "true"]) == 2
    assert mcp_fresh.main([str(tmp_path), "/nonexistent/server"]) == 2
    assert held == [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    told = capsys.readouterr().err
    assert "usage" in told
    assert "/nonexistent/server" in told


def test_the_status_of_the_server_is_passed_on(tmp_path, monkeypatch):
    class Kept(io.BytesIO):
        def close(self):
            """What was written is read afterwards."""

    sink = Kept()
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    script = f"import os, sys; print(os.getcwd(), sorted(os.listdir('{mcp_fresh.MOUNT_POINT}'))); sys.exit(5)"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text("x")
    assert mcp_fresh.run(folder, ["./program", "-c", script], io.BytesIO(), sink) == 5
    assert sink.getvalue().decode() == f"{mcp_fresh.MOUNT_POINT} ['a']\n"


STUBBORN = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], preexec_fn=os.setsid)
print(os.getpid(), left.pid, flush=True)
while True:
    signal.pause()
"""


def test_a_server_that_does_not_end_leaves_no_copy(given, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    words = [sys.executable, mcp_fresh.__file__, str(given[1]), sys.executable, str(tmp_path / "stubborn.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, env={"TMPDIR": str(temporary)}) as fresh:
        server, left = map(int, fresh.stdout.readline().split())
        assert len(list(temporary.iterdir())) == 1
        fresh.send_signal(signal.SIGTERM)
        assert fresh.wait() == 128 + signal.SIGTERM
        os.kill(left, signal.SIGKILL)
    assert list(temporary.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_a_message_without_an_end_is_not_kept(given, monkeypatch, capsys):
    monkeypatch.setattr(mcp_fresh, "_LONGEST", 1000)
    monkeypatch.setattr(mcp_fresh, "_PATIENCE", 0.1)
    endless = "import os\nos.write(1, b'short\\n')\nwhile True: os.write(1, b'x' * 65536)"
    sink = io.BytesIO()
    sink.close = lambda: None
    assert mcp_fresh.run(given[1], [sys.executable, "-c", endless], io.BytesIO(), sink) == -signal.SIGKILL
    assert sink.getvalue() == b"short\n"
    assert "is not passed on" in capsys.readouterr().err
