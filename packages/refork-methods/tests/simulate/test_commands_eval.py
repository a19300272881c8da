"""``refork simulate eval`` and ``serve``: what they print, write and refuse."""

import json
import signal

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.growing.recorder import record, trajectories, write_trajectories
from refork.policies.open import open_policy
from refork.tree.tree import Tree
from refork_methods.simulate.baselines import CopyLast, NearestTurn
from refork_methods.simulate.commands import app
from refork_methods.simulate.evaluate import evaluate
from refork_methods.simulate.fidelity_picture import fidelity_figure
from refork_methods.simulate.prompt import Prediction
from refork_methods.simulate.simulating import open_environment, simulated_worlds
from refork_methods.simulate.world import WorldModel

RUN = CliRunner()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    world = open_environment("tools:library")
    with Tree.open(folder / "test.db") as tree:
        record(world, world.tasks("held-out", 3), tree)
        items = list(trajectories(tree))
    with Tree.memory() as tree:
        record(world, world.tasks("train", 6), tree)
        write_trajectories(folder / "train.jsonl", trajectories(tree))
    write_trajectories(folder / "test.jsonl", items)
    return folder, items


def test_eval_of_a_model_that_knows_nothing(recorded, tmp_path):
    """The coin never writes a tag: coverage 0, and the baselines beat it."""
    folder, _ = recorded
    command = [
        "eval", "scripted:coin", str(folder / "test.jsonl"), "--judge", "rule", "--baseline", "nearest",
        "--train", str(folder / "train.jsonl"), "--turns", "2", "--out", str(tmp_path),
    ]  # fmt: skip
    shown = RUN.invoke(app, [*command, "--json"])
    assert shown.exit_code == 0, shown.output
    told = json.loads(shown.stdout)
    assert told["turns"] == 6
    assert told["micro"]["coverage"]["estimate"] == told["scorers"]["ours"] == 0
    assert told["scorers"]["released"] is None  # all failures dropped: nothing is left
    assert told["comparisons"][0]["overall"]["coverage"]["difference"] == -1
    assert (tmp_path / "fidelity.svg").read_text().startswith("<svg")
    assert len((tmp_path / "turns.jsonl").read_text().splitlines()) == 6
    assert json.loads((tmp_path / "report.json").read_text()) == told
    again = RUN.invoke(app, command)
    assert "6 turns of 3 trajectories" in again.stdout
    assert "scripted:coin minus nearest-turn" in again.stdout


def test_a_baseline_does_not_look_up_the_answers_of_the_test(recorded):
    folder, _ = recorded
    test = str(folder / "test.jsonl")
    done = RUN.invoke(app, ["eval", "scripted:coin", test, "--baseline", "nearest", "--train", test])
    assert isinstance(done.exception, BadInput)
    assert "share a task" in done.exception.what


def test_eval_of_a_tree_writes_scores_and_bad_choices_are_refused(recorded):
    folder, _ = recorded
    shown = RUN.invoke(app, ["eval", "scripted:coin", str(folder / "test.db"), "--turns", "one"])
    assert shown.exit_code == 0, shown.output
    with Tree.open(folder / "test.db", "r") as tree:
        assert len(list(tree.scores(name="fidelity.exact"))) == 3
    for wrong in (["--turns", "0"], ["--baseline", "nearest"], ["--judge", "scripted:coin"]):
        refused = RUN.invoke(app, ["eval", "scripted:coin", str(folder / "test.jsonl"), *wrong])
        assert refused.exit_code != 0


def test_ctrl_c_stops_all_that_is_compared(recorded, tmp_path, monkeypatch):
    """In the first batch or in a later one: status 130, and no other simulator is begun."""
    folder, _ = recorded
    begun = []

    def interrupted(self, asked):
        begun.append(len(asked))
        signal.raise_signal(signal.SIGINT)
        return [Prediction(one.action, one.action) for one in asked]

    monkeypatch.setattr(WorldModel, "predict", interrupted)
    command = ["eval", "scripted:coin", str(folder / "test.jsonl"), "--against", "scripted:greeter"]
    command += ["--batch", "1"]
    judged = RUN.invoke(app, [*command, "--judge", "rule", "--out", str(tmp_path / "judged")])
    assert (judged.exit_code, begun) == (130, [1])
    assert (tmp_path / "judged" / "predictions.jsonl").read_text()
    shown = RUN.invoke(app, [*command, "--out", str(tmp_path / "plain")])
    assert (shown.exit_code, begun) == (130, [1, 1])
    assert json.loads((tmp_path / "plain" / "report.json").read_text())["complete"] is False


def test_serve_names_worlds_and_refuses_what_cannot_be_simulated():
    model = WorldModel(open_policy("scripted:coin"))
    assert list(simulated_worlds(model, ["tools:shop", "mine=tools"])) == ["tools-shop", "mine"]
    with pytest.raises(BadInput, match="two worlds"):
        simulated_worlds(model, ["tools", "tools"])
    with pytest.raises(BadInput, match="cannot be simulated"):
        simulated_worlds(model, ["lock"])
    for wrong in (["--host", "0.0.0.0"], ["--task", "x"], ["--stdio", "--world", "tools:shop"]):
        refused = RUN.invoke(app, ["serve", "scripted:coin", "--world", "tools", *wrong])
        assert refused.exit_code != 0


def test_the_picture_is_equal_for_equal_figures(recorded):
    _, items = recorded
    found = [evaluate(one, items).fidelity for one in (CopyLast(), NearestTurn(items))]
    figure = fidelity_figure(found)
    assert any("copy-last" in row[0] for row in figure.rows)
