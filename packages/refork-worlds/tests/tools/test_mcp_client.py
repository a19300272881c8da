"""Servers that die, hang, are cancelled or do not start: real processes, and what is left of them."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from refork.errors import BadInput, CannotDo
from refork.growing import grow
from refork.growing.recorder import record
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_worlds.tools import mcp_child
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp import McpWorld
from refork_worlds.tools.mcp_client import ServerBroken

pytest.importorskip("mcp")

SHORT = Sampling(max_tokens=200)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test leaves no thread, and so no event loop and no connection."""
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def gone(pid, seconds=120):
    """Whether a process ends within a time; who is dead and waits for its parent has."""
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watch], [], [], seconds)[0])
    finally:
        os.close(watch)


def begun(world):
    return world.start(world.tasks("train", 1)[0], 0)


def interrupted(pipe):
    """Presses Ctrl-C when a server says over a pipe that it works; the pid that it said."""
    os.mkfifo(pipe)
    said = []

    def wait():
        said.append(int(Path(pipe).read_text()))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, said


def test_a_server_that_dies_breaks_its_episode(rough):
    episode = begun(rough())
    with pytest.raises(
        ServerBroken, match=r"closed the connection \(status 3; it said: I had the key None\)"
    ):
        episode.step(call_text("die"))
    # It stays so: nothing is graded afterwards, not where the turns are used up either.
    for action in (call_text("look"), "nonsense", call_text("submit")):
        with pytest.raises(ServerBroken, match="status 3"):
            episode.step(action)
    episode.close()
    episode.close()


def test_a_broken_rollout_has_an_error_and_no_grade(rough, tmp_path):
    goals = tmp_path / "goals.jsonl"
    goals.write_text(json.dumps({"prompt": "live", "answer": "5", "split": "train"}))
    world = rough(goals=goals)
    (task,) = world.tasks("train", 1)
    with Tree.memory() as tree:
        policy = ScriptedPolicy.from_replies([call_text("die")])
        (group,) = grow(tree, policy, world, [task], draws=1, settings=SHORT)
        (drawn,) = group.forks[0].draws
        assert (drawn.end, group.values(), group.values("reward")) == ("error", [None], [None])
        assert "ServerBroken" in drawn.error
        leaf = group.forks[0].leaves()[0].leaf
        assert (leaf.kind, "status 3" in leaf.error) == ("observation", True)
        policy = ScriptedPolicy.from_replies([call_text("submit", {"answer": "4"})])
        (group,) = grow(tree, policy, world, [task], draws=1, settings=SHORT, seed=1)
        assert group.values() == [0.0]
    dying = {"prompt": "die", "checks": [{"name": "die", "answer": "ok"}], "split": "train"}
    goals.write_text(json.dumps(dying))
    episode = begun(world)
    with pytest.raises(ServerBroken):
        episode.step(call_text("submit"))
    episode.close()


def test_a_recording_counts_what_broke(rough, tmp_path):
    goals = tmp_path / "goals.jsonl"
    solution = [{"name": "look"}, {"name": "die"}]
    goals.write_text(json.dumps({"prompt": "die", "answer": "5", "solution": solution, "split": "train"}))
    world = rough(goals=goals)
    with Tree.memory() as tree:
        told = record(world, world.tasks("train", 1), tree)
        assert (told.errors, told.trajectories) == (1, 0)
        assert "ServerBroken" in told.reasons[0]


def test_what_a_policy_says_cannot_break_a_server(rough):
    episode = begun(rough(turns=20))
    deep = call_text("echo", {"text": json.loads("[" * 900 + "]" * 900)})
    for action in ('{"name":"echo","arguments":{"text":"\\ud800"}}', '{"name":"\\ud800"}', deep):
        seen = episode.step(action)
        assert (seen.text, seen.info) == (
            '{"error":"the call cannot be sent"}',
            {"ok": False, "exact": False},
        )
    for depth in (190, 200, 240, 252, 254, 255, 256):
        nested = call_text("echo", {"text": json.loads("[" * depth + "]" * depth)})
        assert not episode.step(nested).info["ok"]
    unreadable = '{"error":"the server\'s answer cannot be read"}'
    for name, text in (("refuse", '{"error":"no"}'), ("half", unreadable), ("look", "ok")):
        assert episode.step(call_text(name)).text == text
    words = "Connection closed"
    assert episode.step(call_text("refuse", {"words": words})).text == f'{{"error":"{words}"}}'
    assert "validation error" in episode.step(call_text("strange")).text
    assert episode.step(call_text("echo", {"text": "ä\u2028\n"})).text == "ä\u2028\n"
    episode.close()


def test_a_call_that_takes_too_long_is_cancelled_and_its_server_ended(rough, tmp_path):
    note = tmp_path / "cancelled"
    os.mkfifo(f"{note}.pipe")
    said = []
    thread = threading.Thread(target=lambda: said.append(Path(f"{note}.pipe").read_text()))
    thread.start()
    episode = begun(rough(note, timeout=5))
    with pytest.raises(ServerBroken, match="'work' was not answered in 5 s"):
        episode.step(call_text("work"))
    thread.join()
    assert note.read_text() == Path(f"{note}.id").read_text()
    assert gone(int(said[0]))
    episode.close()


def test_a_server_that_hears_nothing_is_killed(rough, monkeypatch):
    monkeypatch.setattr(mcp_child, "GRACE", 0.1)
    episode = begun(rough(timeout=5))
    server, child = map(int, episode.step(call_text("pids")).text.split())
    with pytest.raises(ServerBroken, match="'freeze' was not answered"):
        episode.step(call_text("freeze"))
    assert gone(server)
    assert gone(child)
    episode.close()


def test_what_a_server_started_ends_with_it(rough, monkeypatch):
    monkeypatch.setattr(mcp_child, "GRACE", 0.5)
    episode = begun(rough())
    server, child = map(int, episode.step(call_text("pids")).text.split())
    assert not gone(child, 0)
    episode.close()
    assert gone(server)
    assert gone(child)


def test_a_server_that_dies_is_missed_although_its_output_is_held(rough, monkeypatch, tmp_path):
    monkeypatch.setattr(mcp_child, "GRACE", 0.2)
    episode = begun(rough())
    with pytest.raises(ServerBroken, match=r"status 4"):
        episode.step(call_text("leave", {"note": str(tmp_path / "note")}))
    assert gone(int((tmp_path / "note").read_text()))
    episode.close()


def test_ctrl_c_cancels_the_call_and_ends_the_server(rough, tmp_path):
    note = tmp_path / "cancelled"
    episode = begun(rough(note))
    thread, said = interrupted(f"{note}.pipe")
    with pytest.raises(KeyboardInterrupt):
        episode.step(call_text("work"))
    thread.join()
    assert note.read_text() == Path(f"{note}.id").read_text()
    assert gone(said[0])
    with pytest.raises(ServerBroken, match="not running"):
        episode.step(call_text("look"))
    episode.close()


def test_ctrl_c_leaves_a_whole_tree_that_goes_on(rough, tmp_path):
    note = tmp_path / "cancelled"
    world = rough(note, turns=2)
    tasks = world.tasks("train", 1)
    policy = ScriptedPolicy.from_replies([call_text("work")])
    with Tree.open(tmp_path / "grown.tree") as tree:
        thread, said = interrupted(f"{note}.pipe")
        with pytest.raises(KeyboardInterrupt):
            grow(tree, policy, world, tasks, draws=1, settings=SHORT)
        thread.join()
        assert gone(said[0])
        assert list(tree.verify()) == []
    with Tree.open(tmp_path / "grown.tree") as tree:
        (group,) = grow(tree, policy, world, tasks, draws=1, settings=SHORT)
        (trajectory,) = group.forks[0].leaves()
        assert [step.text for step in trajectory if step.node.kind == "observation"] == ["done before"] * 2
        assert [drawn.end for drawn in group.forks[0].draws] == ["done"]
        assert list(tree.verify()) == []


def test_ctrl_c_while_a_server_starts(tmp_path):
    pipe = tmp_path / "pipe"
    script = tmp_path / "slow.py"
    script.write_text(
        f"import os, sys\nopen({str(pipe)!r}, 'w').write(str(os.getpid()))\nfor line in sys.stdin: pass\n"
    )
    world = open_world(f"tools:mcp?command={quote(f'{sys.executable} {script}')}")
    thread, said = interrupted(pipe)
    with pytest.raises(KeyboardInterrupt):
        world.tools()
    thread.join()
    assert gone(said[0])


def test_a_server_that_dies_ends_its_rollout_alone(rough):
    world = rough(turns=1)
    policy = ScriptedPolicy.from_replies([call_text("look"), call_text("die")])
    seen: set[str] = set()
    # The server's file is in its world's name, and so in the noise: another folder, other draws.
    for seed in range(20):
        with Tree.memory() as tree:
            tasks = world.tasks("train", 1)
            (group,) = grow(tree, policy, world, tasks, draws=6, seed=seed, settings=SHORT)
            said = [trajectory.steps[1].text for trajectory in group.forks[0].leaves()]
            ends = [drawn.end for drawn in group.forks[0].draws]
            assert ends == ["error" if "die" in text else "done" for text in said]
        seen.update(ends)
        if len(seen) == 2:
            break
    assert seen == {"error", "done"}


@pytest.mark.parametrize(
    ("how", "match"),
    [
        (["dies"], r"ended before it was ready \(status 3; it said: no key in None\)"),
        (["silent"], r"was not ready in 0.5 s"),
    ],
)
def test_a_server_that_does_not_start_is_told_with_what_to_do(rough, how, match):
    limits = {"start_timeout": 0.5} if how == ["silent"] else {}
    with pytest.raises(CannotDo, match=match) as told:
        rough(*how, **limits).tools()
    assert "server.py" in told.value.where
    assert "start_timeout" in told.value.hint or "env=NAME" in told.value.hint


def test_what_is_no_server_is_told(rough, tmp_path):
    with pytest.raises(CannotDo, match="no message: 'hello'"):
        open_world("tools:mcp?command=echo%20hello").tools()
    with pytest.raises(BadInput, match="no program '/nonexistent/server'"):
        open_world("tools:mcp?command=/nonexistent/server").tools()
    with pytest.raises(BadInput, match="cannot be split"):
        open_world("tools:mcp?command=%27a").tools()
    garbage = tmp_path / "garbage"
    garbage.write_bytes(b"\x7f\x00")
    garbage.chmod(0o755)
    with pytest.raises(BadInput, match=r"cannot be started: .*format"):
        open_world(f"tools:mcp?command={garbage}").tools()
    # Words of its own among the messages do no harm.
    episode = begun(rough("chatty"))
    assert episode.step(call_text("look")).text == "ok"
    episode.close()


def test_an_episode_that_nobody_closes_is_closed(rough, monkeypatch):
    monkeypatch.setattr(mcp_child, "GRACE", 0.2)
    episode = begun(rough())
    server, _ = map(int, episode.step(call_text("pids")).text.split())
    del episode
    assert gone(server)


def test_a_link_is_closed_from_its_own_thread_too(rough):
    world = rough()
    before = set(threading.enumerate())
    connection = world.connect()
    link = connection._link

    async def close():
        link.close()

    link.run(close)
    for thread in set(threading.enumerate()) - before:
        thread.join(900)
    assert link.lost
    assert set(threading.enumerate()) == before
    connection.close()


def test_ctrl_c_while_tools_are_listed_ends_the_server(tmp_path, rough):
    note = tmp_path / "cancelled"
    episode = begun(rough("declares", "slow", note))
    thread, said = interrupted(f"{note}.pipe")
    with pytest.raises(KeyboardInterrupt):
        episode.step(call_text("open"))
    thread.join()
    assert gone(said[0])
    episode.close()


def test_a_task_of_another_world_starts_too(rough):
    world = rough()
    assert isinstance(world, McpWorld)
    episode = world.start(Task("any", world.name, "train", "", {}), 0)
    assert episode.step(call_text("look")).text == "ok"
    episode.close()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there a descriptor tells the loop, and no thread")
def test_where_the_notice_of_its_end_comes_late_no_process_is_left_over(rough, monkeypatch):
    """An object that nobody waited for complains when it is collected, in whatever test runs then."""

    def later(self, loop, pid, callback, arguments):
        gone_at.append(os.waitpid(pid, 0)[1])
        time.sleep(0.5)
        loop.call_soon_threadsafe(callback, pid, os.waitstatus_to_exitcode(gone_at[-1]), *arguments)

    gone_at = []
    monkeypatch.setattr(asyncio.ThreadedChildWatcher, "_do_waitpid", later)
    monkeypatch.setattr(mcp_child, "GRACE", 0.1)
    begun(rough()).close()
    gc.collect()
    # On a busy machine it is told to end (15) before it ends by itself.
    assert gone_at
    assert set(gone_at) <= {0, 15}
