"""The small wording, and splits by mutations."""

import pytest

from refork.errors import BadInput
from refork.worlds import open_world
from refork_testbed.worlds.repair.generated import generated
from refork_testbed.worlds.repair.mutation import mutations
from refork_testbed.worlds.repair.small import HELD_OUT, mutation_split, small_prompt, span
from refork_testbed.worlds.repair.tasks import known_task, repair_tasks

SOURCE = '''
def outer(values, limit=2):
    """Told,
    at length."""
    total = 0

    def inner(value):
        return value + 1

    for value in values:
        if value > limit:
            total += inner(value)
    return total
'''
NAME = "repair?origin=generated&splits=mutations&wording=small"


def test_a_prompt_is_the_numbered_function_with_an_indentation_of_one_space():
    assert small_prompt(SOURCE, 11) == (
        " 2: def outer(values, limit=2):\n 5:  total = 0\n 7:  def inner(value):\n 8:   return value + 1\n"
        " 10:  for value in values:\n 11:   if value > limit:\n 12:    total += inner(value)\n"
        " 13:  return total"
    )


def test_the_innermost_function_is_shown():
    assert span(SOURCE, 8) == (7, 8)
    assert small_prompt(SOURCE, 8) == " 7: def inner(value):\n 8:  return value + 1"
    with pytest.raises(ValueError, match="empty"):
        span(SOURCE, 1)


def test_another_text_with_the_same_lines_can_be_shown():
    broken = SOURCE.replace("value + 1", "value (")
    assert small_prompt(SOURCE, 8, broken) == " 7: def inner(value):\n 8:  return value ("


def test_names_and_place_do_not_move_a_mutation_to_the_other_split():
    other = "X = 1\n\n" + SOURCE.replace("total", "amount").replace("limit", "most").replace("outer", "g")
    pairs = list(zip(mutations(SOURCE), mutations(other), strict=True))
    assert all(mutation_split(SOURCE, a) == mutation_split(other, b) for a, b in pairs)
    assert {mutation_split(SOURCE, one) for one in mutations(SOURCE)} == {"train", "held-out"}


def test_a_wrong_variable_is_in_the_split_of_its_place():
    splits = {}
    for one in mutations(SOURCE, ["wrong-variable"]):
        splits.setdefault(one.start, set()).add(mutation_split(SOURCE, one))
    assert all(len(one) == 1 for one in splits.values())


def test_about_a_fifth_is_held_out():
    found = [
        mutation_split(source, one)
        for number in range(2)
        for source in generated(number)[1].values()
        for one in mutations(source)
    ]
    # The dice are fixed; kinds of functions stand together, so the share is a rough one.
    assert abs(found.count("held-out") / len(found) - HELD_OUT) < 0.05


def test_tasks_of_both_splits_come_from_the_same_projects_and_share_no_mutation():
    names = ("harbour", "clinic")
    held = repair_tasks(6, names=names, among="held-out")
    kept = repair_tasks(6, names=names, among="train")
    for split, tasks in (("held-out", held), ("train", kept)):
        for task in tasks:
            assert mutation_split(task.project.files[task.path], task.mutation) == split
        assert {task.project.name for task in tasks} == set(names)
    assert repair_tasks(4, names=names, among="held-out") == held[:4]


def test_the_world_in_the_small_wording():
    world = open_world(NAME)
    assert world.name == NAME
    task = world.tasks("held-out", 1)[0]
    repair = known_task(task.id)
    assert task.prompt == small_prompt(repair.broken, repair.mutation.line)
    number = repair.mutation.line
    gold = repair.project.files[repair.path].split("\n")[number - 1].strip()
    episode = world.start(task, 0)
    seen = episode.step(f"line {number}: pass")
    assert seen.text in ("0 of 2 public tests pass", "1 of 2 public tests pass")
    again = world.restore(task, episode.snapshot())
    assert again.step(f"line {number}: {gold}").text == "2 of 2 public tests pass"
    assert again.step("submit").reward == 1.0


def test_unknown_options_are_refused():
    with pytest.raises(BadInput, match="no wording"):
        open_world("repair?wording=tiny")
    with pytest.raises(BadInput, match="no splits"):
        open_world("repair?splits=days")
