"""``refork maze`` and ``refork recovery``, as a user runs them."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork_methods.recovery.commands import maze, recovery

KEY = ("--key", "regex:^[^;]+")


def run(app, *arguments, status=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(done.exception, BadInput):
        raise done.exception
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("maze")
    out = run(
        maze.app, "train", "3,2,2", "--updates", 150, "--out", folder / "teacher.json",
        "--write-traces", folder / "traces.jsonl", "--json",
    )  # fmt: skip
    return folder, json.loads(out)


def test_solve_prints_the_landmarks():
    found = json.loads(run(maze.app, "solve", "15,15,5", "--json"))
    assert (found["uniform"], found["optimal"]) == (50142, 900)
    assert "50,142" in run(maze.app, "solve", "15,15,5")
    assert json.loads(run(maze.app, "solve", "3,3,3", "--method", "exact", "--json"))["exact"] == "326"
    for bad in ("3,3", "3,3,0", "a,b,c"):
        with pytest.raises(BadInput):
            run(maze.app, "solve", bad)


def test_train_sft_and_distill(made):
    folder, report = made
    assert report["after"] < report["before"] == pytest.approx(141)
    golden = json.loads(run(maze.app, "train", "3,2,2", "--method", "sft", "--json"))
    assert golden["after"] > golden["before"]
    taught = json.loads(
        run(maze.app, "train", "3,2,2", "--method", "distill", "--teacher", folder / "teacher.json", "--json")
    )
    assert taught["after"] < taught["before"]
    solved = json.loads(run(maze.app, "solve", "3,2,2", "--policy", folder / "teacher.json", "--json"))
    assert solved["policy"] == pytest.approx(report["after"])
    with pytest.raises(BadInput, match="needs a teacher"):
        run(maze.app, "train", "3,2,2", "--method", "distill")
    for method in ("rlvr", "sft"):
        for option in ("--updates", "--rate"):
            with pytest.raises(BadInput, match="above 0"):
                run(maze.app, "train", "3,2,2", "--method", method, option, 0)
    with pytest.raises(BadInput, match="another shape"):
        run(maze.app, "solve", "3,3,3", "--policy", folder / "teacher.json")


def test_audit_shorten_and_mix(made, tmp_path):
    traces = made[0] / "traces.jsonl"
    found = json.loads(run(recovery.app, "audit", traces, *KEY, "--json", status=1))
    assert found["with_recovery"]["estimate"] > 0.3
    text = run(recovery.app, "audit", traces, *KEY, "--rule", "phrase", status=1)
    assert "lose all supervision" in text
    run(recovery.app, "shorten", traces, "--out", tmp_path / "golden.jsonl", *KEY)
    assert "0 states lose" in run(recovery.app, "audit", tmp_path / "golden.jsonl", *KEY)
    run(recovery.app, "shorten", traces, "--out", tmp_path / "whole.jsonl", *KEY, "--keep-recoveries")
    assert "0 of them shortened" in run(
        recovery.app, "shorten", traces, "--out", tmp_path / "again.jsonl", *KEY, "--keep-recoveries"
    )
    said = run(recovery.app, "mix", traces, "--fraction", 0.1, "--out", tmp_path / "mix.jsonl", *KEY)
    assert "with their recoveries" in said


def test_dose(made):
    teacher = made[0] / "teacher.json"
    assert "expected moves" in run(maze.app, "dose", teacher, "--fractions", "0,0.01", "--seeds", 1)
    rows = json.loads(run(maze.app, "dose", teacher, "--fractions", "0,0.1", "--seeds", 1, "--json"))
    assert rows[0]["recoveries"] == 0 < rows[1]["recoveries"]
    for wrong in ([teacher, "--fractions", "x"], [made[0] / "traces.jsonl"]):
        with pytest.raises(BadInput):
            run(maze.app, "dose", *wrong)


def test_solve_can_walk_too_and_sft_says_what_it_left_untaught(tmp_path):
    text = run(maze.app, "solve", "3,2,2", "--walks", 200, "--cap", 60)
    assert "at 60: at least" in text
    picture = tmp_path / "curve.svg"
    golden = run(maze.app, "train", "3,2,2", "--method", "sft", "--updates", 20, "--plot", picture)
    drawn = ElementTree.fromstring(picture.read_text())
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert "expected moves" in picture.read_text()
    assert "nothing taught the rows b_0, b_1, d_0, d_1" in golden
