"""A run is told of progress and draws; its record, its stages and its log say so."""

import json
import logging
import os
import warnings
from types import SimpleNamespace

import pytest

from refork.errors import BadInput
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.policies.open import open_policy
from refork.runs.logs import JsonLog, log, parse_log, start_log, stop_log
from refork.runs.observe import current, observed
from refork.runs.record import new_record, records
from refork.runs.running import Run, error_kind
from refork.tree.tree import Tree


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    yield tmp_path
    stop_log()


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


# Logs


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def captured_elsewhere():
    """Warnings as a library leaves them that captured them under another's filters."""
    with warnings.catch_warnings():
        logging.captureWarnings(True)
    yield
    logging.captureWarnings(False)


@pytest.mark.parametrize("before", ["nothing", "captured"])
def test_a_run_in_a_log(home, before, request):
    if before == "captured":
        request.getfixturevalue("captured_elsewhere")
    shown = warnings.showwarning
    path = home / "a" / "log.jsonl"
    start_log(f"json:{path}")
    with observed("grow", ["grow", "x"], out="runs/a"):
        logging.getLogger("some.library").warning("look: %s", "here")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old", DeprecationWarning, stacklevel=1)
    stop_log()
    assert warnings.showwarning is shown
    logging.getLogger("some.library").warning("not here")
    found = lines(path)
    assert [line["event"] for line in found] == ["run.start", "log", "log", "run.end"]
    assert all(line["run"] == records()[0].id and line["command"] == "grow" for line in found)
    assert all({"time", "level", "event"} <= set(line) for line in found)
    assert (found[0]["arguments"], found[0]["out"]) == (["grow", "x"], "runs/a")
    assert (found[1]["message"], found[1]["logger"], found[1]["level"]) == (
        "look: here", "some.library", "warning",
    )  # fmt: skip
    assert "DeprecationWarning: old" in found[2]["message"]
    assert (found[3]["state"], found[3]["status"]) == ("done", 0)
    assert "waiting" not in found[3]


def test_what_may_be_asked_of_a_log(monkeypatch, tmp_path):
    assert parse_log("json") == ("json", None)
    assert parse_log("json:a:b")[1].name == "a:b"
    for wrong in ("xml", "json:", "text:x", ""):
        with pytest.raises(BadInput):
            parse_log(wrong)
    monkeypatch.setenv("REFORK_LOG", "json")
    assert start_log(None).on_screen
    assert start_log("text") is None
    assert log() is None
    with pytest.raises(BadInput, match="no log can be written"):
        start_log(f"json:{tmp_path}")


def test_a_log_whose_reader_is_gone_stops_nobody():
    asked = []

    class Gone:
        def write(self, text):
            asked.append(text)
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    told = JsonLog(stream=Gone())
    told.tell("x")
    told.tell("y")
    assert len(asked) == 2


def test_what_is_no_json_is_told_as_text(capsys):
    JsonLog().tell("x", thing=object)
    assert "object" in json.loads(capsys.readouterr().err)["thing"]


def test_the_newest_checkpoint_is_on_record(home, monkeypatch):
    monkeypatch.chdir(home)
    for name in ("00000001", "00000002", ".part-x"):
        (home / "runs/a/checkpoints" / name).mkdir(parents=True)
    os.utime(home / "runs/a/checkpoints/00000001", (1, 1))
    with observed("train sft", out="runs/a"):
        pass
    assert records()[0].checkpoint.endswith("runs/a/checkpoints/00000002")


def test_with_a_log_in_a_file_warnings_are_still_shown(home, capsys):
    start_log(f"json:{home / 'log.jsonl'}")
    logging.getLogger("some.library").warning("look here")
    stop_log()
    assert capsys.readouterr().err == "look here\n"
    assert lines(home / "log.jsonl")[0]["message"] == "look here"
