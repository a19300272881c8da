from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from refork.cli import app
from refork.errors import BadInput
from refork.growing.allocator import FEATURES

RUN = CliRunner()


def call(*args, code=0):
    result = RUN.invoke(app, [str(a) for a in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture
def rewards(tmp_path):
    lines = [
        {"group": g, "reward": r} for g, rs in {"a": (0, 0), "b": (0, 1), "c": (1, 1)}.items() for r in rs
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_report_curve_and_size(rewards):
    found = json.loads(call("collapse", "report", rewards, "--json"))
    assert (found["groups"], found["all_fail"], found["all_pass"], found["mixed"]) == (3, 1, 1, 1)
    assert "gradient mass" in call("collapse", "report", rewards)
    call("collapse", "report", rewards, "--at-most", "0.5", code=1)
    curve = json.loads(call("collapse", "curve", rewards, "--json"))["curve"]
    assert curve[0]["mixed"] == pytest.approx(1 / 3)
    assert "extrapolated" in call("collapse", "curve", rewards)
    assert "0.500" in call("collapse", "curve", "--pass-rate", "0.5")
    sizes = json.loads(call("collapse", "size", "--pass-rate", "0.5", "--target", "0.9", "--json"))["sizes"]
    assert sizes == {"0.5": 5}
    assert "never" in call("collapse", "size", "--pass-rate", "0")


def test_refusals(rewards, tmp_path):
    for args in (("curve",), ("curve", rewards, "--pass-rate", "0.1"), ("report", tmp_path / "no.jsonl")):
        with pytest.raises(BadInput):
            call("collapse", *args)


def grow(out, *more, **kw):
    base = ["grow", "--world", "lock", "--policy", "scripted:lock", "--out", out, "--json"]
    return json.loads(call(*base, "--set", "tasks.count=2", "--set", "sampling.max_tokens=32", *more, **kw))


def test_a_tree_is_grown_from_the_command_line_and_resumes(tmp_path):
    args = (
        tmp_path / "t",
        "--selector",
        "uucb",
        "--budget-tokens",
        "256",
        "--set",
        "selector.entropy=unseen",
    )
    first = grow(*args)
    assert first["selector"].startswith("uucb(")
    assert 252 < first["tokens_per_task"] <= 256
    assert first["biased"]
    again = grow(*args)
    assert (again["tokens"], again["resumed"]) == (0, True)
    lines = (tmp_path / "t/choices.jsonl").read_text().splitlines()
    assert {"value", "exploration", "entropy"} <= set(json.loads(lines[-1])["choice"]["terms"])
    report = json.loads(call("collapse", "report", tmp_path / "t/tree.db", "--json"))
    assert report["groups"] == 2
    assert report["rollouts"] == first["rollouts"]


@pytest.mark.parametrize("kind", ["independent", "random", "surprisal"])
def test_every_selector_runs(tmp_path, kind):
    assert grow(tmp_path / kind, "--selector", kind, "--leaves", "5")["rollouts"] <= 10


def test_allocation_and_speculation_are_settings(tmp_path):
    grow(tmp_path / "a", "--selector", "uucb", "--leaves", "4", "--set", "selector.allocate=true")
    assert (tmp_path / "a/allocator.json").exists()
    grow(tmp_path / "s", "--selector", "uucb", "--leaves", "4", "--set", "selector.staleness=2")


def test_a_run_allocates_by_what_earlier_runs_came_to(tmp_path):
    typed = ("--selector", "uucb", "--leaves", "4", "--set")
    first = grow(tmp_path / "a", *typed, "selector.allocate=true")
    assert first["allocator"] == {"groups": 0, "learned": False, "moved": 0}
    # Groups enough of both kinds: a task that was always uniform, and one that was mixed in the end.
    ended = [dict.fromkeys(FEATURES, 0.5) | {"leaves": 2, "wins": 0} for _ in range(60)]
    rows = [{**row, "task": f"t{i % 2}", "uniform": i % 2 == 0} for i, row in enumerate(ended)]
    log = tmp_path / "log.json"
    log.write_text(json.dumps({"log": rows, "transfers": []}))
    second = grow(tmp_path / "b", *typed, f"selector.allocator={log}")
    assert (second["allocator"]["groups"], second["allocator"]["learned"]) == (60, True)
    held = json.loads((tmp_path / "b/allocator.json").read_text())
    assert len(held["log"]) == 60 + second["tasks"]
    # What it learned from is the run's own: whatever becomes of the file, the same leaves are drawn again.
    log.write_text("{}")
    again = grow(tmp_path / "b", *typed, f"selector.allocator={log}")
    assert (again["tokens"], again["rollouts"]) == (0, second["rollouts"])
    third = grow(tmp_path / "c", *typed, f"selector.allocator={tmp_path / 'b'}")
    assert third["allocator"]["groups"] == 60 + second["tasks"]
    for bad in (log, tmp_path / "nowhere"):
        with pytest.raises(BadInput, match="no allocator's log"):
            grow(tmp_path / "d", *typed, f"selector.allocator={bad}")
    log.write_text('{"log": [{"task": 1}], "transfers": []}')
    with pytest.raises(BadInput, match=r"0\.task"):
        grow(tmp_path / "d", *typed, f"selector.allocator={log}")
    assert not (tmp_path / "d/tree.db").exists()


@pytest.mark.parametrize(
    "more", [("--leaves", "4"), ("--selector", "uucb", "--leaves", "4", "--budget-tokens", "99"),
             ("--selector", "best"), ("--selector", "uucb", "--set", "selector.c=-1"),
             ("--selector", "uucb", "--set", "max_turns=3")],
)  # fmt: skip
def test_recipes_that_are_refused(tmp_path, more):
    with pytest.raises(BadInput):
        grow(tmp_path / "x", *more)
    assert not (tmp_path / "x/tree.db").exists()


def test_a_dry_run_says_what_a_tree_costs(tmp_path):
    plan = grow(tmp_path / "d", "--selector", "uucb", "--budget-tokens", "512", "--dry-run")
    assert plan["tokens at most"] == 1024
