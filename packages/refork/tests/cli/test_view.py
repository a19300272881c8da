"""``refork view``: what it refuses before it serves, and the file it writes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest
import typer
from typer.testing import CliRunner

from refork import Tree
from refork.cli.view import view_command
from refork.errors import BadInput
from refork.tree.node import NewNode

app = typer.Typer()
app.command("view")(view_command)
app.callback()(lambda: None)


@pytest.fixture
def tree(tmp_path):
    file = tmp_path / "tree.db"
    with Tree.open(file, "x") as made:
        made.append(NewNode(kind="task", text="t"))
    return file


def run(*words):
    return CliRunner().invoke(app, ["view", *map(str, words)], catch_exceptions=True)


def test_a_file_to_share(tree, tmp_path):
    said = run(tree, "--export", tmp_path / "a.html")
    assert said.exit_code == 0
    assert said.output.startswith("1 nodes of 1 tasks in")
    told = json.loads(run(tree, "--export", tmp_path / "a.html", "--json").output)
    assert told["bytes"] == (tmp_path / "a.html").stat().st_size


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--json"], "go with --export"),
        (["--task", "1"], "go with --export"),
        (["--world", "lock"], "go with --policy"),
        (["--success-regex", "x"], "go with --policy"),
        (["--policy", "openai:http://x/v1#m"], "a click would cost money"),
        (["--policy", "nonsense"], "names no policy"),
        (["--policy", "scripted:coin", "--export", "x.html"], "cannot fork"),
        (["--export", "x.html", "--world", "maze", "--host", "0.0.0.0"], "--world, --host"),
        (["--export", "x.html", "--success-regex", "a"], "--success-regex"),
        (
            ["--export", "x.html", "--port", "1", "--allow-host", "h", "--open"],
            "--port, --allow-host, --open",
        ),
        (["--host", "0.0.0.0", "--port", "0"], "other machines"),
    ],
)
def test_what_is_refused(tree, words, why):
    error = run(tree, *words).exception
    assert isinstance(error, BadInput)
    assert why in str(error)


def test_it_serves_until_it_is_stopped(tree):
    pytest.importorskip("uvicorn")
    verb = ["view", str(tree), "--port", "0", "--policy", "scripted:coin"]
    line = [sys.executable, "-c", "from refork.cli import main; main()", *verb]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as server:
        try:
            first = server.stderr.readline()
            assert first.startswith("viewing ")
            address = first.split(" at ")[1].split()[0]
            with urllib.request.urlopen(f"{address}api/trees", timeout=900) as answer:
                assert json.load(answer)["trees"][0]["tasks"] == 1
            assert "scripted:coin" in server.stderr.readline()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(900) == 0
