"""Verbs that take long: all of them are listed, and all have the same options."""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import socket
import time
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from refork import cli
from refork.cli import watching
from refork.cli.run_tables import status_picture
from refork.cli.tree import app as commands_of_trees
from refork.registry import own
from refork.runs.record import new_record, records, write_record
from refork.runs.workers import together
from support.command import refork

FOLDER = Path(cli.__file__).parent
WORLD = ["--world", "maze:2,2,2", "--policy", "scripted:walker"]
WALK = ["grow", *WORLD, "--draws", "3", "--set", "tasks.count=1"]
#: They show progress while they open what they serve, and then live on.
SERVERS = {"serve", "view", "simulate serve"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def verbs():
    """Every verb's function, by its full name."""
    return dict(callbacks())


def callbacks():
    for noun, one in own("commands").items():
        holder = typer.Typer()
        thing = one.load()
        holder.add_typer(thing, name=noun) if isinstance(thing, typer.Typer) else holder.command(noun)(thing)
        watching.watch_verbs(holder)
        found = holder.registered_groups[0].typer_instance if holder.registered_groups else holder
        before = [info.callback for info in found.registered_commands]
        watching.watch_verbs(holder)
        assert [info.callback for info in found.registered_commands] == before  # watched once
        for info in found.registered_commands:
            verb = info.name or info.callback.__name__.replace("_", "-")
            yield verb if found is holder else f"{noun} {verb}", info.callback


@functools.cache
def shows_progress(file):
    """Functions of a file that open a live line, or call one that does."""
    functions = {
        n.name: n for n in ast.walk(ast.parse(Path(file).read_text())) if isinstance(n, ast.FunctionDef)
    }
    uses = {name: {n.id for n in ast.walk(f) if isinstance(n, ast.Name)} for name, f in functions.items()}
    found = {name for name in uses if "LiveProgress" in uses[name]}
    while more := {name for name in uses if uses[name] & found} - found:
        found |= more
    return found


def test_every_verb_that_shows_progress_is_listed(verbs):
    long = {name for name, verb in verbs.items() if hasattr(verb, "watched_as")}
    shown = set()
    for name, verb in verbs.items():
        inner = inspect.unwrap(verb)
        if inner.__name__ in shows_progress(inner.__code__.co_filename):
            shown.add(name)
    assert shown - SERVERS == long
    listed = {f"{noun} {verb}".strip() for noun, verbs in watching.LONG.items() for verb in verbs}
    assert listed == long
    assert listed >= watching.TRACKED


def test_a_verb_leaves_a_record_and_its_output_as_it_was(home):
    done = refork(*WALK, "--out", "a", "--json")
    assert json.loads(done.stdout)["rollouts"] == 3
    (record,) = records()
    assert (record.command, record.out, record.state, record.rollouts) == ("grow", "a", "done", 3)
    assert (record.stage, record.done, record.total) == ("rollouts", 3, 3)


def test_a_dry_run_leaves_none():
    refork(*WALK, "--out", "a", "--dry-run", "--json")
    assert records() == []


def test_a_failure_is_on_record():
    refork("grow", "--world", "nowhere", "--policy", "scripted:coin", "--out", "a", status=2)
    (record,) = records()
    assert (record.state, record.status) == ("failed", 2)
    assert "there is no world 'nowhere'" in record.error


def test_a_profile_is_said_and_written():
    done = refork(*WALK, "--out", "a", "--json", "--profile")
    json.loads(done.stdout)
    assert "where the time went" in done.stderr
    assert "sampling" in done.stderr
    (record,) = records()
    trace = json.loads(Path(record.profile).read_text())
    assert {"sampling", "world", "store"} <= {event["name"] for event in trace["traceEvents"]}


def test_a_tracker_needs_a_name_that_it_knows():
    assert "'excel' names no tracker" in refork(*WALK, "--out", "a", "--track", "excel", status=2).stderr
    (record,) = records()
    assert record.state == "failed"


def test_a_tracker_is_told_of_a_run(home):
    pytest.importorskip("tensorboard")
    refork(*WALK, "--out", "a", "--track", "tensorboard:curves")
    assert list((home / "curves").iterdir())


def test_a_password_in_an_address_is_not_written_down():
    refork("grow", "--world", "lock", "--policy", "opensesame:http://me:pw@host/v1#m", "--out", "a", status=2)
    (record,) = records()
    assert record.arguments[4] == "opensesame:http://***@host/v1#m"


# refork run


def made(**values):
    record = new_record("grow", ["grow", "--out", "a"], "a")
    for name, value in values.items():
        setattr(record, name, value)
    write_record(record)
    return record


def test_nothing_on_record():
    assert "no run of the last day" in refork("run", "list").stdout
    assert json.loads(refork("run", "list", "--json").stdout) == []
    assert "no run is on record" in refork("run", "status", status=2).stderr
    assert refork("run", "path").stdout.strip().endswith("runs")


def test_runs_are_listed_with_what_became_of_them(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    alive = made(stage="rollouts", done=3, total=12, rate=1.0, eta=9.0)
    dead = made(pid=2**22 + 1, errors={"draw": 2})
    old = made(state="done", updated=0.0, ended=0.0, started=0.0)
    text = refork("run", "list").stdout
    rows = {line.split()[0]: line for line in text.splitlines()[1:]}
    assert set(rows) == {alive.id, dead.id}
    assert "running" in rows[alive.id]
    assert "3/12" in rows[alive.id]
    assert "9 s" in rows[alive.id]
    assert "killed" in rows[dead.id]
    listed = json.loads(refork("run", "list", "--all", "--json").stdout)
    assert {one["id"]: one["state"] for one in listed} == {
        alive.id: "running", dead.id: "killed", old.id: "done",
    }  # fmt: skip


def test_status_says_what_is_known_and_exits_1_where_it_ended_badly():
    alive = made(stage="rollouts", done=3, total=12, rate=1.5, eta=6.0, tokens=40, waiting="a server",
                 errors={"world.ValueError": 2}, rollouts=3, saved=1.0, checkpoint="a/tree.db")  # fmt: skip
    text = refork("run", "status", alive.id).stdout
    for part in ("running", "refork grow --out a", "rollouts: 3/12, 1.5 per second, 6 s left", "a server",
                 "2 world.ValueError", "in a/tree.db"):  # fmt: skip
        assert part in text
    dead = made(pid=2**22 + 1, started=alive.started + 1)
    assert json.loads(refork("run", "status", "--json", status=1).stdout)["state"] == "killed"
    assert "last sign" in refork("run", "status", dead.id, status=1).stdout
    assert refork("run", "path", dead.id).stdout.strip().endswith(f"{dead.id}.json")


def test_following_ends_with_the_run():
    ended = made(state="done", ended=2.0, status=0, stage="rollouts", done=4, total=4)
    assert refork("run", "status", ended.id, "--follow").stdout == "done, rollouts, 4/4\n"
    (line,) = refork("run", "status", ended.id, "--follow", "--json").stdout.splitlines()
    assert json.loads(line)["state"] == "done"


def crew():
    return {
        "pid": 4711, "host": "", "task": "rollouts 07405694 draws 0-15", "stage": None, "done": 2,
        "total": 16, "since": 0.0, "sign": 0.0, "tasks": 1, "finished": 16, "tokens": 90, "errors": 3,
        "why": None,
        "unit": "draws",
    }  # fmt: skip


def with_workers(**values):
    """A run of four workers: at work, silent on another machine, lost, and beginning."""
    now = time.time()
    base = crew() | {"since": now - 70, "sign": now - 3, "host": socket.gethostname()}
    workers = [
        base | {"worker": 0, "state": "working"},
        base | {"worker": 1, "state": "silent", "pid": 12, "host": "far", "done": 1000, "total": 2000},
        base | {"worker": 2, "state": "lost", "pid": 4713, "why": "it was ended by SIGKILL"},
        base | {"worker": 3, "state": "starting", "pid": None, "task": None, "done": 0, "total": 0},
    ]
    return made(workers=workers, workers_together=together(workers), **values)


def test_status_shows_workers_in_eighty_columns_without_cutting_a_word(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = refork("run", "status", with_workers().id).stdout
    table = text.partition("\n\n")[2]
    assert all(len(line) <= 80 for line in table.splitlines())
    assert "…" not in table
    lines = [" ".join(line.split()) for line in table.splitlines()]
    assert lines[0] == "process state doing done for heard all errors"
    assert lines[1].startswith("12@far silent rollouts 07405694")
    assert "1,000/2,000" in lines[1]
    assert next(line for line in lines if line.startswith("4711 working")).endswith("2/16 1 min 3 s 16 3")
    assert next(line for line in lines if line.startswith("3 starting")).endswith("1 min 3 s 16 3")
    assert {"SIGKILL;", "lost"} <= set(table.split())
    assert any(line.startswith("all") and line.endswith("64 12") for line in lines)
    assert "1 silent, 1 working," in table


def test_status_as_json_has_workers_and_their_sums():
    told = json.loads(refork("run", "status", with_workers().id, "--json").stdout)
    assert [one["state"] for one in told["workers"]] == ["working", "silent", "lost", "starting"]
    assert told["workers_together"]["finished"] == 64
    dead = with_workers(pid=2**22 + 1)
    told = json.loads(refork("run", "status", dead.id, "--json", status=1).stdout)
    assert [one["state"] for one in told["workers"]] == ["gone", "gone", "lost", "gone"]
    assert (told["workers_together"]["gone"], told["workers_together"]["lost"]) == (3, 1)


def test_of_many_workers_the_first_are_listed_and_all_counted():
    base = crew() | {"state": "working", "host": "far"}
    workers = [base | {"worker": n} for n in range(100)]
    run = made(workers=workers, workers_together=together(workers))
    text = refork("run", "status", run.id).stdout
    assert "and 76 more" in text
    assert "100 working" in text
    assert text.count("4711@far") == 24


def test_following_shows_every_change_of_a_worker(monkeypatch):
    run = with_workers()
    steps = iter([{"done": 3}, {"state": "lost", "why": "killed"}])

    def sleep(seconds):
        if (step := next(steps, None)) is None:
            run.state, run.ended, run.status = "done", 2.0, 0
        else:
            run.workers[0] |= step
        write_record(run)

    monkeypatch.setattr("refork.cli.run.time.sleep", sleep)
    lines = refork("run", "status", run.id, "--follow", "--json").stdout.splitlines()
    first = [json.loads(line)["workers"][0] for line in lines]
    assert [(one["state"], one["done"]) for one in first] == [
        ("working", 2), ("working", 3), ("lost", 3), ("lost", 3),
    ]  # fmt: skip


def test_the_picture_that_is_drawn_again_has_the_workers():
    console = Console(width=80, record=True, file=io.StringIO())
    record = with_workers()
    console.print(status_picture(record, time.time()))
    text = console.export_text()
    assert text.startswith(f"run        {record.id}")
    assert "12@far" in text


def test_what_stands_before_one_command_is_forgotten_by_the_next(home):
    """In one process, as tests and notebooks run commands: the next may be run without the root's options."""
    words = ["--track", "tensorboard", "tree", "show", "none.db"]
    assert "draws no curves" in refork(*words, status=2).stderr
    after = CliRunner().invoke(commands_of_trees, ["show", "none.db"])
    assert "none.db" in str(after.exception)
    assert "draws no curves" not in str(after.exception)
