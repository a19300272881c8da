"""The phone and the desktop: pure functions, exact snapshots, closed words, solved tasks, honest marks."""

from __future__ import annotations

import json

import pytest

from refork.errors import BadInput
from refork.worlds import open_world, resume
from refork.worlds.dice import Dice
from refork.worlds.environment import Environment
from refork.worlds.open import task_from_json, task_to_json
from refork_worlds.screens.world import ScreenAgent

SPECS = ["phone", "desktop"]


def played(world, task, actor):
    episode, turns, seen = world.start(task, 0), [], []
    while (action := actor.act(seen)) is not None:
        turns.append(episode.step(action))
        seen.append((action, turns[-1].text))
        if turns[-1].done:
            break
    return episode, turns, seen


@pytest.fixture(scope="module", params=SPECS)
def world(request):
    return open_world(request.param)


@pytest.fixture(scope="module")
def runs(world):
    """Sixty tasks played by whatever agent the seed draws."""
    tasks = world.tasks("train", 60)
    return [
        (task, world.agent(task, n), *played(world, task, world.agent(task, n)))
        for n, task in enumerate(tasks)
    ]


def test_solvers_solve_and_the_verdict_is_read_from_texts_alone(world, runs):
    assert isinstance(world, Environment)
    kinds = {actor.kind for _, actor, *_ in runs}
    assert kinds == {"solve", "err", "explore"}
    for task, actor, _, turns, seen in runs:
        assert world.standing(task, seen) == (True, turns[-1].reward)
        assert world.standing(task, seen[:-1]) == (False, None)
        if actor.kind == "solve":
            assert turns[-1].reward == 1.0, (task.prompt, seen)
    rewards = [turns[-1].reward for _, _, _, turns, _ in runs]
    assert 0.0 in rewards
    assert {task.data["kind"] for task, *_ in runs} == {
        task.data["kind"] for task in world.tasks("held-out", 200)
    }


def test_every_word_is_known_every_screen_is_short_and_every_turn_says_what_decided_it(world, runs):
    known = set(world.vocabulary())
    changed = []
    for task, _, episode, turns, seen in runs:
        texts = [task.prompt, world.brief(task).initial_state, episode.first.text]
        texts += (
            [action for action, _ in seen] + [turn.text for turn in turns] + [t.info["note"] for t in turns]
        )
        unknown = {word for text in texts for word in text.split()} - known
        assert not unknown, unknown
        assert max(len(turn.text.split()) for turn in turns) < 80
        before = episode.first.text
        for turn in turns:
            assert turn.info["exact"] is True
            assert turn.info["note"]
            same = turn.text.removeprefix("nothing happens\n") == before
            assert turn.info["changed"] is (not same)
            before = turn.text.removeprefix("nothing happens\n")
            changed.append(turn.info["changed"])
    # Some screens stay as they are, so that a filter has something to drop, and most do not.
    assert 0.5 < sum(changed) / len(changed) < 1.0


def test_a_snapshot_and_a_replay_go_on_alike(world, runs):
    task, _, _, turns, seen = max(runs, key=lambda run: len(run[4]))
    cut = len(seen) // 2
    episode = world.start(task, 0)
    for action, _ in seen[:cut]:
        episode.step(action)
    saved = episode.snapshot()
    back = world.restore(task, saved)
    actions, texts = [a for a, _ in seen[:cut]], [t for _, t in seen[:cut]]
    replayed, origin = resume(world, task, 5, actions, texts)
    assert origin == "replayed"
    assert replayed.snapshot() == saved == back.snapshot()
    for (action, _), turn in zip(seen[cut:], turns[cut:], strict=True):
        assert episode.step(action) == back.step(action) == replayed.step(action) == turn
    over = back.snapshot()
    assert world.restore(task, over).step("WAIT") == turns[-1]
    for bad in (b"", b"[]", b'{"task": 3}', saved.replace(task.id.encode(), b"other")):
        with pytest.raises(BadInput, match="snapshot"):
            world.restore(task, bad)


def test_tasks_are_seeded_split_and_survive_json(world):
    train, held = world.tasks("train", 40), world.tasks("held-out", 40)
    assert world.tasks("train", 10) == train[:10]
    assert {t.id for t in train}.isdisjoint(t.id for t in held)
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[3])))) == train[3]
    with pytest.raises(BadInput):
        task_from_json(world, task_to_json(train[3]) | {"data": {"kind": "x"}})
    with pytest.raises(BadInput):
        task_from_json(world, task_to_json(train[3]) | {"data": train[3].data | {"kind": "dance"}})


@pytest.mark.parametrize("spec", SPECS)
def test_nonsense_uses_a_turn_and_the_turns_end_the_episode(spec):
    world = open_world(f"{spec}?turns=3")
    episode = world.start(world.tasks("train", 1)[0], 0)
    first = episode.first.text
    for text in ("", "jump"):
        seen = episode.step(text)
        assert seen.text == f"nothing happens\n{first}"
        assert (seen.info["invalid"], seen.info["changed"], seen.done) == (True, False, False)
    seen = episode.step('{"action_type": "click", "index": 99}')
    assert (seen.done, seen.reward) == (True, 0.0)
    assert episode.step("DONE") == seen
    with pytest.raises(BadInput, match="argument"):
        open_world(f"{spec}:3")
    with pytest.raises(BadInput, match="turn"):
        open_world(f"{spec}?turns=0")


def test_what_was_thrown_away_is_made_again():
    world = open_world("desktop?turns=60")
    task = next(t for t in world.tasks("train", 40) if t.data["kind"] == "write")
    device = world.device(task)
    row = task.data["folders"].index(task.data["args"][1].split("/")[0])
    calls = [
        "doubleClick(60, 60)",
        f"rightClick(160, {120 + 40 * row})",
        "click(280, 200)",
        "click(320, 220)",
    ]
    episode, seen = world.start(task, 0), []
    for call in calls:
        seen.append((f"pyautogui.{call}", episode.step(f"pyautogui.{call}").text))
    assert device.wrong(episode.state) > device.wrong(device.begin)
    actor = ScreenAgent(device, "DONE", Dice("x"))
    actor.kind = "solve"
    while (action := actor.act(seen)) is not None:
        seen.append((action, episode.step(action).text))
    assert seen[-1] == ("DONE", "the task is done")
