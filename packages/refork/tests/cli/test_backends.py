from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.cli import app
from refork.errors import BadInput
from refork.tree.tree import Tree
from support.exported import exported, unordered

GROW = ("grow", "--world", "lock", "--policy", "scripted:lock")


def run(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_grow_fork_and_sweep_record_the_same_on_a_backend(tmp_path):
    found = []
    for number, more in enumerate(([], ["--backend", "serial?unit=3"])):
        out = tmp_path / str(number)
        distribution = ["--set", "sampling.max_tokens=40", "--set", "tasks.count=1"]
        run(*GROW, "--draws", 4, *distribution, "--out", out, "--json", *more)
        with Tree.open(out / "tree.db") as tree:
            said = next(node for node in tree.walk() if node.kind == "action")
        there = ["--tree", out / "tree.db", "--node", said.id, "--policy", "scripted:lock", "--json", *more]
        effect = run("fork", *there, "--token", 3, "--change", "remove:1", "--draws", 6)
        trace = run("sweep", *there, "--draws", 4)
        with Tree.open(out / "tree.db") as tree:
            lines = unordered(exported(tree))
        found.append((effect["difference"], trace.get("points"), lines))
    assert found[0] == found[1]


def test_a_backend_that_is_none_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="names no backend"):
        run(*GROW, "--out", tmp_path / "a", "--backend", "spark")
