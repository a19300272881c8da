"""Tests of state: what must have changed, and nothing else."""

from __future__ import annotations

import copy

import pytest

from refork.errors import BadInput
from refork_testbed.worlds.miniapps.grading import differences, goal_completion, grade, same_answer
from refork_testbed.worlds.miniapps.scenarios import SETS, scenario
from refork_testbed.worlds.miniapps.store import Store
from refork_testbed.worlds.miniapps.templates import Change, delete, insert, update

BEFORE = {
    "notes": [{"id": 1, "title": "A", "text": "x"}, {"id": 2, "title": "B", "text": "y"}],
    "playlists": [{"id": 1, "name": "P"}],
}


def changed(**tables):
    return copy.deepcopy(BEFORE) | tables


def test_differences_name_inserts_updates_and_deletes():
    after = changed(notes=[{"id": 2, "title": "B", "text": "z"}, {"id": 7, "title": "C", "text": "w"}])
    assert differences(BEFORE, after) == [
        Change("notes", "delete", 1),
        Change("notes", "update", 2, {"text": "z"}),
        Change("notes", "insert", None, {"title": "C", "text": "w"}),
    ]
    assert differences(BEFORE, BEFORE) == []


WANTED = [
    update("notes", BEFORE["notes"][0], text="new"),
    insert("playlists", name="Q"),
    delete("notes", {"id": 2}),
]
DONE = {
    "notes": [{"id": 1, "title": "A", "text": "new"}],
    "playlists": [{"id": 1, "name": "P"}, {"id": 5, "name": "Q"}],
}


def test_all_that_is_wanted_and_nothing_else_succeeds_whatever_the_new_id():
    report = grade(BEFORE, DONE, WANTED)
    assert report.success
    assert len(report.tests) == 4
    assert report.collateral == ()


@pytest.mark.parametrize("missing", range(3))
def test_one_missing_change_fails_only_its_own_test(missing):
    report = grade(BEFORE, DONE, WANTED)
    undone = copy.deepcopy(DONE)
    if missing == 0:
        undone["notes"][0]["text"] = "x"
    elif missing == 1:
        undone["playlists"].pop()
    else:
        undone["notes"].append(BEFORE["notes"][1])
    worse = grade(BEFORE, undone, WANTED)
    assert not worse.success
    assert worse.collateral == ()
    assert [test.passed for test in worse.tests] == [i != missing for i in range(3)] + [True]
    assert [test.requirement for test in worse.tests] == [test.requirement for test in report.tests]


@pytest.mark.parametrize(
    "extra",
    [
        {"playlists": [*DONE["playlists"], {"id": 6, "name": "Q"}]},  # done twice
        {"playlists": [*DONE["playlists"], {"id": 6, "name": "R"}]},
        {"playlists": [{"id": 5, "name": "Q"}]},
        {"notes": [{"id": 1, "title": "A2", "text": "new"}]},  # the right column and another one
        {"songs": [{"id": 1, "title": "T"}]},
    ],
)
def test_collateral_damage_fails(extra):
    report = grade(BEFORE, DONE | extra, WANTED)
    assert not report.success
    assert report.collateral
    assert not report.tests[-1].passed


def test_answers_are_compared_as_numbers_where_they_are():
    assert same_answer("$34.00 ", "34")
    assert same_answer(34, "34")
    assert same_answer(" 09:30", "09:30")
    assert not same_answer("9:30", "09:30")
    assert not same_answer("", "34")
    asked = grade(BEFORE, BEFORE, [], expected="34", answer=None)
    assert [test.passed for test in asked.tests] == [True, False]
    assert grade(BEFORE, BEFORE, [], expected="34", answer="34").success


def test_task_and_scenario_goal_completion():
    success = {"a1": True, "a2": True, "a3": True, "b1": True, "b2": False, "b3": True}
    groups = {name: name[0] for name in success}
    assert goal_completion(success, groups) == (5 / 6, 1 / 2)
    with pytest.raises(BadInput, match="no task"):
        goal_completion({}, {})
    with pytest.raises(BadInput, match="has no scenario"):
        goal_completion({"x": True}, {})


@pytest.mark.parametrize("name", SETS["all"])
def test_no_task_is_done_at_the_beginning(name):
    for seed in range(5):
        made = scenario(name, seed)
        before = Store(made.rows).rows(hidden=False)
        report = grade(made.rows, before, made.changes, expected=made.answer)
        assert not report.success
        assert not any(test.passed for test in report.tests if test.requirement != "nothing else changed")
        assert made.changes or made.answer is not None
