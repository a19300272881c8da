"""Records tell what runs do and how they ended, whoever wrote them and however the writer died."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from refork.errors import BadInput
from refork.runs import record as module
from refork.runs.record import (
    GONE,
    find_record,
    new_record,
    prune,
    read_record,
    records,
    runs_folder,
    trace_file,
    write_record,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    return tmp_path


def made(command="grow", out=None, **values):
    record = new_record(command, ["grow", "--x"], out)
    for name, value in values.items():
        setattr(record, name, value)
    write_record(record)
    return record


def test_what_is_written_is_read():
    record = made(out="runs/a", stage="rollouts", done=3, total=8, errors={"draw": 2}, rate=1.5)
    assert read_record(module.file_of(record)) == record
    data = json.loads(module.file_of(record).read_text())
    assert data["format"] == 1
    assert data["started_at"].endswith("+00:00")
    assert module.file_of(record).stat().st_mode & 0o077 == 0
    assert [p.name for p in runs_folder().iterdir()] == [f"{record.id}.json"]


def test_what_is_no_record_is_skipped():
    runs_folder().mkdir(parents=True)
    for name, text in (("a", ""), ("b", "[]"), ("c", '{"format": 9}'), ("d", '{"format": 1}'), ("e", '{"x')):
        (runs_folder() / f"{name}.json").write_text(text)
    assert records() == []
    with pytest.raises(BadInput, match="no run"):
        find_record(None)


def test_keys_of_a_later_release_are_left_alone():
    record = made()
    file = module.file_of(record)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"colour": "red"}))
    assert read_record(file) == record


def test_a_process_that_is_gone_is_killed_at_once():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = made(pid=child.pid, birth=module._birth(child.pid))
    assert record.state_at(time.time()) == "running"
    child.kill()
    deadline = time.monotonic() + 900
    while record.state_at(time.time()) == "running" and time.monotonic() < deadline:
        time.sleep(0.01)  # a zombie counts as gone, too
    assert record.state_at(time.time()) == "killed"
    child.communicate()
    assert record.state_at(time.time()) == "killed"


def test_another_process_of_the_same_number_is_not_the_run():
    assert made(birth="1").state_at(time.time()) == "killed"
    assert made().state_at(time.time()) == "running"


def test_where_the_process_cannot_be_seen_its_signs_count():
    now = time.time()
    far = made(machine="elsewhere", updated=now - GONE + 1)
    assert far.state_at(now) == "running"
    assert far.state_at(now + 2) == "killed"
    here = made(updated=now - GONE - 1)
    assert here.state_at(now) == "silent"


def test_what_ended_stays_as_it_ended():
    for state in ("done", "failed", "interrupted"):
        assert made(state=state, pid=1, birth="0").state_at(time.time()) == state


def test_runs_are_found_by_id_beginning_number_and_folder(home, monkeypatch):
    monkeypatch.chdir(home)
    first = made(out="runs/a", started=1.0)
    second = made(out="runs/b", started=2.0, pid=99999999)
    assert find_record(None) == second
    assert find_record(first.id) == first
    assert find_record("99999999") == second
    assert find_record("runs/a") == first
    assert find_record(str(home / "runs/b")) == second
    assert find_record(first.id[:-1]) == first
    with pytest.raises(BadInput, match="2 runs begin"):
        find_record(first.id[:4])
    with pytest.raises(BadInput, match="no run is called"):
        find_record("nothing")


def test_the_oldest_and_the_old_are_removed_and_what_runs_never():
    now = time.time()
    running = made(started=0.0)
    ended = [made(state="done", started=float(n), updated=now, ended=now) for n in range(1, 6)]
    trace_file(ended[0]).parent.mkdir()
    trace_file(ended[0]).write_text("{}")
    assert prune(now, keep=3) == 2
    assert records() == [running, *ended[2:]]
    assert not trace_file(ended[0]).exists()
    old = made(state="done", started=9.0, updated=now - 40 * 86400, ended=now - 40 * 86400)
    assert prune(now) == 1
    assert old not in records()
    part = runs_folder() / "x.1.part"
    part.write_text("")
    os.utime(part, (0, 0))
    prune(now)
    assert not part.exists()


WORKER = """
import sys, time
from refork.runs.observe import observed
with observed("grow", ["grow"], out=sys.argv[1]) as run:
    run("rollouts", 2, 10, tokens=5)
    print("up", flush=True)
    time.sleep(60)
"""


def test_four_processes_write_at_once_and_one_is_killed():
    runs = [
        subprocess.Popen([sys.executable, "-c", WORKER, f"out{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for one in runs:
        assert one.stdout.readline() == "up\n"
    assert sorted(r.out for r in records()) == [f"out{n}" for n in range(4)]
    assert {r.state_at(time.time()) for r in records()} == {"running"}
    runs[0].send_signal(signal.SIGKILL)
    runs[1].send_signal(signal.SIGINT)
    for one in runs[2:]:
        one.terminate()
    for one in runs:
        one.wait()
        one.stdout.close()
    states = {r.out: r.state_at(time.time()) for r in records()}
    assert (states["out0"], states["out1"]) == ("killed", "interrupted")
    assert {states[f"out{n}"] for n in range(2, 4)} == {"killed"}  # nobody catches SIGTERM
