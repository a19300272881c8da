from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from refork.errors import BadInput, CannotDo
from refork.worlds import open_world, resume
from refork_worlds.gymnasium import tell

NO_SLIP = "gymnasium:FrozenLake-v1?is_slippery=false"


class Echo(gymnasium.Env):
    """A text environment of our own, with chance and with state that cannot be seen from outside."""

    action_space = gymnasium.spaces.Text(8, charset="abc")
    observation_space = gymnasium.spaces.Dict(
        {"said": gymnasium.spaces.Text(8, charset="abc"), "dice": gymnasium.spaces.MultiDiscrete([6, 6])}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return {"said": "a", "dice": np.array([0, 0])}, {}

    def step(self, action):
        dice = self.np_random.integers(0, 6, 2)
        return {"said": action, "dice": dice}, float(dice.sum() == 5), action == "c", False, {}


@pytest.fixture
def echo():
    gymnasium.register("ReforkEcho-v0", entry_point=Echo)
    yield open_world("gymnasium:ReforkEcho-v0")
    del gymnasium.registry["ReforkEcho-v0"]


def play(world, actions, seed=0, number=0):
    episode = world.start(world.tasks("train", number + 1)[number], seed)
    return [episode.step(action) for action in actions]


def test_frozen_lake_by_name_and_by_number():
    world = open_world(NO_SLIP)
    path = ["down", "down", "right", "right", "down", "right"]
    numbers = ["1", "1", "2", "2", "1", "2"]
    assert play(world, path) == play(world, numbers)
    last = play(world, path)[-1]
    assert (last.text, last.done, last.reward) == ("row 3 column 3", True, 1.0)
    assert world.tasks("train", 1)[0].prompt == "FrozenLake-v1 ; actions left down right up"


def test_a_hole_is_graded_zero_and_no_step_before_is_graded():
    seen = play(open_world(NO_SLIP), ["down", "right"])
    assert [s.reward for s in seen] == [None, 0.0]


def test_our_own_turn_limit_counts_nonsense_too():
    world = open_world(NO_SLIP + "&turns=3")
    assert world.max_turns == 3
    seen = play(world, ["jump", "down", "4"])
    assert [s.done for s in seen] == [False, False, True]
    assert seen[0].text == "nothing happens ; row 0 column 0"
    assert seen[-1].reward == 0.0


def test_chance_is_a_function_of_seed_and_turn():
    world = open_world("gymnasium:FrozenLake-v1")
    assert not world.deterministic
    actions = ["right", "down"] * 3
    texts = {tuple(s.text for s in play(world, actions, seed)) for seed in range(12)}
    assert len(texts) > 3
    assert play(world, actions, 5) == play(world, actions, 5)
    # A wasted turn before does not shift the luck of later turns.
    one, two = play(world, ["jump", "right"], 5)[1], play(world, ["jump", "right"], 5)[1]
    assert one == two


@pytest.mark.parametrize(
    ("spec", "fixed"),
    [
        (NO_SLIP, True),
        ("gymnasium:FrozenLake-v1", False),
        ("gymnasium:CliffWalking-v1", True),
        ("gymnasium:Taxi-v4", True),
        ("gymnasium:Taxi-v4?is_rainy=true", False),
        ("gymnasium:Taxi-v4?fickle_passenger=true", False),
        ("gymnasium:Blackjack-v1", False),
    ],
)
def test_deterministic_is_told_from_the_table_of_transitions(spec, fixed):
    world = open_world(spec)
    assert world.deterministic is fixed
    if fixed:
        actions = [str(n % 4) for n in range(30)]
        assert play(world, actions, 1) == play(world, actions, 2)


def test_taxi_and_blackjack_in_words():
    taxi = play(open_world("gymnasium:Taxi-v4"), ["north"])[0].text
    assert taxi.startswith("row ")
    assert " ; passenger " in taxi
    cards = open_world("gymnasium:Blackjack-v1")
    end = play(cards, ["stick"])[0]
    assert end.done
    assert end.reward in (-1.0, 0.0, 1.0, 1.5)


def test_the_return_adds_up():
    world = open_world("gymnasium:CliffWalking-v1?turns=5")
    seen = play(world, ["up"] * 4 + ["right"])
    assert [s.info["step_reward"] for s in seen] == [-1.0] * 5
    assert seen[-1].reward == -5.0


def test_state_keys_merge_equal_observations():
    seen = play(open_world(NO_SLIP), ["right", "left", "right"])
    assert seen[0].state_key == seen[2].state_key != seen[1].state_key


def test_an_unknown_environment_has_no_snapshot_but_replays(echo):
    task = echo.tasks("train", 1)[0]
    assert task.prompt.endswith("actions text")
    episode = echo.start(task, 4)
    assert episode.first.text == "dice 0 0 ; said a"
    actions = ["ab", "no!", "b"]
    texts = [episode.step(action).text for action in actions]
    assert texts[1].startswith("nothing happens ; dice")
    assert episode.snapshot() is None
    with pytest.raises(CannotDo, match="replay"):
        echo.restore(task, b"{}")
    back, origin = resume(echo, task, 4, actions, texts)
    assert origin == "replayed"
    assert back.step("c") == episode.step("c")
    assert back.step("c").done


def test_spaces_that_have_no_words():
    spaces = gymnasium.spaces
    assert tell(spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]), (1, np.array([0, 1]))) == "1 0 1"
    with pytest.raises(CannotDo, match="Box"):
        tell(spaces.Box(0, 1), np.array([0.5]))


def test_tasks_of_another_environment_are_refused():
    task = open_world("gymnasium:Blackjack-v1").tasks("train", 1)[0]
    with pytest.raises(BadInput, match="Blackjack"):
        open_world("gymnasium:FrozenLake-v1").start(task, 0)
