"""Runs in the folder that they began in, whatever became of it: replayed, compared by file, and forked."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from agents import provider as fake
from agents.containing import LISTED, contained_or_skip
from refork import agents
from refork.agents import snapshots
from refork.agents.folders import ContainedFolder
from refork.agents.fork import Outcome, ProgramChange, ProgramForkSettings, fork_run, other_files
from refork.agents.snapshots import FolderWatch, lay_start, start_of
from refork.agents.tape import events_of
from refork.errors import BadInput, CannotDo
from refork.tree import Tree

#: A coding agent: it tells the model what a file holds, and appends what the model says.
AGENT = """
import json, os, socket, sys, urllib.request as web
for turn in range(2):
    held = open("notes.txt").read()
    asked = {"model": "m", "messages": [{"role": "user", "content": held}]}
    request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(asked).encode())
    request.add_header("content-type", "application/json")
    said = json.load(web.urlopen(request))["choices"][0]["message"]["content"]
    with open("notes.txt", "a") as notes:
        notes.write(said + "\\n")
    if "LOG" in os.environ:
        open("run.log", "w").write(os.environ["LOG"])
if "DOOR" in os.environ:
    try:
        socket.create_connection(("127.0.0.1", int(os.environ["DOOR"])), 5)
        print("a door is open")
    except OSError:
        print("no door")
print(open("notes.txt").read())
"""


@pytest.fixture
def place(tmp_path):
    contained_or_skip()
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "notes.txt").write_text("to do\n")
    return tmp_path


@pytest.fixture
def recorded(place):
    """A run of two exchanges, its tape in its folder, and its provider."""
    with Tree.open(place / "tape.db") as tree, fake.serving() as (provider, address):
        command = [sys.executable, "agent.py"]
        run = agents.record(
            tree,
            command,
            to=address,
            folder=place,
            quiet=True,
            settings=agents.RecordSettings(snapshots=True),
        )
        provider.asked.clear()
        yield tree, run, provider, address


def replayed(tree, run, **more):
    with agents.ContainedRun(tree, run, **more) as inside:
        return agents.replay(tree, run, quiet=True, contained=inside)


def test_a_run_is_replayed_in_the_folder_that_it_began_in(recorded, place):
    tree, run, provider, _ = recorded
    left = (place / "notes.txt").read_text()
    assert left == "to do\nanswer 1\nanswer 2\n"
    assert not agents.replay(tree, run, quiet=True).identical  # it finds what the first run left
    (place / "notes.txt").write_text("something else\n")
    told = replayed(tree, run)
    assert (told.sentence, told.identical, told.output_equal, provider.asked) == (
        "identical: 2 requests, 2 of them byte by byte, exit status 0, with the same output", True, True, []
    )  # fmt: skip
    assert (place / "notes.txt").read_text() == "something else\n"


def test_a_file_that_a_tool_writes_otherwise_is_named_by_exchange(recorded, place, monkeypatch):
    tree, run, _, _ = recorded
    assert [snapshots._read(tree, event.files).keys() for event in events_of(tree, run)] == [
        set(),
        {"notes.txt"},
    ]
    monkeypatch.setenv("LOG", "another")  # no request tells of it
    told = replayed(tree, run)
    assert (told.divergence, told.answered, told.identical) == (None, 2, False)
    assert (told.files.exchange, told.files.path, told.files.more) == (1, "run.log", 0)
    assert "at exchange 1 the file run.log was as at the start when recorded" in told.sentence
    assert not (place / "run.log").exists()


def test_draws_begin_in_the_recorded_folder_and_leave_it_alone(recorded, place, monkeypatch):
    tree, run, provider, address = recorded
    before = (place / "notes.txt").read_bytes()
    change = ProgramChange.parse("answer:no")
    how = ProgramForkSettings(to=address, contained=True, jobs=2)
    base, other = fork_run(tree, run, 0, change, 2, settings=how, outcome=Outcome(fails="\nno\n"))
    assert (base.values(), other.values(), len(provider.asked)) == ([1.0, 1.0], [0.0, 0.0], 4)
    asked = sorted(body["messages"][0]["content"] for _, _, body in provider.asked)
    assert asked == ["to do\nanswer 1\n", "to do\nanswer 1\n", "to do\nno\n", "to do\nno\n"]
    assert (place / "notes.txt").read_bytes() == before
    assert other_files(tree, base, other) == []
    # Other files by the point are told, and nothing that was drawn apart is drawn again.
    monkeypatch.setenv("LOG", "another")
    again = fork_run(tree, run, 1, change, 1, settings=how)
    assert len(other_files(tree, *again)) == 2
    assert "run.log" in other_files(tree, *again)[0]


def test_a_command_that_checks_sees_what_a_contained_draw_left_anywhere(recorded, place):
    tree, run, _, address = recorded
    how = ProgramForkSettings(to=address, contained=True)
    # It changes what it looks at, too, and all of that is gone after it.
    told = "grep -q '^no$' notes.txt && grep -q 'to do' && echo x > /tmp/refork-checked && rm notes.txt"
    base, other = fork_run(
        tree, run, 0, ProgramChange.parse("answer:no"), 2, settings=how, outcome=Outcome(check=told)
    )
    assert (base.values(), other.values()) == ([0.0, 0.0], [1.0, 1.0])
    assert (place / "notes.txt").read_text() == "to do\nanswer 1\nanswer 2\n"
    assert not Path("/tmp/refork-checked").exists()


def test_a_start_is_laid_once_for_all_batches_of_a_search(recorded, monkeypatch):
    tree, run, _, address = recorded
    laid, real = [], agents.program.lay_start
    monkeypatch.setattr(agents.program, "lay_start", lambda *args: laid.append(1) or real(*args))
    points = agents.ProgramPoints(tree, run, settings=ProgramForkSettings(to=address, contained=True))
    with points:
        for draws in (1, 2):
            points.draw({points.arm(1, keeps=True): draws})
        assert len(laid) == 1
        (scratch,) = {Path(points._inside._layers.folder)}
    assert not scratch.exists()
    points.draw({points.arm(1, keeps=True): 3})
    assert len(laid) == 2


@pytest.mark.parametrize("network", [False, True])
def test_a_contained_program_reaches_the_endpoint_and_nothing_else(recorded, network, monkeypatch):
    tree, run, _, _ = recorded
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        monkeypatch.setenv("DOOR", str(door.getsockname()[1]))
        with agents.ContainedRun(tree, run, network=network) as inside, inside.view(tree) as (view, check):
            answering = agents.program.FromTape(events_of(tree, run), check)
            _, output, _ = agents.program.run_program(
                answering, run.command, Path(run.folder), quiet=True, view=view
            )
    assert output.startswith("a door is open" if network else "no door")
    assert len(answering.answered) == 2


def changed_in_many_ways(folder):
    """All kinds of changes to what :func:`filled` makes."""
    (folder / "a/changed").write_text("now\n")
    (folder / "a/gone").unlink()
    (folder / "a/new").write_text("new")
    shutil.rmtree(folder / "b")
    (folder / "b").write_text("a file now")
    (folder / "c").unlink()
    (folder / "c/in/it").mkdir(parents=True)
    (folder / "c/in/file").write_text("new")
    (folder / "link").unlink()
    (folder / "link").symlink_to("a/new")
    (folder / "run.sh").chmod(0o644)
    (folder / "fresh/sub").mkdir(parents=True)
    (folder / "fresh/sub/x").write_text("x")
    (folder / "empty").rmdir()


def filled(folder):
    for name in ("a", "b/deep", "empty"):
        (folder / name).mkdir(parents=True)
    for name in ("a/changed", "a/gone", "a/same", "b/one", "b/deep/two", "c", "run.sh"):
        (folder / name).write_text(name)
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("a/same")


def inside(folder, layer, command):
    with ContainedFolder(folder, layers=(layer,)).view() as view:
        return subprocess.run([*view.prefix(), *command], capture_output=True, text=True, check=True).stdout


def test_a_start_is_shown_above_whatever_became_of_the_folder(place):
    folder, layer = place / "work", place.parent / f"{place.name}-layer"
    folder.mkdir()
    layer.mkdir()
    filled(folder)
    before = subprocess.run(LISTED, cwd=folder, capture_output=True, text=True, check=True).stdout
    with Tree.open(place / "tape.db") as tree:
        watch = FolderWatch(tree, folder)
        assert watch.changes() == {}
        changed_in_many_ways(folder)
        found = watch.changes()
        assert [path for path, content in found.items() if content is None] == [
            "a/gone",
            "b/deep/two",
            "b/one",
            "c",
        ]
        assert [*found] == sorted([
            "a/changed", "a/gone", "a/new", "b", "b/deep/two", "b/one", "c", "c/in/file", "fresh/sub/x",
            "link", "run.sh",
        ])  # fmt: skip
        lay_start(tree, start_of(tree, watch.blob), folder, layer)
    assert inside(folder, layer, LISTED) == before


def test_the_same_changes_in_a_view_and_in_the_folder_are_the_same(place):
    folder, copy = place / "work", place / "copy"
    folder.mkdir()
    filled(folder)
    shutil.copytree(folder, copy, symlinks=True)
    with Tree.open(place / "tape.db") as tree:
        watch = FolderWatch(tree, folder)
        changed_in_many_ways(folder)
        recorded = watch.changes()
        other = FolderWatch(tree, copy)
        code = (
            "import sys; sys.path[:0] = sys.argv[1:]; from pathlib import Path; "
            "from agents.test_snapshots import changed_in_many_ways; changed_in_many_ways(Path.cwd())"
        )
        with ContainedFolder(copy).view() as view:
            subprocess.run([*view.prefix(), sys.executable, "-c", code, *sys.path], check=True)
            check = snapshots.FolderCheck(tree, other.start, copy, view.upper)
            assert check.changes() == recorded


def test_keys_and_what_git_ignores_are_not_kept(place, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "sk-0123456789abcdef")
    for name, text in {
        ".env": "A=1", "config.py": "key = 'sk-0123456789abcdef'", "out/big.bin": "x", "kept.txt": "kept",
        "node_modules/m/index.js": "m", "server.pem": "p", ".gitignore": "out/\n",
    }.items():  # fmt: skip
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    with Tree.open(place / "tape.db") as tree:
        watch = FolderWatch(tree, place, agents.program.files_of(tree))
        (place / "out/more.bin").write_text("ignored, and new")
        (place / ".git/index").write_text("another")
        assert watch.changes() == {}
    kept = {path for path, entry in watch.start.entries.items() if entry.content is not None}
    assert {path for path in kept if not path.startswith(".git/")} == {
        ".gitignore", "agent.py", "kept.txt", "notes.txt",
    }  # fmt: skip
    assert {".git/HEAD"} <= kept
    assert not {".git/config", ".git/objects"} & {*watch.start.entries}
    assert {".env", "config.py", "out", "node_modules", "server.pem"} <= {*watch.start.left}
    assert b"sk-0123456789abcdef" not in (place / "tape.db").read_bytes()


def test_a_folder_that_is_too_large_is_refused_before_the_program_runs(place, monkeypatch):
    monkeypatch.setattr(snapshots, "LARGEST", 100)
    with Tree.open(place / "tape.db") as tree, pytest.raises(CannotDo, match="to keep"):
        agents.record(tree, ["touch", "ran"], folder=place, settings=agents.RecordSettings(snapshots=True))
    assert not (place / "ran").exists()


@pytest.mark.parametrize("path", ["../out", "/out", "a/../../out", "link/out"])
def test_a_start_of_a_stranger_writes_nothing_beside_its_layer(place, path):
    with Tree.open(place / "tape.db") as tree:
        start = FolderWatch(tree, place).start.to_json()
        link = [0o120777, 0, 0, os.fspath(place.parent), 0, 0]
        start["entries"] = {"link": link, path: start["entries"]["notes.txt"]}
        blob = tree.put_blob(zlib.compress(json.dumps(start).encode()))
        with pytest.raises(BadInput, match="cannot be read"):
            start_of(tree, blob)
