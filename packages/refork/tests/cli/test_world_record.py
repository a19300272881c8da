from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.cli.world import app
from refork.errors import BadInput, CannotDo
from refork.growing.recorder import read_trajectories
from refork.sandbox.shell import Shell
from refork.worlds.environment import DOMAINS


def world(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(done.exception, BadInput):
        return str(done.exception)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def confined():
    try:
        Shell().close()
    except CannotDo as error:
        pytest.skip(str(error))


def test_record_writes_a_tree_and_lines_and_goes_on(tmp_path):
    tree, lines = tmp_path / "t.db", tmp_path / "t.jsonl"
    common = ("record", "terminal", "--out", tree, "--jsonl", lines, "--split", "held-out")
    told = json.loads(world(*common, "--tasks", 2, "--json"))
    assert (told["trajectories"], told["errors"], told["written"], told["unsteady"]) == (2, 0, 2, None)
    assert ["rlimits", True] in [layer[:2] for layer in told["layers"]]
    assert {item.split for item in read_trajectories(lines)} == {"held-out"}
    again = world(*common, "--tasks", 3, "--verify")
    assert "terminal (held-out): 1 episodes" in again
    assert "2 episodes were there already" in again
    assert "run twice: 0 turns called exact were answered otherwise" in again
    assert "3 trajectories in" in again


def test_the_list_says_what_can_be_recorded():
    rows = json.loads(world("list", "--json"))
    assert {row["spec"].partition(":")[0] for row in rows if row["recordable"]} == set(DOMAINS)
    assert "terminal" in world("list")


def test_what_cannot_be_recorded_is_refused(tmp_path):
    assert "cannot be recorded" in world("record", "lock", "--out", tmp_path / "t.db")
    bad = ["record", "terminal", "--out", str(tmp_path / "t.db"), "--split", "x"]
    assert CliRunner().invoke(app, bad).exit_code == 2
