"""Folders seen copy-on-write: forked at any depth, the folder as it was, and nothing left behind."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agents.containing import LISTED, contained_or_skip
from refork.agents import folders
from refork.agents.folders import FolderMachine
from refork.errors import BadInput, CannotDo


@pytest.fixture
def tree_of_files(tmp_path):
    """A folder with files, folders, a link and a program; its name holds what separates options of mounts."""
    contained_or_skip()
    folder = tmp_path / "a:b,c\\d"
    (folder / "lib/deep").mkdir(parents=True)
    (folder / "lib/one.txt").write_text("one")
    (folder / "lib/deep/two.txt").write_text("two")
    (folder / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("lib/one.txt")
    return folder


def listed(folder):
    return subprocess.run(LISTED, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_states_are_forked_and_neither_they_nor_the_folder_change(tree_of_files):
    before = listed(tree_of_files)
    with FolderMachine(tree_of_files) as machine:
        one = machine.start.run(["sh", "-c", "echo more >> lib/one.txt; rm run.sh; ./gone"])
        assert (one.status, "gone: not found" in one.output) == (127, True)
        assert one.state.changes() == {"lib": "folder", "lib/one.txt": "file", "run.sh": None}
        # Two forks of it, and the state that they were forked from.
        left = one.state.run(["sh", "-c", "rm -r lib; mkdir lib; echo l > lib/l; cat link"])
        right = one.state.run(["sh", "-c", "cat lib/one.txt; echo r > lib/r"])
        assert (left.status, right.output) == (1, "onemore\n")
        assert one.state.run(["ls", "lib"]).output == "deep\none.txt\n"
        assert left.state.read("lib/l") == b"l\n"
        assert (right.state.read("lib/r"), right.state.read("lib/deep/two.txt")) == (b"r\n", b"two")
        for state, path in ((left.state, "lib/one.txt"), (one.state, "run.sh"), (one.state, "lib/r")):
            with pytest.raises(BadInput, match="no file"):
                state.read(path)
        assert machine.start.run(["./run.sh"]).output == "ran\n"
        assert machine.start.run(["true"]).state is machine.start
        assert machine.start.run(["sleep", "99"], limit_s=0.05).status == 124
    assert listed(tree_of_files) == before
    with pytest.raises(CannotDo, match="closed"):
        machine.start.run(["true"])


def test_deep_forks_hold_what_the_commands_leave_in_a_copy(tree_of_files, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "DEEPEST", 4)
    copy = tmp_path / "copy"
    shutil.copytree(tree_of_files, copy, symlinks=True)
    commands = [
        f"echo {i} > n{i % 5}; rm -rf d{i % 3}; mkdir d{i % 3}; echo {i} > d{i % 3}/f{i}; "
        f"rm -f lib/deep/t{i - 2}; "
        f"[ {i} = 3 ] && rm -r lib/deep; mkdir -p lib/deep; echo {i} > lib/deep/t{i}; chmod 7{i % 8}5 run.sh;"
        f"[ {i} = 5 ] && rm lib/one.txt && mkdir lib/one.txt && touch lib/one.txt/in;"
        f"[ {i} = 8 ] && rm -r lib/one.txt; ln -sfn n{i % 5} link; true"
        for i in range(12)
    ]
    with FolderMachine(tree_of_files) as machine:
        state = machine.start
        for command in commands:
            state = state.run(["sh", "-c", command]).state
            subprocess.run(["sh", "-c", command], cwd=copy, check=True)
        assert len(state.layers) <= 4
        assert state.run(LISTED).output == listed(copy)


def test_what_is_outside_the_folder_stays_as_it_is(tree_of_files, tmp_path):
    beside = tmp_path / "beside"  # in the folder of temporary files: copy-on-write
    with FolderMachine(tree_of_files) as machine:
        told = machine.start.run(
            ["sh", "-c", f"touch {beside} && echo wrote; touch /etc/wrote; kill -0 {os.getpid()}; ls /proc"]
        )
    assert "wrote\n" in told.output
    assert not beside.exists()
    assert "/etc/wrote': Read-only" in told.output.replace("/etc/wrote: Read-only", "/etc/wrote': Read-only")
    assert "No such process" in told.output
    assert f"\n{os.getpid()}\n" not in told.output


def test_nothing_is_left_of_forks(tree_of_files, monkeypatch):
    made = []
    real = folders.tempfile.mkdtemp
    monkeypatch.setattr(folders.tempfile, "mkdtemp", lambda **named: made.append(real(**named)) or made[-1])
    # A mode that keeps its owner out, and a process that would go on: with it, and what it holds open, run
    # would not come back.
    spoiled = "mkdir -p x/y && chmod 0 x/y x; (setsid sleep 1000 &) ; echo $$"
    with FolderMachine(tree_of_files) as machine:
        states = [machine.start.run(["sh", "-c", spoiled]).state for _ in range(3)]
        scratch = Path(made[-1])
        assert len([one for state in states for one in state.layers]) == 3
        del states
        machine._removing.submit(int).result()  # all before it is done
        assert [*scratch.iterdir()] == []
    assert len(made) == 2
    assert not any(map(os.path.exists, made))
    assert machine._keeper.process.poll() is not None


#: Runs a program in a view; both are ended from outside.
RUNS = """
import subprocess, sys
from refork.agents.folders import ContainedFolder
with ContainedFolder(sys.argv[1]).view() as view:
    print(view.plan["scratch"], flush=True)
    subprocess.run([*view.prefix(), "sh", "-c", "touch new; echo began; sleep 1000"])
"""


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGKILL, False), (signal.SIGTERM, False), (signal.SIGTERM, True)]
)
def test_a_view_ends_with_whoever_made_it(tree_of_files, number, group):
    with subprocess.Popen(
        [sys.executable, "-c", RUNS, tree_of_files],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    ) as running:  # fmt: skip
        scratch = Path(running.stdout.readline().strip())
        assert running.stdout.readline() == "began\n"
        assert (scratch / "0/new").exists()
        (os.killpg if group else os.kill)(running.pid, number)
        # The end of the pipe: every process that could write to it has ended, the one that removes, too.
        assert running.stdout.read() == ""
    assert not scratch.exists()
    assert not (tree_of_files / "new").exists()


#: Runs a command in a machine; it is ended from outside.
MACHINE = """
import sys
from refork.agents import FolderMachine
machine = FolderMachine(sys.argv[1])
state = machine.start.run(["touch", "new"]).state
print(machine.scratch, flush=True)
state.run(["sh", "-c", "echo began > /proc/self/fd/1; sleep 1000"])
"""


def test_the_layers_of_a_machine_go_with_whoever_opened_it(tree_of_files):
    with subprocess.Popen(
        [sys.executable, "-c", MACHINE, tree_of_files], stdout=subprocess.PIPE, text=True
    ) as running:
        scratch = Path(running.stdout.readline().strip())
        assert (scratch / "1/0/new").exists()
        keeper = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        guard = os.pidfd_open(int(keeper[0]))
        running.kill()
        select.select([guard], [], [])  # until that has ended
        os.close(guard)
    assert not scratch.exists()


def test_where_programs_cannot_be_contained_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(
        folders, "_command", lambda: ["sh", "-c", "echo refork: not contained: no >&2; exit 125"]
    )
    with pytest.raises(CannotDo, match="contained here: no"):
        FolderMachine(tmp_path)
    monkeypatch.setattr(folders.sys, "platform", "darwin")
    with pytest.raises(CannotDo, match="Linux, and this is darwin"):
        FolderMachine(tmp_path)
    with pytest.raises(BadInput, match="no folder"):
        FolderMachine(tmp_path / "none")
