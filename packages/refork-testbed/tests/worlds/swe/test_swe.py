"""The SWE world: a mistake, its repair, what cannot be forged, and hashes that stay."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest

from refork.errors import BadInput, CannotDo
from refork.worlds.base import Task
from refork.worlds.environment import Environment
from refork.worlds.open import open_world
from refork_testbed.worlds.swe import world as swe
from refork_testbed.worlds.swe.world import SweWorld, hashes


@pytest.fixture(scope="module")
def world() -> SweWorld:
    found = open_world("swe?turns=20")
    assert isinstance(found, SweWorld)
    assert isinstance(found, Environment)
    try:
        found.shell()
    except CannotDo as error:
        pytest.skip(str(error))
    return found


@pytest.fixture(scope="module")
def task(world: SweWorld) -> Task:
    return world.tasks("held-out", 1)[0]


def test_a_repair_is_accepted(world: SweWorld, task: Task) -> None:
    episode = world.start(task, 0)
    log = episode.step("git log --oneline")
    assert log.info["exact"]
    assert log.text in world.brief(task).initial_state
    assert log.text == episode.first.text
    failing = episode.step("pytest")
    assert failing.info["status"] == 1
    assert " in 0." not in failing.text
    assert "FAILED tests/" in failing.text
    (edit,) = task.data["edits"]
    mended = episode.step(edit)
    assert mended.text.startswith("line ")
    assert mended.info["note"].startswith("line ")
    saved = episode.snapshot()
    diff = episode.step("git diff")
    assert "\n-" in diff.text
    assert not diff.info["exact"]
    assert hashes(diff.text)
    assert episode.step("git diff").info["exact"]  # its hashes are known now
    assert not episode.step("git commit -qam mend; git log --oneline").info["exact"]
    last = episode.step("submit")
    assert (last.text, last.reward) == ("accepted", 1.0)
    again = world.restore(task, saved)
    assert again.step("git diff") == diff
    assert world.standing(task, [("submit", "accepted")]) == (True, 1.0)


def test_the_same_repository_has_the_same_hashes_and_key(world: SweWorld, task: Task) -> None:
    first = world.start(task, 0).first
    swe._begun.cache_clear()
    assert world.start(task, 0).first == first


@pytest.mark.parametrize("kind", ["tests", "exit"])
def test_a_verdict_cannot_be_had_without_a_repair(world: SweWorld, task: Task, kind: str) -> None:
    path, (test,) = task.data["path"], task.data["tests"]
    tricks = {
        "tests": f"echo 'def test_ok(): pass' > {test}; echo '[pytest]' > pytest.ini; "
        "echo 'addopts = --collect-only' >> pytest.ini; echo 'collect_ignore_glob = [\"*\"]' > conftest.py",
        "exit": f"(echo 'import os; os._exit(0)'; cat {path}) > t; mv t {path}",
    }
    episode = world.start(task, 0)
    episode.step(tricks[kind])
    assert episode.step("submit").text == "rejected"


def test_edits_that_cannot_be_done_say_why(world: SweWorld, task: Task) -> None:
    episode = world.start(task, 0)
    before = episode.state
    assert episode.step("edit lost.py 3: pass").text == "edit: lost.py: No such file"
    assert "there is no line 9999" in episode.step(f"edit {task.data['path']} 9999: pass").text
    for number in ("²", "9" * 5000, "1000000"):
        said = f"edit {task.data['path']} {number}: @@ -1 +1 @@"
        assert episode.step(said).text == "edit: write edit FILE N: CODE"
    assert episode.step("edit x: y").text == "edit: write edit FILE N: CODE"
    assert episode.state is before
    path = task.data["path"]
    first = before.files()[path].splitlines()[0]
    said = f"edit {path} 9999:\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{first}\n+{first} # x"
    assert episode.step(said).text == "line 9999 :"


def test_no_pytest_is_said_plainly(world: SweWorld, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    swe._begun.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotDo, match="pytest"):
        world.start(task, 0)


def test_other_tasks_and_snapshots_are_refused(world: SweWorld, task: Task) -> None:
    with pytest.raises(BadInput, match="lacks"):
        world.start(replace(task, data={}), 0)
    with pytest.raises(BadInput, match="not a snapshot"):
        world.restore(task, b"[]")
    with pytest.raises(BadInput, match="no argument"):
        open_world("swe:x")
