"""A run is told of progress and draws; its record and its stages say so."""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from refork.errors import BadInput
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.runs.observe import current, observed
from refork.runs.record import new_record, records
from refork.runs.running import Run, error_kind
from refork.tree.tree import Tree


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    return tmp_path


def told(*steps):
    """A run that is told (time, stage, done, total, tokens)."""
    now = [0.0]
    run = Run(new_record("x", (), None), keep=False, clock=lambda: now[0])
    for moment, stage, done, total, tokens in steps:
        now[0] = moment
        run(stage, done, total, tokens=tokens)
    return run


def test_rate_and_what_is_left_are_of_this_session():
    """A resumed run begins at 40 of 100: the 40 were not done by it."""
    run = told((0, "s", 40, 100, 0), (10, "s", 60, 100, 500))
    assert (run.record.rate, run.record.eta) == (2.0, 20.0)
    assert (run.record.tokens, run.record.tokens_per_second) == (500, 50.0)


def test_a_stage_that_begins_again_counts_anew():
    run = told((0, "s", 0, 4, None), (1, "s", 4, 4, None), (2, "s", 0, 4, None), (4, "s", 2, 4, None))
    assert (run.record.rate, run.record.eta) == (1.0, 2.0)


def test_an_empty_stage_is_the_one_under_way():
    run = told((0, "s", 1, 4, None))
    run("", 0, 0, waiting="a server")
    assert (run.record.stage, run.record.done, run.record.waiting) == ("s", 1, "a server")


def test_errors_are_counted_by_kind():
    run = told((0, "s", 0, 1, None))
    draw = SimpleNamespace
    run.draws([
        draw(end="error", error="world: ValueError('x')", fork="f"),
        draw(end="error", error="the server said status 503", fork="f"),
        draw(end="error", error=None, fork="f"),
        draw(end="done", error=None, fork="f"),
    ])  # fmt: skip
    assert run.record.errors == {"world.ValueError": 1, "server.503": 1, "draw": 1}
    assert run.record.rollouts == 4
    assert error_kind("world: KeyError(3)") == "world.KeyError"


def test_what_is_stored_is_heard_of(tmp_path):
    policy = open_policy("scripted:coin")
    with observed("fork", ["fork"]) as run, Tree.open(tmp_path / "tree.db") as tree:
        fork(plant_prompt(tree, policy, "Toss."), policy, 5, settings=Sampling(max_tokens=3))
    (record,) = records()
    assert (record.rollouts, record.errors, record.state, record.status) == (5, {}, "done", 0)
    assert record.checkpoint == str(tmp_path / "tree.db")
    assert record.started <= record.saved <= record.ended
    assert run.recorder is None
    commit = Tree.commit
    assert not hasattr(commit, "__wrapped__")


def test_a_draw_that_is_stored_already_is_not_counted_again(tmp_path):
    policy = open_policy("scripted:coin")
    with Tree.open(tmp_path / "tree.db") as tree:
        arm = fork(plant_prompt(tree, policy, "Toss."), policy, 4, settings=Sampling(max_tokens=3)).record.id
        old = tree.draws(arm)
        new = [replace(old[0], draw=4 + n, end="error", error="world: KeyError(3)") for n in range(2)]
        with observed("fork", ["fork"]) as run:
            tree.finish_draws(old)
            assert (run.record.rollouts, run.record.errors) == (0, {})
            tree.finish_draws([*old, new[0]])
            tree.commit([], [new[0], new[1], new[1]])
            tree.finish_draws(new)
            assert (run.record.rollouts, run.record.errors) == (2, {"world.KeyError": 2})


@pytest.mark.parametrize(
    ("error", "state", "status", "said"),
    [
        (KeyboardInterrupt(), "interrupted", 130, None),
        (BadInput("no such thing", where="x"), "failed", 2, "BadInput: no such thing"),
        (ZeroDivisionError("by zero"), "failed", 1, "ZeroDivisionError: by zero"),
        (SystemExit(1), "done", 1, None),
        (SystemExit(130), "interrupted", 130, None),
        (SystemExit(3), "failed", 3, None),
        (SystemExit("why"), "failed", 1, "SystemExit: why"),
        (SystemExit(), "done", 0, None),
    ],
)
def test_how_it_ended(error, state, status, said):
    def broken():
        with observed("x"):
            raise error

    with pytest.raises(type(error)):
        broken()
    (record,) = records()
    assert (record.state, record.status, record.error) == (state, status, said)
    assert current() is None


def test_a_run_inside_a_run_is_part_of_it():
    with observed("outer") as outer, observed("inner") as inner:
        assert inner is outer is current()
    assert [r.command for r in records()] == ["outer"]


def test_a_home_that_cannot_be_written_stops_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "file"))
    with observed("x") as run:
        run("s", 1, 1)
    assert run.complaint.startswith("no record is kept")


def test_a_profile_is_written_where_it_is_asked_for(tmp_path):
    policy = open_policy("scripted:coin")
    with observed("fork", profile=tmp_path / "deep" / "p.json") as run, Tree.memory() as tree:
        fork(plant_prompt(tree, policy, "Toss."), policy, 5, settings=Sampling(max_tokens=3))
    trace = json.loads((tmp_path / "deep" / "p.json").read_text())
    assert {"sampling", "store", "refork fork"} <= {e["name"] for e in trace["traceEvents"]}
    assert run.record.profile == str(tmp_path / "deep" / "p.json")
    assert abs(sum(row.share for row in run.rows) - 1) < 1e-9


def test_workers_profiles_come_back(tmp_path):
    from refork.forking.backend import open_backend

    with open_backend("processes:1?unit=4") as backend, observed("fork", profile=True) as run:
        policy = backend.open("scripted:coin")
        with Tree.memory() as tree:
            start = plant_prompt(tree, policy, "Toss.")
            fork(start, policy, 8, settings=Sampling(max_tokens=3), backend=backend)
    assert "sampling" in {row.name for row in run.worker_rows}
    assert "waiting: workers" in {row.name for row in run.rows}


def test_the_newest_checkpoint_is_on_record(home, monkeypatch):
    monkeypatch.chdir(home)
    for name in ("00000001", "00000002", ".part-x"):
        (home / "runs/a/checkpoints" / name).mkdir(parents=True)
    os.utime(home / "runs/a/checkpoints/00000001", (1, 1))
    with observed("train sft", out="runs/a"):
        pass
    assert records()[0].checkpoint.endswith("runs/a/checkpoints/00000002")
