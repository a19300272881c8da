from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, CannotDo, Mismatch
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.cliff import run as run_module
from refork_methods.cliff.commands import app
from refork_methods.cliff.planted import flat_chain

CHAIN = flat_chain(8, 0.7, 0.1, at=[3], chance=0.85, low=0.3)


def cliff(*arguments, status=0):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done


@pytest.fixture
def tree(tmp_path, monkeypatch):
    # A chain is no shipped policy, so the name opens it here.
    monkeypatch.setattr(run_module, "open_policy", lambda spec: CHAIN.policy())
    policy = CHAIN.policy()
    with Tree.open(tmp_path / "tree.db") as store:
        start = plant_prompt(store, policy, "Well?")
        fork(start, policy, 12, settings=Sampling(max_tokens=12), judge=MatchJudge("right"))
    return tmp_path / "tree.db"


def scan(tree, out, *more):
    command = ["scan", "--tree", tree, "--policy", "scripted:coin", "--success-regex", "right", "--out", out]
    return cliff(*command, "--set", "draws=32", "--set", "retest=32", *more)


def test_the_whole_way(tree, tmp_path):
    out = tmp_path / "run"
    assert "traces" in scan(tree, out).stdout
    told = json.loads(cliff("verify", "--out", out, "--no-effects", "--json", status=1).stdout)
    assert told["survived"] >= 1
    assert "pairs at" in cliff("pairs", "--out", out, "--k", 2).stdout
    told = json.loads(cliff("pairs", "--out", out, "--k", 2, "--unproven", "--json").stdout)
    assert told["file"].endswith("unproven.jsonl")
    page = json.loads(cliff("report", "--out", out, "--json").stdout)["page"]
    text = (tmp_path / "run" / "report.html").read_text()
    assert page == str(tmp_path / "run" / "report.html")
    assert "<svg" in text
    assert "suspected cliffs are real" in text
    assert "cliff" in cliff("report", "--out", out).stdout


def test_a_budget_stops_and_resumes(tree, tmp_path):
    first = json.loads(scan(tree, tmp_path / "run", "--budget-rollouts", 60, "--json").stdout)
    assert first["budget_reached"]
    assert first["rollouts"] <= 60
    assert not json.loads(scan(tree, tmp_path / "run", "--json").stdout)["budget_reached"]


def test_refusals(tree, tmp_path):
    with pytest.raises(BadInput, match="holds no run"):
        cliff("verify", "--out", tmp_path / "nothing")
    with pytest.raises(BadInput, match="no such file"):
        scan(tmp_path / "none.db", tmp_path / "run")
    with pytest.raises(BadInput, match="draws"):
        scan(tree, tmp_path / "run", "--set", "draws=8")
    scan(tree, tmp_path / "run", "--limit", 1)
    with pytest.raises(Mismatch, match="another recipe"):
        scan(tree, tmp_path / "run", "--set", "fdr=0.05")
    with pytest.raises(CannotDo, match="no weights"):
        cliff("train", "--out", tmp_path / "run")
