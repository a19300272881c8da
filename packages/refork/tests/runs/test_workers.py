"""What a run says of its workers: states, counts, signs of life, and what becomes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from refork.runs.observe import observed
from refork.runs.record import GONE, new_record, read_record, records, write_record
from refork.runs.workers import Roster, Sign, seen_json, together


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def roster(clock=None):
    made = Roster(clock=clock or Clock())
    made.look({0: Sign(90.0), 1: Sign(95.0, 11, "a"), 2: Sign(99.0, 12, "b")})
    return made


def by_number(made):
    return {one["worker"]: one for one in made.to_json()}


def test_a_worker_begins_waits_works_and_gives():
    clock = Clock()
    made = roster(clock)
    assert [one["state"] for one in made.to_json()] == ["starting", "idle", "idle"]
    made.takes(1, "draws 0-3", 4)
    clock.now = 104.0
    made.look({1: Sign(103.0, 11, "a", 3, "sampling")})
    at_work = by_number(made)[1]
    assert {name: at_work[name] for name in ("state", "task", "stage", "done", "total", "since", "sign")} == {
        "state": "working", "task": "draws 0-3", "stage": "sampling", "done": 3, "total": 4, "since": 100.0,
        "sign": 103.0,
    }  # fmt: skip
    made.gives(1, 4, tokens=40, errors=1)
    rests = by_number(made)[1]
    assert (rests["state"], rests["task"], rests["done"], rests["since"]) == ("idle", None, 0, 104.0)
    assert (rests["tasks"], rests["finished"], rests["tokens"], rests["errors"]) == (1, 4, 40, 1)


def test_a_sign_that_tells_nothing_of_the_task_leaves_its_count_and_none_counts_beyond_it():
    made = roster()
    made.takes(1, "x", 4)
    made.look({1: Sign(101.0, 11, "a", 2)})
    made.look({1: Sign(102.0, 11, "a", None)})
    assert by_number(made)[1]["done"] == 2
    made.look({1: Sign(101.5, 11, "a", 9)})
    assert by_number(made)[1]["done"] == 4
    assert by_number(made)[1]["sign"] == 102.0


def test_silence_counts_only_while_somebody_listens():
    clock = Clock()
    made = roster(clock)
    made.takes(1, "x", 4)
    clock.now = 1000.0
    assert by_number(made)[1]["state"] == "working"
    clock.now = 95.0 + GONE + 0.1
    made.look({1: Sign(95.0, 11, "a")})
    assert by_number(made)[1]["state"] == "silent"
    made.look({1: Sign(clock.now, 11, "a")})
    assert by_number(made)[1]["state"] == "working"


def test_a_lost_worker_keeps_what_it_was_at_and_the_others_end():
    made = roster()
    made.takes(1, "draws 0-3", 4)
    made.lost(1, "killed")
    made.look({2: Sign(99.0, 12, "b")})
    made.end()
    known = by_number(made)
    assert (known[1]["state"], known[1]["why"], known[1]["task"]) == ("lost", "killed", "draws 0-3")
    assert (known[2]["state"], known[2]["task"]) == ("ended", None)


@given(st.lists(st.sampled_from(["give", "lose"]), max_size=150))
def test_nothing_that_was_done_is_forgotten(ends):
    made = Roster()
    for number, end in enumerate(ends):
        made.takes(number, "x", 3)
        made.gives(number, 3, tokens=5, errors=1)
        if end == "lose":
            made.lost(number, "killed")
    sums = together(made.to_json(), made.forgotten())
    lost = ends.count("lose")
    assert (sums["workers"], sums["finished"], sums["tokens"]) == (len(ends), 3 * len(ends), 5 * len(ends))
    assert (sums["errors"], sums.get("lost", 0)) == (len(ends), lost)
    assert len([one for one in made.to_json() if one["state"] == "lost"]) == min(lost, 50)


def test_the_record_of_a_run_shows_workers_and_their_sums(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    with observed("grow") as run:
        made = roster()
        made.open()
        made.open()  # it is shown once
        made.takes(1, "x", 4)
        run._write()
        (record,) = records()
        assert [one["state"] for one in record.workers] == ["starting", "working", "idle"]
        assert record.workers_together == {
            "workers": 3, "starting": 1, "working": 1, "idle": 1, "tasks": 0, "finished": 0, "tokens": 0,
            "errors": 0,
        }  # fmt: skip
    with observed("grow"):
        pass
    assert records()[-1].workers_together is None


def test_without_a_run_on_record_a_roster_only_keeps(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    made = roster()
    made.open()
    assert len(made.to_json()) == 3
    assert records() == []


def test_workers_of_a_killed_run_are_gone_with_it(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    made = roster()
    for number in range(3, 60):  # more than are listed
        made.takes(number, "x", 1)
        made.lost(number, "killed")
    record = new_record("grow", [], None)
    record.pid, record.workers = 2**22 + 1, made.to_json()
    record.workers_together = together(record.workers, made.forgotten())
    write_record(record)
    (known,) = records()
    seen = seen_json(known, known.updated)
    assert seen["state"] == "killed"
    assert {one["state"] for one in seen["workers"]} == {"gone", "lost"}
    assert seen["workers_together"] == {
        "workers": 60, "tasks": 0, "finished": 0, "tokens": 0, "errors": 0, "gone": 3, "lost": 57,
    }  # fmt: skip


def test_records_of_before_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("REFORK_HOME", str(tmp_path))
    record = new_record("grow", [], None)
    write_record(record)
    (file,) = (tmp_path / "runs").glob("*.json")
    file.write_text(file.read_text().replace('"workers": [], "workers_together": null, ', ""))
    assert "workers" not in file.read_text()
    assert read_record(file).workers == []
