from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import pytest

from refork.errors import BadInput, CannotDo, Mismatch, ReplayDiverged
from refork.forking import Force, fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import Episode, World, resume
from refork.worlds.base import Task
from refork.worlds.open import task_from_json, task_to_json
from refork.worlds.spec import Spec
from refork_worlds.textworld import open_textworld, tidy

SMALL = "tw-treasure_hunter?level=4"


@cache
def opened(spec: str) -> World:
    pytest.importorskip("textworld", reason="the extra textworld is not installed")
    name, _, query = spec.partition("?")
    options = {key: json.loads(value) for key, _, value in (pair.partition("=") for pair in query.split("&"))}
    return open_textworld(Spec("textworld", name, options, query))


@cache
def tasks(spec: str) -> list[Task]:
    return list(opened(spec).tasks("train", 2))


def test_an_answer_is_told_without_status_line_and_closing_question():
    status = "\n\n>             -= Kitchenette =-0/1"
    assert tidy(f"\n\n-= Kitchenette =-\nYou're in it.\n\n\n\nThere is an exit.{status}") == (
        "-= Kitchenette =-\nYou're in it.\nThere is an exit."
    )
    end = "\nTaken.\n\n   *** The End ***\n\nWould you like to RESTART, RESTORE a saved game?\n>"
    assert tidy(end + status) == "Taken.\n*** The End ***"
    assert tidy("") == ""


def test_the_walkthrough_wins_and_the_plan_is_told_anew_after_a_detour():
    world, (task, _) = opened(SMALL), tasks(SMALL)
    episode = world.start(task, 0)
    assert isinstance(world, World)
    assert isinstance(episode, Episode)
    assert episode.first.text.startswith("-= ")
    assert episode.plan() == world.gold(task)
    first = world.gold(task)[0]
    episode.step(first)
    assert episode.plan() == world.gold(task)[1:]
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[first.split()[-1]]
    episode.step(f"go {back}")
    assert episode.plan() == world.gold(task)
    seen = [episode.step(command) for command in episode.plan()]
    assert [one.reward for one in seen] == [None] * (len(seen) - 1) + [1.0]
    assert episode.step("look").text == seen[-1].text
    assert episode.plan() == ()


def test_equal_states_have_equal_keys_however_they_were_reached():
    world, (task, other) = opened(SMALL), tasks(SMALL)
    first = world.gold(task)[0]
    back = {"north": "south", "south": "north", "east": "west", "west": "east"}[first.split()[-1]]
    episode = world.start(task, 0)
    begin, away, again = episode.first, episode.step(first), episode.step(f"go {back}")
    assert begin.state_key == again.state_key != away.state_key
    assert episode.step("look").state_key == begin.state_key
    assert episode.step(first).state_key == away.state_key
    assert world.start(other, 0).first.state_key != begin.state_key


@pytest.mark.parametrize("said", ["", "  \n", "save", "Restart", "look. quit", "tw-trace-actions", "UNDO"])
def test_commands_for_the_interpreter_are_not_passed_on(said):
    episode = opened(SMALL).start(tasks(SMALL)[0], 0)
    seen = episode.step(said)
    assert (seen.text, seen.state_key, seen.done) == ("nothing happens", episode.first.state_key, False)


def test_what_is_no_command_is_answered_by_the_game():
    episode = opened(SMALL).start(tasks(SMALL)[0], 0)
    assert episode.step("dance " * 100).text.startswith("That's not a verb I recognise")
    assert "go" in " ".join(episode.first.info["commands"])


def test_turns_run_out():
    world = opened(SMALL + "&turns=2")
    episode = world.start(world.tasks("train", 1)[0], 0)
    assert [episode.step("look").reward for _ in range(2)] == [None, 0.0]
    assert world.name.endswith("turns=2")


def test_a_checked_replay_goes_on_alike_and_a_wrong_record_is_an_error():
    world, (task, _) = opened(SMALL), tasks(SMALL)
    gold = world.gold(task)
    episode = world.start(task, 0)
    said = ["inventory", gold[0], "examine table"]
    texts = [episode.step(command).text for command in said]
    assert episode.snapshot() is None
    back, origin = resume(world, task, 7, said, texts)
    assert origin == "replayed"
    for command in gold[1:]:
        assert back.step(command) == episode.step(command)
    with pytest.raises(ReplayDiverged, match="turn"):
        resume(world, task, 0, said, ["", *texts[1:]])
    with pytest.raises(CannotDo, match="replay"):
        world.restore(task, b"{}")


def test_tasks_are_games_seeded_prefix_stable_and_split():
    world, train = opened(SMALL), tasks(SMALL)
    assert world.tasks("train", 1) == train[:1]
    held = world.tasks("held-out", 1)
    assert len({task.id for task in (*train, *held)}) == 3
    assert world.gold(train[0])[-1].removeprefix("take ") in train[0].prompt
    assert "go north" in train[0].prompt
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]
    changed = Task(**(task_to_json(train[0]) | {"data": train[0].data | {"game": "0"}}))
    with pytest.raises(Mismatch, match="another game"):
        world.start(changed, 0)
    with pytest.raises(BadInput, match="tw-simple"):
        world.start(
            Task(**(task_to_json(train[0]) | {"data": train[0].data | {"challenge": "tw-simple"}})), 0
        )


def test_seeds_without_a_game_are_passed_over_and_a_challenge_without_games_says_so(monkeypatch):
    import refork_worlds.textworld as module

    world, tried = opened(SMALL + "&turns=9"), []

    def fail(*where: object) -> None:
        tried.append(where)
        raise CannotDo("no game")

    monkeypatch.setattr(module, "_game", fail)
    with pytest.raises(BadInput, match="found only 0 different train games"):
        world.tasks("train", 1)
    assert len(tried) > 10


def test_another_process_makes_the_same_games_and_answers():
    world, (task, _) = opened(SMALL), tasks(SMALL)
    program = """
import json, sys
from refork.worlds.spec import Spec
from refork_worlds.textworld import open_textworld
world = open_textworld(Spec("textworld", "tw-treasure_hunter", {"level": 4}, "level=4"))
task = world.tasks("train", 1)[0]
episode = world.start(task, 0)
print(json.dumps([task.id, task.prompt, [episode.step(a).text for a in world.gold(task)]]))
"""
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "1"},
    )  # fmt: skip
    episode = world.start(task, 0)
    answers = [episode.step(command).text for command in world.gold(task)]
    assert json.loads(told.stdout) == [task.id, task.prompt, answers]


@pytest.mark.parametrize(
    ("challenge", "options", "message"),
    [
        ("tw-chess", {}, "no challenge 'tw-chess'"),
        ("tw-treasure_hunter", {}, "required: --level"),
        ("tw-treasure_hunter", {"level": "high"}, "invalid int value"),
        ("tw-treasure_hunter", {"level": 5, "colour": "red"}, "unrecognized arguments"),
        ("tw-simple", {"rewards": "rare", "goal": "brief"}, "invalid choice"),
        ("tw-treasure_hunter", {"level": 5, "turns": 0}, "turns is 0"),
    ],
)
def test_settings_that_a_challenge_refuses(challenge, options, message):
    pytest.importorskip("textworld", reason="the extra textworld is not installed")
    with pytest.raises(BadInput, match=message):
        open_textworld(Spec("textworld", challenge, options, ""))


def test_settings_that_only_the_making_refuses():
    with pytest.raises(BadInput, match="tw-treasure_hunter"):
        opened("tw-treasure_hunter?level=99").tasks("train", 1)


def test_a_tree_grows_and_forks_by_replay():
    world = opened(SMALL + "&turns=6")
    task = world.tasks("train", 1)[0]
    gold = world.gold(task)
    policy = ScriptedPolicy.from_replies({gold[0]: 1.0, "inventory": 1e-12})
    settings = Sampling(max_tokens=16)
    with Tree.memory() as tree:
        path = grow(tree, policy, world, [task], draws=1, settings=settings)[0].forks[0].leaves()[0]
        acts = [step for step in path if step.node.kind == "action"]
        assert len(acts) == world.max_turns
        point = tree.at(acts[3].node, token=0)
        other = fork(point, policy, draws=1, change=Force(text="inventory"), settings=settings, world=world)
        said = [step.text for step in other.leaves()[0] if step.node.kind in ("action", "observation")]
        assert said[said.index("inventory") + 1] == "You are carrying nothing."
