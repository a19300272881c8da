from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.worlds.base import Task
from refork.worlds.expert import expert
from refork_testbed.worlds.household.build import household_world


def test_key_then_goal_on_a_6_by_6_grid():
    world = household_world(1)
    assert world.max_turns == 30
    data = {"start": [0, 0], "key": [0, 2], "goal": [1, 0]}
    task = Task("t", world.name, "train", "", data)
    assert expert(world, task) == ("go east", "go east", "take key", "go south", "go west", "go west")
    episode = world.start(task, 0)
    assert episode.first.text == "row 0 column 0 ; hold nothing"
    assert episode.step("go north").text == "nothing happens ; row 0 column 0 ; hold nothing"
    assert episode.step("go south").text == "row 1 column 0 ; hold nothing", "the goal needs the key"
    assert episode.step("take key").info == {"invalid": True}


def test_five_actions_and_72_observations():
    world = household_world(1)
    actions, states = set(), set()
    for task in world.tasks("train", 30):
        game = world.game(task)
        queue = [game.begin]
        here = set(queue)
        for state in queue:
            states.add(game.view(state))
            for action in game.actions(state):
                actions.add(action)
                after = game.act(state, action)
                if after not in here:
                    here.add(after)
                    queue.append(after)
        # 36 cells without the key, 36 with it, of which the goal ends.
        assert len(here) == 72
    assert actions == {"go north", "go south", "go west", "go east", "take key"}
    assert len(states - {"task done"}) == 72


def test_the_shortest_way_is_two_walks_and_a_grip():
    world = household_world(1)
    for task in world.tasks("held-out", 50):
        (sr, sc), (kr, kc), (gr, gc) = (task.data[k] for k in ("start", "key", "goal"))
        trajectory = abs(sr - kr) + abs(sc - kc) + abs(kr - gr) + abs(kc - gc)
        assert len(expert(world, task)) == trajectory + 1


def test_cells_off_the_grid_are_refused():
    world = household_world(1)
    with pytest.raises(BadInput, match="off the 6 x 6 grid"):
        world.start(Task("t", world.name, "train", "", {"start": [0, 6], "key": [0, 0], "goal": [1, 1]}), 0)
