"""``refork credit`` on a tree and on JSON lines."""

import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.tree import Tree
from refork.worlds.open import open_world
from refork_methods.credit.commands.credit import app

LINES = [
    {"group_id": "g", "traj_id": "won", "reward": 1, "steps": [
        {"observation": "hall", "action": "go", "tokens": [1, 2, 3], "mask": [False, True, True]},
        {"observation": "room", "action": "take"}]},
    {"group_id": "g", "traj_id": "lost", "reward": 0, "steps": [
        {"observation": "hall", "action": "go"}, {"observation": "room", "action": "sleep"},
        {"observation": "dream", "action": "sleep", "valid": False}]},
]  # fmt: skip


def run(*arguments, status=0):
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done


@pytest.fixture
def lines(tmp_path):
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return file


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    file = tmp_path_factory.mktemp("credit") / "tree.db"
    world = open_world("maze:2,2,2")
    with Tree.open(file) as store:
        grow(
            store,
            open_policy("scripted:walker"),
            world,
            world.tasks("train", 2),
            draws=6,
            settings=Sampling(),
        )
    return file


def test_report(tree, lines):
    assert "merged" in run("report", tree).stdout
    assert json.loads(run("report", lines, "--json").stdout)["merged"] == 0.8
    assert run("report", lines).stdout.startswith("groups ")
    assert run("report", lines, "--scope", "task").stdout.startswith("tasks ")
    unique = run("report", tree, "--anchor", "tree", "--json", status=1)
    assert json.loads(unique.stdout)["warnings"]
    assert "too rare to matter" in unique.stderr


def test_graph(tree, lines, tmp_path):
    shown = json.loads(run("graph", lines, "--out", tmp_path / "g.graphml", "--json").stdout)
    assert shown["states"] == 3
    # Both of a trajectory's ways out of the room are as far from its value; the win gains.
    assert {edge["target_name"] for edge in shown["edges"]} == {"room", "end 1", "dream"}
    assert (tmp_path / "g.graphml").exists()
    assert "states of" in run("graph", tree, "--top", 3).stdout


@pytest.mark.parametrize("ending", ["jsonl", "npz", "parquet"])
def test_advantages_of_lines(lines, tmp_path, ending):
    out = tmp_path / f"a.{ending}"
    rows = json.loads(run("advantages", lines, "--norm", "mean", "--out", out, "--json").stdout)
    assert [row["trajectory"] for row in rows] == ["g/won"] * 2 + ["g/lost"] * 3
    assert rows[0]["tokens"] == [None, rows[0]["advantage"], rows[0]["advantage"]]
    assert rows[1]["advantage"] > rows[3]["advantage"]
    assert out.stat().st_size > 0
    assert list(tmp_path.glob(".*part*")) == []


def test_advantages_are_charted(lines, tree):
    assert "outcome 1" in run("advantages", lines, "--trajectory", "g/won").stdout
    assert "steps of 12 trajectories by hgpo" in run("advantages", tree, "--method", "hgpo").stdout


def test_scores_are_written_once(tree):
    first = run("advantages", tree, "--write").stdout
    assert " 0 new scores" not in first
    assert "new scores" in first
    assert "; 0 new scores" in run("advantages", tree, "--write").stdout
    with Tree.open(tree, "r") as store:
        assert list(store.scores(name="advantage"))


def test_compare(lines):
    rows = json.loads(run("compare", lines, "--json").stdout)
    assert [row["method"] for row in rows] == ["grpo", "gigpo", "hgpo", "graphgpo", "g2po"]
    assert "graphgpo" in run("compare", lines).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "none.db"), "cannot be read"),
        (("report", "LINES", "--scope", "all"), "unknown scope"),
        (("report", "LINES", "--task", "3f"), "this is no tree"),
        (("report", "TREE", "--scope", "task"), "one group"),
        (("report", "TREE", "--score", "style"), "'style' score"),
        (("graph", "LINES", "--gamma", "2"), "gamma"),
        (("graph", "LINES", "--out", "g.png"), "not known"),
        (("advantages", "LINES", "--method", "ppo"), "unknown method"),
        (("advantages", "LINES", "--write"), "only a tree"),
        (("advantages", "LINES", "--out", "a.csv"), "not known"),
        (("advantages", "LINES", "--trajectory", "x"), "no trajectory begins"),
        (("advantages", "LINES", "--trajectory", "g"), "2 trajectories begin"),
        (("compare", "LINES", "--norm", "rank"), "unknown norm"),
    ],
)
def test_what_is_refused(tree, lines, arguments, words):
    places = {"TREE": tree, "LINES": lines}
    with pytest.raises(BadInput, match=words):
        run(*[places.get(a, a) for a in arguments])
