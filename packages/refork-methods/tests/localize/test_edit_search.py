"""The searching agent on real tasks: its order, its budget, and what findings do to it."""

from __future__ import annotations

import pytest

from refork.errors import BadInput, CannotDo
from refork_methods.localize.inject import finding_right, refuse_gold
from refork_methods.localize.transfer import transfer_report
from refork_testbed.trials.localize_repairs import (
    OWN,
    EditSearch,
    Investigated,
    agent_effects,
    first_place,
    fork_task,
    investigate_task,
    ochiai_files,
    repair_runs,
    right_case,
    task_spectrum,
    wrong_case,
)
from refork_testbed.worlds.repair.projects import project_names, shared_runner
from refork_testbed.worlds.repair.tasks import repair_tasks


@pytest.fixture(scope="module")
def found() -> list[Investigated]:
    """Two tasks of one small generated project."""
    return [investigate_task(task) for task in repair_tasks(2, names=project_names()[:1])]


def test_the_order_puts_the_findings_lines_first(found: list[Investigated]) -> None:
    one = found[0]
    search = EditSearch(one.task, shared_runner())
    bare, told = search.order("chance", 1), search.order("chance", 1, first_place(one.case))
    place = one.case.locations[0]
    inside = [e for e in told if e.path == place.path and place.start <= e.mutation.line <= place.end]
    assert inside
    assert told[: len(inside)] == inside
    assert sorted(bare, key=repr) == sorted(told, key=repr)
    assert [e for e in told if e not in inside] == [e for e in bare if e not in inside]
    assert bare == search.order("chance", 1) != search.order("chance", 2)


def test_suspicion_looks_at_what_the_failing_test_ran(found: list[Investigated]) -> None:
    one = found[0]
    search = EditSearch(one.task, shared_runner())
    ran = task_spectrum(one.task, shared_runner()).executed[one.task.public[0]]
    functions = {(e.path, e.mutation.function) for e in search.edits() if (e.path, e.mutation.line) in ran}
    for own in ("coverage", "suspicion"):
        order = search.order(own, 1)  # type: ignore[arg-type]
        first = {(e.path, e.mutation.function) for e in order[:5]}
        assert first <= functions


def test_gold_edit_resolves_and_the_budget_binds(found: list[Investigated]) -> None:
    one = found[0]
    search = EditSearch(one.task, shared_runner(), budget=200)
    got = search.attempt("chance", 0, right_case(one))
    assert got.submitted is not None
    assert 1 <= got.runs <= 200
    fixed = got.submitted.mutation.apply(one.task.files[got.submitted.path])
    assert got.resolved or fixed != one.task.project.files[one.task.path]
    tight = EditSearch(one.task, shared_runner(), budget=1).attempt("chance", 0)
    assert tight.runs == 1


def test_controls_are_marked_and_fit_the_gold(found: list[Investigated]) -> None:
    for one in found:
        right, wrong = right_case(one), wrong_case(one)
        assert finding_right(right, one.task.gold)
        assert wrong is None or not finding_right(wrong, one.task.gold)
        with pytest.raises(CannotDo):
            refuse_gold(right)
        assert one.run is not None
        # The settings and the model are part of who found it, as a digest.
        assert one.run.producer.startswith("investigate 3 ")


def test_forks_share_their_seed_and_report(found: list[Investigated]) -> None:
    forks = [
        fork_task(one, shared_runner(), shuffled=found[1 - n].case, own=("chance",), seed=n)
        for n, one in enumerate(found)
    ]
    again = fork_task(found[0], shared_runner(), shuffled=found[1].case, own=("chance",), seed=0)
    assert again.attempts == forks[0].attempts
    (effect,) = agent_effects(forks)
    assert effect.agent == "chance"
    assert effect.tasks == tuple(one.task.id for one in found)
    report = transfer_report(repair_runs(forks, "right"), repair_runs(forks, "none"))
    assert report.findings == "oracle"
    assert not report.deployable
    assert report.settings[0].losses == 0


def test_ochiai_finds_the_file(found: list[Investigated]) -> None:
    one = found[0]
    assert ochiai_files(task_spectrum(one.task, shared_runner()), sorted(one.task.files))[0] == one.task.path


def test_refusals(found: list[Investigated]) -> None:
    with pytest.raises(BadInput):
        EditSearch(found[0].task, shared_runner(), budget=0)
    with pytest.raises(BadInput, match="unknown own order"):
        EditSearch(found[0].task, shared_runner()).order("luck", 0)  # type: ignore[arg-type]
    assert len(OWN) == 3
