"""Fictional: every value that a simulator says is the table's."""

import pytest

from refork.errors import BadInput
from refork.sampling.noise import NoiseKey
from refork.worlds.base import Task
from refork.worlds.open import open_world
from refork_methods.simulate.control.base import Control, Moment
from refork_testbed.trials.fictional import Fictional
from refork_testbed.worlds.search.fiction import fiction
from refork_testbed.worlds.search.source import text_of

NOISE = NoiseKey(0, 0, 0)


def told(control, task, seen, action, predicted):
    """What a control makes of an answer."""
    return control.after(Moment(task, seen, action, NOISE), predicted)[0]


@pytest.mark.parametrize("options", ["", "&words=3&lists=false&kinds=bridge,library", "&snippets=teaser"])
def test_what_the_real_engine_says_is_left_as_it_is(options):
    world = open_world(f"search?results=3{options}")
    control = Fictional()
    assert isinstance(control, Control)
    for seed, task in enumerate(world.tasks("train", 6, 4)):
        episode, seen, actor = world.start(task, 0), [], world.agent(task, seed)
        while (action := actor.act(seen)) is not None:
            said = episode.step(action)
            assert told(control, task, seen, action, said.text) == said.text
            seen.append((action, said.text))
            if said.done:
                break


@pytest.fixture(scope="module")
def setting():
    world = fiction(3)
    town = next(title for title in world.titles() if world.table_of(title) == "town")
    return world, town, Task("t", "search", "train", "?", {"world": 3, "answer": ["1893"]})


def test_invented_values_things_and_pages_become_the_rows(setting):
    world, town, task = setting
    row, page = world.row(town), world.page(town)
    lie = f"1 atlantis : sunk .\n4 {town} : {town} built a bridge in 1111 .\n9 {town} : gold\npage 1 of 1"
    said = told(Fictional(), task, [], f"search: {town}", lie)
    # What does not exist is left out, the rest numbered on; a sentence like no other becomes a teaser.
    assert said == f"4 {town} : {town} built a bridge in {row['bridge']} .\n5 {town} : ...\npage 1 of 1"
    cut = told(Fictional(), task, [], f"search: {town}", f"1 {town} : ... in 1111 .")
    assert cut in (f"1 {town} : ... in {row['bridge']} .", f"1 {town} : ... in {row['library']} .")
    assert told(Fictional(), task, [], "search: atlantis", "1 atlantis : sunk .") == "no results"
    seen = [(f"search: {town}", said)]
    for action in (f"open: {town}", "open: 4"):
        assert told(Fictional(), task, seen, action, "anything") == text_of(town, page)
    late = told(Fictional(), task, seen, "open: 1", "x\ntime is up")
    assert late == "no such page\ntime is up"
    assert told(Fictional(), task, seen, "open: atlantis", "atlantis\nsunk .") == "no such page"
    assert told(Fictional(), task, seen, "look", "what ?") == "what ?"


def test_the_verdict_is_that_of_the_reference_answer(setting):
    _, _, task = setting
    for answer, verdict in (("1893", "accepted"), ("1894", "rejected")):
        assert told(Fictional(), task, [], f"answer: {answer}", "accepted").startswith(verdict)


def test_the_model_is_told_the_rows_that_an_action_names(setting):
    world, town, task = setting
    for action in (f"search: where is {town}", f"open: {town}"):
        assert f"bridge {world.row(town)['bridge']}" in Fictional().instruction(
            Moment(task, [], action, NOISE)
        )
    assert Fictional().instruction(Moment(task, [], "answer: 1893", NOISE)) == ""


def test_a_task_that_names_no_world_is_refused():
    with pytest.raises(BadInput, match="no invented world"):
        told(Fictional(), Task("t", "none", "train", "?"), [], "open: x", "")
