"""The example package: built, installed beside Refork, and used on the command line."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refork import Tree, cli
from refork.registry import registered
from refork_methods.credit.methods import credit_method

PACKAGE = Path(__file__).parents[2] / "examples/plugin"


@pytest.fixture(scope="module", autouse=True)
def site(tmp_path_factory):
    """The package as a stranger has it: from its wheel."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, folder / "source")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    done = subprocess.run(
        [*pip, "--target", folder / "site", folder / "source"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        registered.cache_clear()
        yield folder / "site"
    for name in [name for name in sys.modules if name.startswith("refork_example")]:
        del sys.modules[name]
    registered.cache_clear()


def refork(*typed, status=0):
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", ["refork", *map(str, typed)])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stop:
            cli.main()
    assert (stop.value.code or 0) == status, out.getvalue()
    return out.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    grow = ("grow", "--world", "guess?top=8", "--policy", "scripted:guesser", "--draws", 40)
    refork(*grow, "--set", "tasks.count=3", "--out", folder / "run")
    return folder / "run/tree.db"


def test_each_thing_is_written_in_under_thirty_lines():
    for file in [*PACKAGE.rglob("*.py"), PACKAGE / "pyproject.toml"]:
        assert len([line for line in file.read_text().splitlines() if line.strip()]) < 30, file


def test_the_page_shows_the_package_as_it_is():
    page = (PACKAGE.parents[1] / "docs/extend.md").read_text()
    for file in [*(PACKAGE / "src/refork_example").glob("[!_]*.py"), PACKAGE / "pyproject.toml"]:
        assert f'title="{file.name}"\n{file.read_text().strip()}\n```' in page, file


def test_the_world_is_listed():
    (row,) = [line for line in refork("world", "list").splitlines() if line.startswith("guess")]
    assert "a number from 1 to 9 in three guesses (refork-example)" in row


def test_the_world_is_played_by_its_rules(run):
    with Tree.open(run, "r") as tree:
        hidden = {task.id: task.extra["task"]["data"]["hidden"] for task in tree.tasks()}
        assert {task.extra["task"]["world"] for task in tree.tasks()} == {"guess?top=8"}
        values = {one.node: one.value for one in tree.scores(name="success")}
        won = 0
        for leaf in tree.leaves():
            trajectory = tree.path(leaf)
            guesses = [int(step.text) for step in trajectory if step.node.kind == "action"]
            right = hidden[trajectory.root.id]
            assert len(guesses) <= 3
            assert values[leaf.id] == float(right in guesses)
            won += right in guesses
            for guess, seen in zip(
                guesses, [s.text for s in trajectory if s.node.kind == "observation"], strict=True
            ):
                said = "right" if guess == right else "higher" if guess < right else "lower"
                assert seen.strip() == f"{guess}: {said};"
    assert 0 < won < 120


def test_a_fork_of_the_world_goes_on_with_a_word_changed(run, tmp_path):
    run = shutil.copy(run, tmp_path / "tree.db")
    with Tree.open(run, "r") as tree:
        lost = next(one.node for one in tree.scores(name="success") if one.value == 0.0)
        trajectory = tree.path(lost)
        right = trajectory.root.extra["task"]["data"]["hidden"]
        first = next(step.node for step in trajectory if step.node.kind == "action")
    fork = ("fork", "--tree", run, "--node", first.id, "--token", 0, "--policy", "scripted:guesser")
    told = json.loads(refork(*fork, "--change", f"force:{right}", "--draws", 16, "--json"))
    assert told["draws"] == 16
    assert told["difference"] > 0, "who says the hidden number wins"


def test_the_credit(run):
    with Tree.open(run, "r") as tree:
        task = next(iter(tree.tasks()))
        leaves = list(tree.leaves(task))
        trajectories = [tree.path(leaf) for leaf in leaves]
        values = {one.node: one.value for one in tree.scores(name="success")}
        outcomes = [values[leaf.id] for leaf in leaves]
        given = credit_method("discounted", gamma=0.5)(trajectories, outcomes)
    for trajectory, outcome, values in zip(trajectories, outcomes, given, strict=True):
        steps = [step for step in trajectory if step.tokens is not None]
        assert len(values) == sum(len(step.tokens) for step in steps)
        turns = sum(step.node.kind == "action" for step in steps)
        gain = outcome - np.mean(outcomes)
        assert values[-1] == pytest.approx(gain)
        assert values[0] == pytest.approx(gain * 0.5**turns)


def test_the_command(run):
    rows = [line.split() for line in refork("method", "openings", run).splitlines()]
    assert sum(int(row[0]) for row in rows) == 120
    assert {row[2] for row in rows} <= set("12345678")
    counts = [int(row[0]) for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert "openings  " in refork("method", "--help")


def test_the_format(tmp_path):
    file = tmp_path / "chats.csv"
    file.write_text("chat,role,content\n1,user,2+2?\n1,assistant,4\n2,user,Why?\n2,assistant,Because.\n")
    for number, more in enumerate((["--format", "chat-csv"], [])):
        refork("tree", "import", tmp_path / f"{number}.db", file, *more)
        with Tree.open(tmp_path / f"{number}.db", "r") as tree:
            said = [[step.text for step in tree.path(leaf)] for leaf in tree.leaves()]
        assert sorted(said) == [["2+2?", "4"], ["Why?", "Because."]]
    file.write_text("chat,who,content\n1,user,2+2?\n")
    refork("tree", "import", tmp_path / "none.db", file, "--format", "chat-csv", status=2)
