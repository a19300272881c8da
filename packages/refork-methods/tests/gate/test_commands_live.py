"""``refork gate collect`` and ``live``: from real repairs to a policy that decides on others."""

from __future__ import annotations

import json

import pytest

from refork.errors import BadInput, CannotDo
from refork_methods.gate.commands import app
from support.command import runner

WORLD = ("--world", "repair?origin=generated", "--writer", "scripted:repairer")


gate = runner(app)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("gate")
    gate("collect", made / "train.jsonl", "--tree", made / "runs.db", *WORLD, "--tasks", 6, "--steps", 2)
    prices = [f"--price={name}={price}" for name, price in (("verify", 30), ("generate", 5), ("public", 2))]
    others = ["--price=ruff=1", "--price=syntax=1", "--reward", 100]
    gate("fit", made / "train.jsonl", *prices, *others, "--out", made / "policy.json")
    return made


def test_records_are_of_real_candidates_and_kept(folder):
    lines = (folder / "train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert sum("verdicts" in row or "syntax" in str(row) for row in rows) >= 12
    gate("collect", folder / "train.jsonl", "--tree", folder / "runs.db", *WORLD, "--tasks", 6, "--steps", 2)
    assert (folder / "train.jsonl").read_text().splitlines() == lines


def test_live_episodes_are_played_once(folder):
    command = (
        "live", folder / "policy.json", "--tree", folder / "live.db", *WORLD,
        "--tasks", 3, "--horizon", 2, "--verify", "retry", "--json",
    )  # fmt: skip
    first, again = json.loads(gate(*command)), json.loads(gate(*command))
    assert (first["recorded"], again["recorded"]) == (0, 3)
    assert first["utility"] == again["utility"]
    assert [(r["task"], r["outcome"], r["actions"]) for r in first["rows"]] == [
        (r["task"], r["outcome"], r["actions"]) for r in again["rows"]
    ]


def test_another_world_or_a_missing_policy_is_refused(folder):
    with pytest.raises(CannotDo, match="no critics"):
        gate(
            "collect",
            folder / "x.jsonl",
            "--tree",
            folder / "x.db",
            "--world",
            "maze:2,2,2",
            "--writer",
            "scripted:walker",
        )
    with pytest.raises(BadInput):
        gate("live", folder / "none.json", "--tree", folder / "x.db", *WORLD)
