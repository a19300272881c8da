"""``refork localize run --model``: the loop behind the command line, recorded and forkable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork import Tree
from refork.errors import BadInput
from refork_methods.localize.commands import app


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "rates.py").write_text("def rebate(price):\n    return price // 10 + 1\n")
    (tmp_path / "issue.md").write_text("The rebate of a price is one too much.\n")
    return root


def test_a_model_that_says_nothing_useful_leaves_the_starting_places(repository: Path) -> None:
    tree = repository.parent / "runs.db"
    command = ["run", str(repository), "--issue", str(repository.parent / "issue.md"), "--json"]
    command += ["--model", "scripted:greeter", "--turns", "3", "--tree", str(tree)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    case = json.loads(result.stdout)
    assert case["status"] == "forced"
    assert case["locations"][0]["path"] == "rates.py"
    assert case["meta"]["recovery"]["re-prompted"] == 3
    with Tree.open(tree, "r") as file:
        assert [node.kind for node in file.walk()].count("action") == 3


def test_a_tree_needs_a_model(repository: Path) -> None:
    command = ["run", str(repository), "--issue", str(repository.parent / "issue.md")]
    result = CliRunner().invoke(app, [*command, "--tree", "x.db"])
    assert isinstance(result.exception, BadInput)
