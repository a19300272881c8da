from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from refork.tree.tree import Tree
from support import two_processes

SCRIPT = Path(two_processes.__file__)


def content(file):
    with Tree.open(file, "r") as tree:
        rows = []
        for node in tree.walk():
            arrays = (
                node.tokens,
                node.offsets,
                node.logprobs,
                node.logprobs_t1,
                node.ref_logprobs,
                node.entropy,
            )
            stored = [None if a is None else a.tobytes() for a in arrays]
            plain = (
                node.id,
                node.parent,
                node.keep,
                node.kind,
                node.key,
                node.text,
                node.message,
                node.policy,
            )
            rows.append((*plain, node.weights, node.settings, node.noise, node.fork, node.finish, stored))
        return sorted(rows, key=lambda row: row[0])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from refork_testbed.models import build

    return str(build("test-tiny", tmp_path_factory.mktemp("organism") / "tiny"))


@pytest.mark.parametrize("kind", ["scripted", "local"])
def test_one_process_two_processes_and_another_order_write_the_same_bytes(tmp_path, kind, request):
    folder = request.getfixturevalue("model") if kind == "local" else None
    extra = [folder] if folder else []
    whole = tmp_path / "whole.db"
    two_processes.draw(str(whole), list(range(24)), folder)
    shared = tmp_path / "shared.db"
    halves = ["0,2,4,6,8,10,12,14,16,18,20,22", "23,21,19,17,15,13,11,9,7,5,3,1"]
    # Where a process must import torch first, this one is the second, from when the other begins to draw.
    alone = halves[1:] if folder else []
    running = [
        subprocess.Popen([sys.executable, SCRIPT, shared, half, *extra]) for half in halves[: 2 - len(alone)]
    ]
    for half in alone:
        while not shared.exists() and running[0].poll() is None:
            time.sleep(0.01)
        two_processes.draw(str(shared), [int(n) for n in half.split(",")], folder)
    assert {process.wait(900) for process in running} == {0}
    backwards = tmp_path / "backwards.db"
    two_processes.draw(str(backwards), list(range(23, -1, -1)), folder)
    assert content(whole) == content(shared) == content(backwards)


def test_a_killed_fork_is_finished_by_another_process(tmp_path):
    file = tmp_path / "t.db"
    two_processes.draw(str(file), [0, 1, 2], None)
    running = subprocess.Popen([sys.executable, SCRIPT, file, ",".join(map(str, range(64)))])
    running.kill()
    running.wait(900)
    two_processes.draw(str(file), list(range(64)), None)
    whole = tmp_path / "whole.db"
    two_processes.draw(str(whole), list(range(64)), None)
    assert content(file) == content(whole)
