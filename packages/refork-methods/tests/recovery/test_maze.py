from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from refork.errors import BadInput
from refork.worlds import open_world
from refork.worlds.expert import demonstrate, expert
from refork_methods.recovery.maze import maze_world


def test_the_texts_are_those_of_the_documentation():
    world = maze_world(3, 1, 3)
    task = world.tasks("train", 1)[0]
    data = {"shape": [3, 1, 3], "names": [17, 4, 9], "target": 1}
    episode = world.start(type(task)("t", world.name, "train", task.prompt, data), 0)
    assert episode.first.text == "source ; exits out"
    script = {
        "go out": "fork ; came out ; exits branch 17 branch 4 branch 9",
        "go branch 9": "branch 9 left 0 ; came out ; exits in edge 0 edge 1 edge 2",
        "go edge 2": "branch 9 right 0 ; came out by edge 2 ; exits edge 0 edge 1 edge 2 out",
        "go out ": "branch 9 leaf ; came out ; dead end ; exits in",
        "go in": "branch 9 right 0 ; came in ; exits edge 0 edge 1 edge 2 out",
        "go edge 1": "branch 9 left 0 ; came in by edge 1 ; exits in edge 0 edge 1 edge 2",
        "go in ": "fork ; came in from branch 9 ; exits branch 17 branch 4 branch 9",
        "go branch 4": "branch 4 left 0 ; came out ; exits in edge 0 edge 1 edge 2",
        "go edge 0": "branch 4 right 0 ; came out by edge 0 ; exits edge 0 edge 1 edge 2 out",
        " go out": "branch 4 leaf ; came out ; target reached",
    }
    for action, text in script.items():
        seen = episode.step(action)
        assert seen.text == text
    assert (seen.done, seen.reward) == (True, 1.0)


def test_state_key_is_node_and_direction_only():
    world = maze_world(2, 1, 2)
    first, second = world.tasks("train", 2)

    def key(task, branch, edge):
        episode = world.start(task, 0)
        name = task.data["names"][branch]
        return [episode.step(a).state_key for a in ("go out", f"go branch {name}", f"go edge {edge}")][-1]

    assert key(first, 0, 0) == key(first, 0, 1) == key(second, 0, 0)
    assert key(first, 0, 0) != key(first, 1, 0)
    episode = world.start(first, 0)
    name = first.data["names"][0]
    keys = [episode.step(a).state_key for a in ("go out", f"go branch {name}", "go in")]
    assert keys[0] != keys[2], "the fork reached from a branch is another state than reached from the source"


@pytest.mark.parametrize("spec", ["maze:3,3,3", "maze:2,1,1", "maze:5,2,4"])
def test_the_expert_takes_a_shortest_path(spec):
    world = open_world(spec)
    for task in world.tasks("train", 20):
        path = expert(world, task)
        episode = world.start(task, 0)
        seen = [episode.step(action) for action in path][-1]
        assert (seen.done, seen.reward) == (True, 1.0)
        assert len(path) == 2 * int(spec.split(",")[1]) + 2


def test_every_branch_is_the_target_equally_often():
    targets = Counter(t.data["target"] for t in maze_world(3, 2, 2).tasks("train", 600))
    # Three sigma of Binomial(600, 1/3) is 35; the seed is fixed.
    assert all(abs(count - 200) < 35 for count in targets.values())


def test_the_cap_ends_the_walk_with_zero():
    world = open_world("maze:2,1,1?cap=4")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    seen = [episode.step("go west") for _ in range(4)]
    assert [s.done for s in seen] == [False, False, False, True]
    assert seen[-1].reward == 0.0
    assert seen[-1].text.endswith("; time is up")
    assert maze_world(3, 3, 3).max_turns == 72


def test_the_target_at_the_last_turn_counts():
    world = open_world("maze:2,1,1?cap=4")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert [episode.step(a) for a in expert(world, task)][-1].reward == 1.0


def test_refused_and_warned_shapes():
    with pytest.warns(UserWarning, match="no dead ends"):
        maze_world(1, 2, 2)
    with pytest.raises(BadInput, match="2 K \\+ 2 = 6"):
        maze_world(3, 2, 2, cap=5)
    with pytest.raises(BadInput, match="different"):
        maze_world(2, 1, 1).tasks("train", 1200)


def test_demonstrations_with_mistakes_recover():
    world = maze_world(3, 2, 2)
    rng = np.random.default_rng(0)
    shown = [demonstrate(world, task, rng, mistakes=0.3) for task in world.tasks("train", 60)]
    golden = [demonstrate(world, task, rng) for task in world.tasks("train", 5)]
    assert all(g.actions == expert(world, g.task) and not any(g.mistakes) for g in golden)
    assert all(d.reward == 1.0 for d in shown if len(d.actions) < world.max_turns)
    assert any(any(d.mistakes) and d.reward == 1.0 for d in shown)
    assert any(" came in" in o.text for d in shown for o in d.observations)
