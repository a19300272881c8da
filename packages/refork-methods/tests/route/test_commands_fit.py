from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, Mismatch
from refork_methods.route.backbone import RouterBackbone
from refork_methods.route.commands import app
from refork_methods.route.head import load_head
from refork_methods.route.table import read_table, write_table
from refork_methods.route.training import fit_head
from refork_testbed.trials.scaffold import Scaffold
from support.models import make_model, make_tokenizer, tiny_policy


def route(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    file = tmp_path_factory.mktemp("table") / "alone.jsonl"
    write_table(Scaffold(42).alone(queries=40, repeats=4), file)
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    make_model().save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def test_rewards_of_another_range_can_be_fitted(tmp_path):
    made = Scaffold(42).alone(queries=20, repeats=2)
    write_table(replace(made, reward=2 * made.reward - 1, low=-1), tmp_path / "t.jsonl")
    with pytest.raises(BadInput, match="outside"):
        read_table(tmp_path / "t.jsonl")
    assert "fitted on 16" in route("fit", tmp_path / "t.jsonl", "--out", tmp_path / "h", "--low", -1)


def test_fit_then_evolve_in_the_scaffold(tmp_path, table):
    out = route("fit", table, "--out", tmp_path / "first", "--tau", "auto")
    assert "fitted on 32 queries, 8 held out, 0 dropped" in out
    assert out.count("tau") == 5
    told = json.loads(route("fit", table, "--out", tmp_path / "first", "--json"))
    assert told["tau"] == 0.2
    assert told["held_out"]["chosen"] > told["held_out"]["fixed"]
    head, card = load_head(tmp_path / "first")
    assert (card.fit["stage"], len(card.queries)) == (1, 32)
    options = (
        "--from",
        tmp_path / "first",
        "--out",
        tmp_path / "second",
        "--iters",
        4,
        "--repeats",
        8,
        "--test",
        50,
    )
    text = route("evolve", "scaffold", *options, "--rival")
    assert "4 generations, 576 rollouts" in text
    assert "REINFORCE had 576 rollouts" in text
    told = json.loads(route("evolve", "scaffold", *options, "--json"))
    assert told["evolved"]["resumed"] == 4
    assert told["rival"] is None
    better, card = load_head(tmp_path / "second")
    assert (card.fit["stage"], card.fit["before"]["stage"]) == (2, 1)
    assert not np.allclose(better.weights, head.weights)


def test_a_real_backbone_by_name(tmp_path, model):
    rows = [
        {"query": f"q{i}", "worker": f"w{w}", "reward": float(w == i % 4), "text": f"{'abcd'[i % 4]} ?"}
        for i in range(12)
        for w in range(4)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "head"
    spec = f"hf:{model}"
    told = json.loads(route("fit", file, "-o", out, "--backbone", spec, "--svf", "--epochs", 2, "--json"))
    assert told["moved"]["curve"][0][0] == 0
    head, card = load_head(out)
    assert (head.width, head.format.rendering, card.backbone) == (32, "raw", head.backbone)
    pool = tmp_path / "pool.toml"
    pool.write_text(
        "".join(f'[[worker]]\nname = "w{i}"\npolicy = "scripted:specialist@{i}"\n' for i in range(4))
    )
    short = ("--iters", 1, "--repeats", 2, "--population", 4, "--tasks", 4, "--test", 4, "--backbone", spec)
    options = ("--pool", pool, *short, "-o", tmp_path / "better", "--window", 24)
    told = json.loads(route("evolve", "specialists", *options, "--svf", "--json"))
    assert told["evolved"]["rollouts"] == 8
    assert (tmp_path / "better" / "tree.db").exists()
    assert len(load_head(tmp_path / "better")[0].matrices) == 9
    with pytest.raises(Mismatch, match="window"):
        route("evolve", "specialists", *options, "--from", out)


def test_what_does_not_fit_is_refused(tmp_path, table):
    with pytest.raises(BadInput, match="no text for the backbone"):
        fit_head(read_table(table), tmp_path, backbone=RouterBackbone(tiny_policy()))
    with pytest.raises(BadInput, match="name one"):
        route("fit", table, "-o", tmp_path, "--svf")
    with pytest.raises(BadInput, match="NAME=REWARD"):
        route("fit", table, "-o", tmp_path, "--cold", "worker")
    with pytest.raises(BadInput, match="--tau"):
        route("fit", table, "-o", tmp_path, "--tau", "warm")
    with pytest.raises(BadInput, match="--pool"):
        route("evolve", "specialists", "-o", tmp_path)
    with pytest.raises(BadInput, match="cost counts"):
        route("evolve", "scaffold", "-o", tmp_path, "--cost", 1)
