"""The verbs of ``refork implicit``, run in this process."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.forking.arm import fork
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.local import LocalPolicy
from refork.tree.tree import Tree
from refork_methods.implicit.commands import app


def run(*arguments):
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def folders(policy, reference, tmp_path_factory):
    home = tmp_path_factory.mktemp("pair")
    for item, name in ((policy, "rl"), (reference, "sft")):
        item.model.save_pretrained(home / name)
        item.codec.tokenizer.save_pretrained(home / name)
    return home


@pytest.fixture(scope="module")
def chats(folders):
    file = folders / "chats.jsonl"
    said = ["go north", "wait", "open the door", "go south", "key", "wait wait"]
    lines = [
        {
            "task": f"t{i // 3}", "outcome": i % 2, "decisive": 1, "id": f"c{i}",
            "messages": [{"role": "user", "content": "at the door"}, {"role": "assistant", "content": text}],
        }
        for i, text in enumerate(said)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture(scope="module")
def scored(folders, chats):
    out = folders / "scored.jsonl"
    pair = ("--policy", folders / "rl", "--reference", f"hf:{folders / 'sft'}")
    run("score", chats, *pair, "--out", out, "--cache", folders / "kept", "--beta", "0.5")
    return out


def test_score_writes_what_the_other_verbs_read(folders, chats, scored, tmp_path):
    pair = ("--policy", folders / "rl", "--reference", folders / "sft", "--beta", "0.5")
    shown = json.loads(run("score", chats, *pair, "--chunked", "--json"))
    assert len(list((tmp_path / "logprobs").rglob("*.npy"))) == 12, "kept by default"
    kept = [json.loads(line) for line in scored.read_text().splitlines()]
    assert [item["id"] for item in shown] == [f"c{i}" for i in range(6)]
    for a, b in zip(shown, kept, strict=True):
        assert a["scores"]["sum"] == pytest.approx(b["scores"]["sum"], abs=1e-5)
        assert a["reference"]["weights"] == b["reference"]["weights"]
    table = folders / "scored.csv"
    assert "c0" in run("score", chats, *pair, "--no-cache", "--render", "flat", "--out", table)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["id"] for row in rows] == [f"c{i}" for i in range(6)]


def test_the_uses(scored):
    best = json.loads(run("best", scored, "--json"))
    assert best["tasks"] == 2
    assert "oracle" in run("best", scored)
    told = json.loads(run("predict", scored, "--json"))
    assert 0 <= told["auroc"]["estimate"] <= 1
    assert "sensitivity" in run("predict", scored, "--by-task", "--token", "mean")
    blamed = json.loads(run("attribute", scored, "--json"))
    assert blamed["accuracy"]["lowest"]["exact"] == 1.0
    assert "message 1" in run("attribute", scored)


def test_tuning_on_what_is_reported_is_refused(scored, tmp_path):
    with pytest.raises(BadInput, match="also used"):
        run("predict", scored, "--tune-on", scored)
    lines = scored.read_text().splitlines(keepends=True)
    # Each half holds successes and failures.
    for name, part in (("a", lines[:4]), ("b", lines[2:])):
        (tmp_path / name).write_text("".join(part))
    with pytest.raises(BadInput, match="2 trajectories"):
        run("predict", tmp_path / "a", "--tune-on", tmp_path / "b")


def test_a_tree_is_scored_in_place(folders, policy, reference):
    file = folders / "tree.db"
    sampler = LocalPolicy(policy.model, policy.codec, reference=reference)
    with Tree.open(file) as tree:
        start = plant_prompt(tree, sampler, "at the door")
        fork(start, sampler, 4, settings=Sampling(max_tokens=8), judge=MatchJudge("o"))
    recorded = json.loads(run("score", "--tree", file, "--json"))
    pair = ("--policy", folders / "rl", "--reference", folders / "sft")
    again = json.loads(run("score", "--tree", file, *pair, "--json"))
    for a, b in zip(recorded, again, strict=True):
        assert a["scores"]["sum"] == pytest.approx(b["scores"]["sum"], abs=1e-5)
    with Tree.open(file, "r") as tree:
        assert {p.name for p in tree.producers()} >= {"implicit-advantage"}


def test_merge(folders):
    out = folders / "between"
    pair = ("--policy", folders / "rl", "--reference", folders / "sft")
    shown = json.loads(run("merge", *pair, "--out", out, "--alpha", "0.5", "--method", "ties", "--json"))
    assert shown["method"] == "ties"
    assert LocalPolicy.load(str(out)).card.weights
    with pytest.raises(BadInput, match="merge method"):
        run("merge", *pair, "--out", folders / "x", "--method", "odd")


def test_bad_usage(chats, folders):
    for arguments, said in (
        ((), "either a file"),
        ((chats,), "need a pair"),
        ((chats, "--policy", folders / "rl"), "both --policy and --reference"),
    ):
        with pytest.raises(BadInput, match=said):
            run("score", *arguments)
