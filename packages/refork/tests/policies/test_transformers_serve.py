"""Rollouts from a real server that is not ours: `transformers serve`, on a model made in seconds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from refork.tree import Tree
from refork_testbed.models import build
from support.exported import exported

BIN = Path(sys.executable).parent
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BIN / "transformers").exists(), reason="transformers has no command here"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The policy's name of an organism behind the server."""
    pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")
    folder = tmp_path_factory.mktemp("served")
    model = build("test-tiny", folder / "tiny")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        str(BIN / "transformers"), "serve", str(model), "--device", "cpu", "--attn-implementation", "sdpa",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    # A machine that never downloaded a model: the server's list of models answers 500.
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HOME": str(folder / "none"), "HF_HUB_OFFLINE": "1"}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError((folder / "log").read_text())
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                break
            time.sleep(0.1)
        yield f"openai:http://127.0.0.1:{port}/v1#{model}"
    finally:
        process.terminate()
        process.wait(900)


def told(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "refork"), *arguments], capture_output=True, text=True, check=True, timeout=900
    )


def test_the_probe_says_what_this_server_can_do(served: str) -> None:
    done = told("policy", "probe", served, "--json")
    card = json.loads(done.stdout)["policy"]
    assert card["extra"]["mode"] == "chat"
    assert "422" in card["extra"]["why_not_tokens"]
    # The list of models fails there, and nothing waits for it.
    assert "status 500" not in done.stderr


def test_rollouts_of_its_chats_are_recorded(served: str, tmp_path: Path) -> None:
    told(
        "grow", "--world", "lock", "--policy", served, "--set", "tasks.count=2", "--draws", "2",
        "--set", "sampling.max_tokens=6", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    with Tree.open(tmp_path / "run" / "tree.db") as tree:
        rows = [json.loads(line) for line in exported(tree).splitlines()]
    said = [row["text"] for row in rows if row.get("kind") == "action"]
    assert sum(row.get("kind") == "verdict" for row in rows) == 4
    assert len(said) >= 4
    assert all(said)
