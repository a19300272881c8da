from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo, InternalError, ReplayDiverged
from refork.forking.backend.pool import Died, Starts, UnitAnswer
from refork.forking.backend.schedule import LIVES, Lost, Schedule
from refork.forking.backend.unit import Unit
from refork.runs.workers import Roster, Sign, together


class Fake:
    """A pool whose answers come in an order, and whose workers die, as it is told."""

    def __init__(self, size, order=None, deadly=lambda draws, attempt: False, answer=None):
        self.size, self._order, self._deadly = size, order or (lambda n: 0), deadly
        self._answer = answer or (lambda draws: {"tokens": len(draws)})
        self._workers = list(range(size))
        self._next = size
        self._given = {}
        self.attempts = {}
        self.done = []

    def start(self):
        pass

    def idle(self):
        return [w for w in self._workers if w not in self._given]

    def alive(self):
        return {w: 1000 + w for w in self._workers}

    def signs(self):
        return {w: Sign(float(w), 1000 + w, "here") for w in self._workers}

    def give(self, worker, text):
        assert worker not in self._given
        self._given[worker] = json.loads(text)

    def wait(self, seconds):
        if not self._given:
            return []
        worker = list(self._given)[self._order(len(self._given))]
        draws = tuple(draw for draw, _ in self._given.pop(worker)["draws"])
        self.attempts[draws] = attempt = self.attempts.get(draws, 0) + 1
        if self._deadly(draws, attempt):
            self._workers.remove(worker)
            self._workers.append(self._next)
            self._next += 1
            return [Died(worker, "killed")]
        empty = {"drafts": [], "draws": [], "scores": [], "producers": [], "tokens": 0, "ties": 0}
        self.done.append(draws)
        return [UnitAnswer(worker, json.dumps(empty | self._answer(draws)))]

    def close(self):
        pass


def units(count, size=4):
    return [
        Unit(0, '{"x": 1}', tuple((n, "") for n in range(size * i, size * i + size))) for i in range(count)
    ]


def run(pool, work, stopping=lambda: False):
    schedule = Schedule(pool, work)
    found = list(schedule.results(stopping, lambda: None))
    return schedule, [tuple(d for d, _ in unit.draws) for unit, _ in found], [answer for _, answer in found]


@given(
    count=st.integers(0, 12),
    size=st.integers(1, 4),
    order=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    deaths=st.dictionaries(st.integers(0, 11), st.integers(1, LIVES - 1)),
)
def test_whoever_dies_and_whatever_comes_first_each_unit_is_given_out_once_in_order(
    count, size, order, deaths
):
    turns = iter(order * 200)
    pool = Fake(
        size,
        order=lambda n: next(turns) % n,
        deadly=lambda draws, attempt: attempt <= deaths.get(draws[0] // 4, 0),
    )
    work = units(count)
    schedule, got, answers = run(pool, work)
    assert got == [tuple(d for d, _ in unit.draws) for unit in work]
    assert not any(isinstance(answer, Lost) for answer in answers)
    assert len(pool.done) == len(set(pool.done)) == count
    assert schedule.retried == sum(n for unit, n in deaths.items() if unit < count)


def test_a_unit_that_kills_three_workers_is_taken_apart_and_only_the_draw_that_kills_is_given_up():
    pool = Fake(2, deadly=lambda draws, attempt: 6 in draws)
    _, got, answers = run(pool, units(3))
    assert got == [(0, 1, 2, 3), (4,), (5,), (6,), (7,), (8, 9, 10, 11)]
    assert [isinstance(answer, Lost) for answer in answers] == [False, False, False, True, False, False]
    assert pool.attempts[4, 5, 6, 7] == LIVES
    assert pool.attempts[6,] == LIVES - 1
    assert answers[3] == Lost("3 workers died of this draw: killed")


def test_nothing_begins_after_a_stop_and_what_is_under_way_is_finished():
    stop = []
    # What was begun is begun again where its worker dies while the others finish.
    pool = Fake(2, order=lambda n: n - 1, deadly=lambda draws, attempt: draws[0] == 0 and attempt == 1)
    schedule = Schedule(pool, units(9))
    got = []
    for unit, _ in schedule.results(lambda: bool(stop), lambda: None):
        got.append(unit.draws[0][0])
        if len(got) == 3:
            stop.append(True)
    assert got == [4 * n for n in range(len(got))]
    assert 3 <= len(got) < 9
    assert len(pool.done) == len(got)


def test_a_refusal_is_raised_as_the_error_it_was_after_what_stands_before_it():
    refused = {"kind": "ReplayDiverged", "what": "the world differs", "where": "node 3", "hint": None}
    pool = Fake(3, order=lambda n: n - 1, answer=lambda d: {"refused": refused} if d[0] == 8 else {})
    results = Schedule(pool, units(9)).results(lambda: False, lambda: None)
    assert [next(results)[0].draws[0][0] for _ in range(2)] == [0, 4]
    with pytest.raises(ReplayDiverged, match="the world differs"):
        next(results)
    assert not pool._given


def test_errors_whose_own_arguments_differ_come_back_as_their_parent():
    refused = {"kind": "MissingExtra", "what": "ray is not installed", "where": None, "hint": "pip install x"}
    with pytest.raises(CannotDo, match="pip install x"):
        run(Fake(1, answer=lambda d: {"refused": refused}), units(1))


def test_a_unit_that_breaks_our_code_is_a_bug_with_its_traceback():
    with pytest.raises(InternalError, match="line 3"):
        run(Fake(1, answer=lambda d: {"broken": "Traceback: line 3"}), units(1))


def test_the_roster_knows_who_did_what_and_who_was_lost():
    failed = {"fork": "f", "draw": 5, "leaf": None, "end": "error", "error": "no"}
    pool = Fake(
        2,
        order=lambda n: n - 1,
        deadly=lambda draws, attempt: draws[0] == 4 and attempt == 1,
        answer=lambda draws: {"tokens": 10, "draws": [failed] if draws[0] == 4 else []},
    )
    roster = Roster(clock=lambda: 7.0)
    list(Schedule(pool, units(3), roster=roster, title=lambda u: f"unit {u.draws[0][0]}").results(
        lambda: False, lambda: None))  # fmt: skip
    lost = next(one for one in roster.to_json() if one["state"] == "lost")
    assert (lost["worker"], lost["pid"], lost["host"], lost["why"]) == (1, 1001, "here", "killed")
    assert (lost["task"], lost["done"], lost["total"], lost["since"]) == ("unit 4", 0, 4, 7.0)
    assert together(roster.to_json()) == {
        "workers": 3, "idle": 2, "lost": 1, "tasks": 3, "finished": 12, "tokens": 30, "errors": 1,
    }  # fmt: skip


def test_what_is_waited_for_is_said_in_words():
    schedule = Schedule(Fake(2), units(5))
    told = []
    for _ in schedule.results(lambda: False, lambda: told.append(schedule.waiting)):
        pass
    assert "1 unit on 2 of 2 workers" in told
    assert Schedule(Fake(0), []).waiting == "workers to begin"


def test_workers_that_cannot_begin_are_not_begun_for_ever():
    starts = Starts()
    for _ in range(5):
        starts.died("no module")
    starts.began()
    for _ in range(5):
        starts.died("no module")
    with pytest.raises(CannotDo, match=r"6 workers in a row .* no module"):
        starts.died("no module")


def test_bad_input_is_bad_input():
    refused = {"kind": "BadInput", "what": "no", "where": None, "hint": None}
    with pytest.raises(BadInput):
        run(Fake(2, answer=lambda d: {"refused": refused}), units(2))
