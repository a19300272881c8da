import json

import pytest
import typer
from typer.testing import CliRunner

from refork.cli import fork
from refork.errors import BadInput
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork.worlds.open import open_world
from refork_methods.simulate import commands as simulate
from refork_methods.simulate.episode import NO_ANSWER

app = typer.Typer()
app.command("fork")(fork.fork_command)
app.add_typer(simulate.app, name="simulate")


def run(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_acting_in_a_simulator_prints_marked_answers():
    asked = ["--model", "scripted:greeter", "--world", "terminal", "--actions", "ls;cat a"]
    result = run("simulate", "steer", *asked)
    assert result.exit_code == 0, result.output
    assert result.output.count(NO_ANSWER) == 2
    assert result.output.count("[simulated ; ") == 2
    report = json.loads(run("simulate", "steer", *asked, "--control", "perturb:rate=1", "--json").stdout)
    assert report["simulator"]["control"]["rate"] == 1.0
    assert [turn["action"] for turn in report["turns"]] == ["ls", "cat a"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--world", "terminal", "--actions", " "],
        ["--world", "household:1", "--actions", "ls"],
        ["--world", "terminal", "--actions", "ls", "--control", "shout"],
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    result = run("simulate", "steer", "--model", "scripted:greeter", *wrong)
    assert isinstance(result.exception, BadInput)


@pytest.fixture
def recorded(tmp_path):
    world, agent = open_world("household:1"), open_policy("scripted:coin")
    with Tree.open(tmp_path / "tree.db") as tree:
        group = grow(
            tree, agent, world, world.tasks("train", 1), draws=1, settings=Sampling(max_tokens=4), max_turns=3
        )[0]
        node = next(s.node for s in group.forks[0].leaves()[0].steps if s.node.kind == "observation")
    return ["--tree", str(tmp_path / "tree.db"), "--node", node.id, "--policy", "scripted:coin"]


def test_fork_takes_a_simulator(recorded):
    asked = [*recorded, "--draws", "2", "--simulator", "scripted:greeter", "--json"]
    real = json.loads(run("fork", *asked).stdout)
    assert real["simulated"] == 0.0, "the world can be restored"
    alone = json.loads(run("fork", *asked, "--world", "none", "--simulator-control", "perturb").stdout)
    assert alone["simulated"] == 1.0
    assert alone["simulator"]["control"]["control"] == "perturb"
    text = run("fork", *asked[:-1], "--world", "none").output
    assert "100 % of the answers are simulated, by scripted:greeter" in text
    assert isinstance(run("fork", *recorded, "--simulator-control", "perturb").exception, BadInput)
