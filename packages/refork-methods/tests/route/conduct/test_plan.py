"""Plans: reading, faults, and the form they are written in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.route.conduct.plan import LONGEST, Plan, three_lists
from refork_methods.route.pool import WorkerPool
from refork_testbed.worlds.expressions import plan_text

POOL = WorkerPool.of("A", "B", "C")
TWO = Plan(("A", "B"), ("add", "then multiply"), ((), (1,)))


@pytest.mark.parametrize(
    "text",
    [
        '{"model_id": ["A", "B"], "subtasks": ["add", "then multiply"], "access_list": [[], [1]]}',
        'I think so.\n```json\n{"model_id": ["A", "B"], "subtasks": ["add", "then multiply"],'
        ' "access_list": [[], "all"]}\n```\nDone.',
        '<think>first ["X"] maybe</think>\nmodel_id = ["A", "B"]\nsubtasks = ["add", "then multiply"]\n'
        "access_list = [[], [1]]",
        "model_id: [1, 2]\nsubtasks: ['add', 'then multiply']\naccess_list: [[], ['all']]",
        "**model_id**: no\nmodel_ids: [A, B]\nsubtasks: [add, then multiply]\naccess_list: [[], all]",
        "[A,B][add,then multiply][[],[1]]",
        "Reasoning about [this] and [that].\n[A, B] [add, then multiply] [[], [1]]",
        "model_id: [A, B], subtasks: [add, then multiply], access_list: all",
    ],
)
def test_one_plan_in_many_forms(text: str) -> None:
    assert Plan.parse(text, POOL.names) == TWO


def test_the_last_plan_counts() -> None:
    draft = "model_id: [C]\nsubtasks: [no]\naccess_list: [[]]\nBetter:\n"
    final = "model_id: [A, B]\nsubtasks: [add, then multiply]\naccess_list: [[], [1]]"
    assert Plan.parse(draft + final) == TWO
    assert Plan.parse('{"a": 1} ' + json.dumps(TWO.to_json())) == TWO


def test_quoted_texts_may_hold_anything() -> None:
    said = 'model_id: ["A"]\nsubtasks: ["list [1, 2], \\"quoted\\"\\nand more"]\naccess_list: [[]]'
    assert Plan.parse(said).subtasks == ('list [1, 2], "quoted"\nand more',)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no plan at all",
        "[A][add]",
        "[A,B][add,then][[],[1]",
        "model_id: [A, subtasks: [b], access_list: [[]]",
        "[[A]][add][[]]",
        "[A][[add]][[]]",
        "[A][add][x]",
        '[A][add][["1"]]',
        '{"model_id": "A", "subtasks": ["b"], "access_list": [[]]}',
        '{"model_id": [null], "subtasks": ["b"], "access_list": [[]]}',
        '{"model_id": [true], "subtasks": ["b"], "access_list": [[]]}',
        '{"model_id": ["A"], "subtasks": ["b"], "access_list": [[1.5]]}',
        "[" * 50,
        "x" * (LONGEST + 1),
    ],
)
def test_what_holds_no_plan_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Plan.parse(text, POOL.names)


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (Plan((), (), ()), "empty"),
        (Plan(("A",), ("a", "b"), ((),)), "unequal lengths"),
        (Plan(("A",) * 6, ("a",) * 6, ((),) * 6), "too many steps"),
        (Plan(("Z",), ("a",), ((),)), "unknown worker"),
        (Plan(("A",), (" ",), ((),)), "empty subtask"),
        (Plan(("A", "B"), ("a", "b"), ((2,), ())), "forward access"),
        (Plan(("A", "B"), ("a", "b"), ((), (2,))), "forward access"),
        (Plan(("A", "B"), ("a", "b"), ((), (0,))), "unknown access"),
        (Plan(("A", "B"), ("a", "b"), ((), (-1,))), "unknown access"),
        (Plan(("A", "B"), ("a", "b"), ((), (1, 1))), "repeated access"),
        (Plan(("A", "B"), ("a", "b"), ((), (7,))), "forward access"),
    ],
)
def test_every_fault_is_named(plan: Plan, fault: str) -> None:
    assert [problem.fault for problem in plan.problems(POOL)] == [fault]
    with pytest.raises(BadInput, match="cannot run"):
        plan.validate(POOL)


def test_an_opted_out_worker_is_a_fault_of_its_own() -> None:
    assert [p.fault for p in TWO.problems(POOL.without("B"))] == ["opted out"]
    assert TWO.problems(POOL) == []
    assert TWO.validate(POOL) is TWO


def test_numbers_stand_for_places_unless_they_are_names() -> None:
    assert Plan.parse("[2][a][[]]", ("x", "y")).model_id == ("y",)
    assert Plan.parse("[2][a][[]]", ("2", "1")).model_id == ("2",)
    assert Plan.parse("[9][a][[]]", ("x", "y")).problems(POOL)[0].fault == "unknown worker"


def test_json_and_file(tmp_path: Path) -> None:
    assert Plan.from_json(json.loads(json.dumps(TWO.to_json()))) == TWO
    file = tmp_path / "workflow.json"
    file.write_text(json.dumps(TWO.to_json()))
    assert Plan.read(file) == TWO
    for bad in ("[]", "{", '{"model_id": []}'):
        file.write_text(bad)
        with pytest.raises(BadInput):
            Plan.read(file)
    with pytest.raises(BadInput, match="no workflow"):
        Plan.read(tmp_path / "none.json")


def test_the_short_form_is_read_as_it_is_written() -> None:
    said = plan_text(["A", "B"], ["3+4", "_*2"], ["[]", "[1]"])
    assert said == "[A,B][3+4,_*2][[],[1]]"
    assert Plan.parse(said) == Plan(("A", "B"), ("3+4", "_*2"), ((), (1,)))


names = st.sampled_from(["A", "B", "worker one", "1x"])
texts = st.text(min_size=1, max_size=20).filter(lambda t: t.strip() != "")


@given(st.lists(st.tuples(names, texts), min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_any_plan_survives_its_json(steps: list[tuple[str, str]], data: st.DataObject) -> None:
    access = tuple(
        tuple(sorted(data.draw(st.sets(st.integers(1, step), max_size=step)))) if step else ()
        for step in range(len(steps))
    )
    plan = Plan(tuple(s[0] for s in steps), tuple(s[1] for s in steps), access)
    assert Plan.from_json(plan.to_json()) == plan


@given(st.text(alphabet="[]{},'\":=ab1 \n", max_size=80))
@settings(max_examples=150, deadline=None)
def test_reading_ends_in_lists_or_bad_input(text: str) -> None:
    try:
        found = three_lists(text)
    except BadInput:
        return
    assert len(found) == 3
