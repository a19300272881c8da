from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo
from refork.worlds.expert import demonstrate, expert, shortest
from refork_testbed.worlds.household.build import HELD, WRONG, Layout, household_world


def exhaustive(game, state):
    """Length of the shortest way over every admissible action, by plain breadth-first search."""
    seen, queue = {state}, deque([(state, 0)])
    while queue:
        here, depth = queue.popleft()
        for action in game.actions(here):
            there = game.act(here, action)
            if there in seen:
                continue
            seen.add(there)
            if game.grade(there) == 1.0:
                return depth + 1
            if game.grade(there) is None:
                queue.append((there, depth + 1))
    return None


@pytest.mark.parametrize("size", [1, 2])
def test_the_expert_is_as_short_as_an_exhaustive_search(size):
    world = household_world(size)
    for task in world.tasks("train", 12):
        game = world.game(task)
        assert len(expert(world, task)) == exhaustive(game, game.begin)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_expert_is_shortest_from_wherever_mistakes_led(data):
    world = household_world(2)
    task = world.tasks("train", 6)[data.draw(st.integers(0, 5))]
    episode = world.start(task, 0)
    for _ in range(data.draw(st.integers(1, 8))):
        options = episode.game.actions(episode.state)
        if not options:
            break
        episode.step(data.draw(st.sampled_from(options)))
    found = shortest(episode.game, episode.state)
    if episode.game.grade(episode.state) == 0.0:
        assert found is None
        with pytest.raises(CannotDo):
            expert(world, episode)
    elif episode.game.grade(episode.state) is None:
        assert len(found) == exhaustive(episode.game, episode.state)
        assert expert(world, episode) == found
    else:
        assert found == ()


@pytest.mark.parametrize("size", [1, 2])
def test_every_task_can_be_done_in_time(size):
    world = household_world(size)
    for split in ("train", "held-out"):
        for task in world.tasks(split, 60):
            path = expert(world, task)
            assert 2 <= len(path) <= world.max_turns
            episode = world.start(task, 0)
            seen = [episode.step(action) for action in path]
            assert [s.reward for s in seen[:-1]] == [None] * (len(path) - 1)
            assert seen[-1].reward == 1.0
            assert seen[-1].text == "task done"


def test_a_house_needs_a_key_that_is_not_behind_its_door():
    world = household_world(2)
    for task in world.tasks("train", 40):
        path = expert(world, task)
        assert "take key" in path
        assert any(action.startswith("unlock") for action in path)
        layout = Layout.from_json(task.data["layout"])
        assert layout.to_json() == task.data["layout"]
        assert layout.locked not in (layout.start, layout.key)
        assert layout.locked in (layout.source, layout.goal)


def test_the_demo_size_is_small():
    world = household_world(2)
    tasks = world.tasks("train", 200)
    paths = [expert(world, task) for task in tasks]
    assert 6 <= np.mean([len(path) for path in paths]) <= 12
    assert all(2 <= len(action.split()) <= 4 for path in paths for action in path)
    texts = []
    for task, path in zip(tasks, paths, strict=True):
        episode = world.start(task, 0)
        texts += [episode.first.text, *(episode.step(action).text for action in path)]
    assert np.mean([len(text.split()) for text in texts]) <= 25
    assert len(world.vocabulary()) <= 200


def first_task():
    world = household_world(2)
    task = world.tasks("train", 1)[0]
    return world, task, world.start(task, 0)


def test_a_delivery_is_final_right_or_wrong():
    world, task, episode = first_task()
    path = list(expert(world, task))
    taken = next(i for i, a in enumerate(path) if a.startswith("take ") and not a.endswith("key"))
    for action in path[: taken + 1]:
        episode.step(action)
    put = next(a for a in episode.game.actions(episode.state) if a.startswith("put") and "key" not in a)
    seen = episode.step(put)
    assert (seen.text, seen.done, seen.reward) == ("task failed", True, 0.0)
    assert WRONG in episode.state.things


def test_a_locked_door_needs_its_key_in_hand():
    world, task, episode = first_task()
    path = list(expert(world, task))
    at = next(i for i, a in enumerate(path) if a.startswith("unlock"))
    room = path[at].split()[1]
    for action in path[:at]:
        episode.step(action)
    assert episode.state.things[0] == HELD
    assert f"go {room}" not in episode.game.actions(episode.state)
    locked = episode.step(f"go {room}")
    assert locked.info == {"invalid": True}
    episode.step(
        next(action for action in episode.game.actions(episode.state) if action.startswith("put key"))
    )
    assert episode.step(f"unlock {room}").info == {"invalid": True}
    episode.step("take key")
    assert "invalid" not in episode.step(f"unlock {room}").info
    assert "invalid" not in episode.step(f"go {room}").info


def test_demonstrations_err_at_the_stated_rate_and_recover():
    world = household_world(2)
    tasks = world.tasks("train", 150)
    rng = np.random.default_rng(5)
    clean = [demonstrate(world, task, rng) for task in tasks]
    assert all(d.reward == 1.0 and d.actions == expert(world, d.task) for d in clean)
    noisy = [demonstrate(world, task, rng, mistakes=0.2) for task in tasks]
    marks = [mark for d in noisy for mark in d.mistakes]
    # About 1,600 turns: four sigma of the share is 0.04; turns with one option cannot err. Fixed seed.
    assert 0.14 < np.mean(marks) < 0.24
    assert 0.4 < np.mean([d.reward for d in noisy]) < 0.95
    assert any(any(d.mistakes) and d.reward == 1.0 for d in noisy)
    for d in noisy:
        assert len(d.observations) == len(d.actions) + 1 == len(d.mistakes) + 1
        assert [o.done for o in d.observations] == [False] * len(d.actions) + [True]
    again = [demonstrate(world, task, np.random.default_rng(7), mistakes=0.2) for task in tasks[:5]]
    assert again == [demonstrate(world, task, np.random.default_rng(7), mistakes=0.2) for task in tasks[:5]]
    with pytest.raises(BadInput, match="probability"):
        demonstrate(world, tasks[0], rng, mistakes=1.5)


def test_an_expert_that_only_errs_still_ends():
    world = household_world(2, slip=0.5)
    rng = np.random.default_rng(0)
    for task in world.tasks("train", 5):
        shown = demonstrate(world, task, rng, mistakes=1.0, seed=3)
        assert len(shown.actions) <= world.max_turns
        assert shown.reward is not None


@pytest.mark.parametrize(
    "change",
    [
        {"start": 99},
        {"rooms": ["hall", "moon", "study", "kitchen", "bedroom"]},
        {"goals": [["unicorn", 0]]},
        {"passages": []},
        {"goals": [["coin", 77]]},
        {"things": [["key", "room", 77], ["coin", "room", 0]]},
        {"containers": [["box", 0]]},
        {"things": "apple"},
    ],
)
def test_layouts_that_contradict_themselves_are_refused(change):
    _, task, _ = first_task()
    with pytest.raises(BadInput, match="household"):
        Layout.from_json(task.data["layout"] | change)
