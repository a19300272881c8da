from collections import Counter
from dataclasses import replace

import pytest

from refork.worlds.environment import Brief, EnvTrajectory, Transition
from refork_methods.simulate.refusals import trained_on
from refork_testbed.models import build, find, names
from refork_testbed.models.build import card
from refork_testbed.models.recipe import Made, Staged
from refork_testbed.models.recipes.shell_agent import Blind, dealt, lessons
from refork_testbed.models.recipes.world_model import recorded, tokenizer_of
from refork_testbed.models.staged import stage_up

TURNS = (
    Transition("cat a.txt", "x\ny", True, "in . , a.txt is x / y"),
    Transition("ls", "a.txt", True, None),
)
ITEM = EnvTrajectory(
    id="1", source="t", brief=Brief(initial_state="file a.txt\nx\ny"), turns=TURNS, domain="terminal"
)


def test_the_control_has_the_same_answers_elsewhere():
    items = [ITEM] * 20
    read = dealt(items, seed=1)
    told = [[(turn.observation, turn.note) for item in each for turn in item.turns] for each in (items, read)]
    assert Counter(told[0]) == Counter(told[1])
    assert told[0] != told[1]
    assert [t.action for item in read for t in item.turns] == [t.action for item in items for t in item.turns]


def test_a_lesson_is_a_solution_run_in_its_world_without_the_last_answer():
    talks = lessons("tools?brief=labels", 3)
    assert len(talks) == 3
    for talk in talks:
        roles = [message["role"] for message in talk]
        assert roles == ["user", "assistant"] * (len(talk) // 2)
        assert '"error"' not in "".join(str(message["content"]) for message in talk[2::2])
        assert "submit" in str(talk[-1]["content"])


def test_a_stage_says_what_it_learned_from(tmp_path):
    recipe = replace(
        find("world-model-sft"), train=lambda *_: Made([], {}), measure=lambda *_: {}, reads=lambda: [ITEM]
    )
    stage_up(recipe, build("test-tiny"), tmp_path)
    assert trained_on(tmp_path).has(ITEM) == "'t'"
    assert trained_on(tmp_path).has(replace(ITEM, source="other")) is None


def test_recordings_are_made_once(tmp_path):
    made = recorded("tools?brief=short", "train", 2, 0, tmp_path)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert len(made) == 2
    assert len(files) == 1
    assert recorded("tools?brief=short", "train", 2, 0, tmp_path) == made
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == files
    known = tokenizer_of(made * 5, 64).get_vocab()
    assert {"submit", "<prediction>"} <= set(known)


def test_a_blind_episode_is_the_worlds_own_without_its_first_view():
    from refork.worlds.open import open_world

    world = Blind(open_world("tools?brief=short"))
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert episode.first.text == ""
    assert episode.step("nonsense").text == '{"error":"not a call"}'
    episode.close()


@pytest.mark.parametrize(
    "name", [name for name in names() if name.startswith(("world-model", "shell-agent"))]
)
def test_each_stage_begins_with_a_parent_or_anew(name):
    recipe = find(name)
    assert isinstance(recipe, Staged)
    assert (recipe.parent is None) != (recipe.begin is None)
    facts = {
        "staged": {"told": "told"}, "parent_weights": "ab" * 32 if recipe.parent else None, "how": "how",
        "shape": "shape", "parameters": 1, "vocabulary": 2, "train_seconds": 3.0, "threads": 1,
        "torch": "t", "transformers": "t",
    }  # fmt: skip
    text = card(recipe, facts, "cd" * 32)
    assert (f"- parent: {recipe.parent}\n" in text) == (recipe.parent is not None)
    assert "told" in text
