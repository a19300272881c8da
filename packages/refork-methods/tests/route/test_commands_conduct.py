"""``refork route conduct``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refork.errors import UserError
from refork.tree.tree import Tree
from refork_methods.route.commands import app

PLAN = {"model_id": ["A", "B"], "subtasks": ["3+4", "_*2"], "access_list": [[], [1]]}


def conduct(*arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["conduct", *map(str, arguments)])
    if isinstance(done.exception, UserError):
        assert done.exception.exit_code == status, done.exception
        return str(done.exception)
    assert done.exit_code == status, (done.output, done.exception)
    return done.stdout


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps(PLAN))
    return file


def test_a_given_plan_runs_and_is_recorded(plan: Path, tmp_path: Path) -> None:
    said = conduct("3+4*2", "--plan", plan)
    assert "1. A" in said
    assert "(sees 1)" in said
    assert "calls: 2, money: unknown" in said
    tree, copy = tmp_path / "w.db", tmp_path / "copy.json"
    told: dict[str, Any] = json.loads(
        conduct("3+4*2", "--plan", plan, "--out", tree, "--save-plan", copy, "--json")
    )
    assert told["workflow"] == PLAN == json.loads(copy.read_text())
    with Tree.open(tree, "r") as found:
        assert found.node(told["node"]).text == told["answer"]


def test_a_conductor_writes_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from refork.policies.scripted import ScriptedPolicy

    def scripted(plan: str) -> None:
        policy = ScriptedPolicy.from_replies([plan])
        monkeypatch.setattr("refork.policies.open.open_policy", lambda spec: policy)

    scripted("[A,B][3+4,_*2][[],[1]]")
    told = json.loads(conduct("3+4*2", "--conductor", "scripted:planner", "--json"))
    assert told["workflow"] == PLAN
    assert told["text"] == "[A,B][3+4,_*2][[],[1]]"
    said = conduct("3+4*2", "--conductor", "scripted:planner", "--without", "B", status=1)
    assert "opted out" in said
    scripted("no plan")
    assert "no plan was found" in conduct("3+4*2", "--conductor", "scripted:planner", status=1)


def test_training_tells_before_and_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured = {
        "accuracy": 0.31,
        "accuracy_low": 0.28,
        "accuracy_high": 0.34,
        "expected": 0.306,
        "run": 0.98,
        "calls": 1.9,
    }
    summary = {"before": measured, "after": measured | {"expected": None}, "policy": "hf:x"}
    asked: list[Any] = []

    def run(recipe: Any, folder: Path, progress: object) -> dict[str, Any]:
        asked.append((recipe, folder))
        return summary

    monkeypatch.setattr("refork_methods.route.conduct.training.run_conduct", run)
    options = ("--train", "--out", tmp_path / "run", "--set", "updates=3", "--set", "sub_pools=[3]")
    said = conduct(*options)
    assert "before: 0.310 right [0.280, 0.340], expected 0.306; 98.0% of plans run; 1.90 calls each" in said
    assert "after: 0.310 right [0.280, 0.340]; " in said
    assert json.loads(conduct(*options, "--json")) == summary
    recipe, folder = asked[0]
    assert (recipe.updates, recipe.sub_pools, folder) == (3, (3,), tmp_path / "run")


def test_what_cannot_be_done_is_told(plan: Path, tmp_path: Path) -> None:
    assert "nothing to run" in conduct("3+4*2", status=2)
    assert "no such file" in conduct("3+4*2", "--plan", tmp_path / "none.json", status=2)
    assert "no such file" in conduct("3+4*2", "--plan", plan, "--pool", tmp_path / "none.toml", status=2)
    assert "opted out" in conduct("3+4*2", "--plan", plan, "--without", "A", status=2)
    assert "at most 1" in conduct("3+4*2", "--plan", plan, "--max-steps", 1, status=2)
    assert "needs a folder" in conduct("--train", status=2)
    assert "recipe key" in conduct("--train", "--out", tmp_path / "x", "--set", "plans=1", status=2)
