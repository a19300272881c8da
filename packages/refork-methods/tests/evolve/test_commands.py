"""``refork evolve`` and ``refork judge``: what is printed, and how they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from refork_methods.evolve.commands.evolve import app as evolve
from refork_methods.evolve.commands.judge import app as judge

TRUTH = [int(i % 4 < 2) for i in range(60)]


def called(app: Any, *arguments: object, status: int = 0) -> str:
    done = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("evolve") / "run"
    said = called(evolve, "run", "--out", out, "--set", "budget=90", "--set", "first=32")
    assert "90 outcomes" in said
    assert "slot review" in said
    return out


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    wrong = {"old": set(range(16)), "new": {1}, "mean": set()}
    rows = [
        {"item": f"a{i}", "judge": name, "value": 1 - y if i in miss else y}
        for name, miss in wrong.items()
        for i, y in enumerate(TRUTH)
    ]
    labels = [{"id": f"a{i}", "label": y} for i, y in enumerate(TRUTH[:50])]
    for name, given in (("v", rows), ("a", labels)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    return tmp_path / "v.jsonl", tmp_path / "a.jsonl"


def test_an_audit_prints_judges_and_writes_files(run: Path, tmp_path: Path) -> None:
    said = called(evolve, "audit", run, "--out", tmp_path / "audit")
    assert said.startswith("the log replays\n")
    assert "audit.json" in said
    told = json.loads(called(evolve, "audit", run, "--json"))
    assert (told["outcomes"], told["replays"], told["tree"]) == (90, True, [])


def test_a_run_that_ended_is_resumed_to_the_same(run: Path) -> None:
    told = json.loads(called(evolve, "resume", run, "--json"))
    assert (told["resumed"], told["ended"], told["outcomes"]) == (True, True, 90)


def test_erasing_says_first_and_audit_notices_it_after(run: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    said = called(evolve, "erase", copy, "--slot", "review", "--dry-run")
    assert "would vanish" in said
    told = json.loads(called(evolve, "erase", copy, "--slot", "review", "--json"))
    assert not told["dry_run"]
    assert f"flaw: {told['verdicts']} valid verdicts are not on the tree" in called(
        evolve, "audit", copy, status=1
    )


def test_a_gate_answers_in_words_in_json_and_by_its_status(files: tuple[Path, Path], tmp_path: Path) -> None:
    verdicts, anchor = files
    common = ["gate", verdicts, "--anchor", anchor, "--reads", "mean=old"]
    said = called(judge, *common, "--old", "old", "--new", "new", "--stale", tmp_path / "s.jsonl")
    assert said.startswith("YES: better on the anchor")
    assert "stale: 120 scores, of old and of mean, which read them; 60 stay" in said
    assert len((tmp_path / "s.jsonl").read_text().splitlines()) == 120
    told = json.loads(called(judge, *common, "--old", "new", "--new", "old", "--json", status=1))
    assert told["answer"] == "no"
    assert "60 items to judge again" in called(judge, "gate", verdicts, "--old", "old")
    assert json.loads(called(judge, "gate", verdicts, "--old", "old", "--json"))["unaffected"] == 120


def test_judges_side_by_side(files: tuple[Path, Path]) -> None:
    said = called(judge, "compare", files[0], "--anchor", files[1])
    assert "old - new" in said
    told = json.loads(called(judge, "compare", files[0], "--json"))
    assert [row["judge"] for row in told["judges"]] == ["mean", "new", "old"]
