"""Temporary files in memory, for the time of one command."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.toolbox import TOOLS, load

scratch = load("scratch")

ENORMOUS = 1 << 60


def run(*arguments, **settings):
    return subprocess.run(
        [sys.executable, TOOLS / "scratch.py", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
        **settings,
    )


def test_a_command_has_a_folder_which_anybody_may_use_and_which_is_gone_afterwards():
    done = run("sh", "-c", "stat -c '%a %n' $TMPDIR; mktemp; echo told >&2; exit 3")
    assert (done.returncode, done.stderr) == (3, "told\n")
    (mode, folder), (made,) = map(str.split, done.stdout.splitlines())
    assert mode == "1777"
    assert Path(made).parent == Path(folder)
    assert not Path(folder).exists()


def test_a_command_that_a_signal_ends_has_the_status_of_a_shell():
    assert run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_who_ends_it_ends_the_command_and_the_folder_is_gone():
    command = ["sh", "-c", "echo $TMPDIR; exec sleep 60"]
    with subprocess.Popen(
        [sys.executable, TOOLS / "scratch.py", *command], stdout=subprocess.PIPE, text=True
    ) as running:
        folder = Path(running.stdout.readline().strip())
        assert folder.is_dir()
        running.terminate()
        assert running.wait(900) == 128 + signal.SIGTERM
    assert not folder.exists()


def test_where_memory_has_no_room_it_lies_where_others_lie(tmp_path):
    with scratch.scratch(tmp_path, need=0) as folder:
        assert folder.parent == tmp_path
    with scratch.scratch(tmp_path, need=ENORMOUS) as folder:
        assert folder.parent == Path(tempfile.gettempdir())


def test_memory_must_be_there_be_large_and_let_programs_run(tmp_path, monkeypatch):
    assert scratch.roomy(tmp_path, need=0)
    assert not scratch.roomy(tmp_path / "nowhere", need=0)
    assert not scratch.roomy(tmp_path, need=ENORMOUS)
    told = os.statvfs(tmp_path)
    no_programs = os.statvfs_result([*told[:8], told.f_flag | os.ST_NOEXEC, told[9]])
    monkeypatch.setattr(scratch.os, "statvfs", lambda _: no_programs)
    assert not scratch.roomy(tmp_path, need=0)


@pytest.mark.skipif(not scratch.roomy(scratch.MEMORY), reason="no room in memory here")
def test_here_it_is_in_memory(tmp_path):
    with scratch.scratch() as folder:
        assert folder.parent == scratch.MEMORY
        program = shutil.copy(shutil.which("true"), folder)
        assert subprocess.run([program], check=False).returncode == 0
