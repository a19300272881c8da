"""A world and a policy in a file of one's own; never run because a record says so."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.cli import app
from refork.errors import BadInput
from refork.policies.open import open_policy
from refork.tree import Tree
from support.exported import exported

OWN = """
from pathlib import Path
from refork.policies.open import open_policy
from refork.worlds.base import Task
from refork.worlds.open import open_world

Path("ran").touch()


class World:
    name, version, max_turns, deterministic = "toy", "1", 1, True
    inside = open_world("lock")

    def tasks(self, split, count, seed=0):
        return [Task(t.id, "toy", t.split, t.prompt, t.data) for t in self.inside.tasks(split, count, seed)]

    def start(self, task, seed):
        return self.inside.start(Task(task.id, "lock", task.split, task.prompt, task.data), seed)

    def restore(self, task, snapshot):
        return self.inside.restore(Task(task.id, "lock", task.split, task.prompt, task.data), snapshot)


def player():
    return open_policy("scripted:lock")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refork(*arguments):
    told = CliRunner().invoke(app, list(arguments))
    if told.exception is not None and not isinstance(told.exception, SystemExit):
        raise told.exception
    assert told.exit_code == 0, told.output
    return told.stdout


def grown(*more):
    return refork(
        "grow", "--world", "./own.py:World", "--policy", "./own.py:player", "--out", "run",
        "--set", "tasks.count=1", "--set", "draws=3", *more,
    )  # fmt: skip


def node_of_an_action():
    with Tree.open("run/tree.db") as store:
        return next(node.id for node in store.walk() if node.kind == "action")


def test_grown_shown_and_forked(here):
    shown = json.loads(refork("world", "show", "./own.py:World", "--json"))
    assert shown["world"] == shown["task"]["world"] == "./own.py:World"
    grown()
    with Tree.open("run/tree.db") as store:
        assert next(iter(store.tasks())).extra["world"] == "./own.py:World"
    at = ("--tree", "run/tree.db", "--node", node_of_an_action())
    fork = ("fork", *at, "--policy", "./own.py:player", "--draws", "2")
    (here / "ran").unlink()
    assert "success" in refork(*fork, "--world", "./own.py:World")
    # The same file by another path is the same world.
    assert "success" in refork(*fork, "--world", str(here / "own.py") + ":World")


def test_a_record_runs_nothing(here):
    grown()
    at = node_of_an_action()
    (here / "own.py").write_text(OWN + "\n# changed, so that it would be run anew\n")
    (here / "ran").unlink()
    scripted = ("--policy", "scripted:lock")
    for arguments in (
        ("fork", "--tree", "run/tree.db", "--node", at, *scripted, "--draws", "2"),
        ("sweep", "--tree", "run/tree.db", "--node", at, *scripted, "--draws", "2"),
        ("cliff", "scan", "--tree", "run/tree.db", *scripted, "--out", "cliff", "--set", "traces=all"),
    ):
        with pytest.raises(BadInput) as told:
            refork(*arguments)
        assert "no file or module is run because a record names it" in str(told.value), arguments
        assert "--world SPEC" in told.value.hint
    refork("tree", "show", "run/tree.db")
    refork("tree", "verify", "run/tree.db")
    assert not (here / "ran").exists()


def test_a_folder_of_somebody_runs_nothing(here):
    grown()
    refork(
        "cliff", "scan", "--tree", "run/tree.db", "--policy", "./own.py:player", "--world", "./own.py:World",
        "--out", "cliff", "--set", "traces=all", "--limit", "1", "--budget-rollouts", "8",
    )  # fmt: skip
    (here / "own.py").write_text(OWN + "\n# changed, so that it would be run anew\n")
    (here / "ran").unlink()
    with pytest.raises(BadInput, match="because a record names it") as told:
        refork("cliff", "verify", "--out", "cliff")
    assert "--policy SPEC" in told.value.hint
    with pytest.raises(BadInput, match="because a record names it"):
        refork("cliff", "train", "--out", "cliff")
    with pytest.raises(BadInput, match="this run is of"):
        refork("cliff", "verify", "--out", "cliff", "--policy", "scripted:lock")
    assert not (here / "ran").exists()


def test_processes_open_it_by_its_place(here):
    alone = json.loads(grown("--json"))
    (here / "run").rename(here / "alone")
    beside = json.loads(grown("--json", "--backend", "processes:1"))
    assert beside["digest"] == alone["digest"]
    found = []
    for folder in ("alone", "run"):
        with Tree.open(f"{folder}/tree.db") as store:
            found.append(exported(store))
    assert found[0] == found[1]


def test_a_policy_of_ones_own_is_what_it_says(here):
    assert open_policy("./own.py:player").card.name == "scripted:lock"
