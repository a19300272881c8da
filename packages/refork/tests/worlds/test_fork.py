from __future__ import annotations

import pytest

from refork.errors import BadInput, ReplayDiverged
from refork.worlds import open_world, resume


@pytest.fixture
def recorded():
    world = open_world("household:2")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 3)
    actions, texts = [], []
    for _ in range(4):
        actions.append(episode.game.actions(episode.state)[0])
        texts.append(episode.step(actions[-1]).text)
    return world, task, actions, texts, episode


def test_snapshot_is_restored_and_called_real(recorded):
    world, task, actions, texts, episode = recorded
    back, origin = resume(world, task, 3, actions, texts, episode.snapshot())
    assert origin == "real"
    assert back.snapshot() == episode.snapshot()


def test_without_a_snapshot_the_actions_are_replayed(recorded):
    world, task, actions, texts, episode = recorded
    back, origin = resume(world, task, 3, actions, texts)
    assert origin == "replayed"
    assert back.snapshot() == episode.snapshot()


def test_nothing_to_replay_is_a_fresh_start(recorded):
    world, task, *_ = recorded
    back, origin = resume(world, task, 3, [], [])
    assert origin == "real"
    assert back.snapshot() == world.start(task, 3).snapshot()


def test_the_first_difference_is_named(recorded):
    world, task, actions, texts, _ = recorded
    texts[2] = "the roof is gone"
    with pytest.raises(ReplayDiverged) as caught:
        resume(world, task, 3, actions, texts)
    message = str(caught.value)
    assert "turn 3" in message
    assert "the roof is gone" in message
    assert actions[2] in message
    assert task.id in message


def test_a_record_that_goes_on_after_the_end_diverges():
    world = open_world("lock")
    task = world.tasks("train", 1)[0]
    text = world.start(task, 0).step("x").text
    with pytest.raises(ReplayDiverged, match="end of the episode"):
        resume(world, task, 0, ["x", "x"], [text, text])


def test_chance_makes_a_replay_under_another_seed_diverge():
    world = open_world("gymnasium:FrozenLake-v1")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 1)
    actions = ["right", "down"] * 4
    texts = [episode.step(action).text for action in actions]
    resume(world, task, 1, actions, texts)
    with pytest.raises(ReplayDiverged):
        resume(world, task, 2, actions, texts)


def test_each_action_needs_its_observation(recorded):
    world, task, actions, texts, _ = recorded
    with pytest.raises(BadInput, match="4 actions and 3 observations"):
        resume(world, task, 3, actions, texts[:3])


def test_a_world_that_breaks_on_replay_diverges_and_is_closed(recorded, monkeypatch):
    world, task, actions, texts, episode = recorded
    kind, closed = type(episode), []

    def close(self):
        closed.append(self)

    monkeypatch.setattr(kind, "close", close)

    def broken(self, action):
        raise RuntimeError("the server is gone")

    monkeypatch.setattr(kind, "step", broken)
    with pytest.raises(ReplayDiverged, match=r"turn 1 .*the world broke: RuntimeError: the server is gone"):
        resume(world, task, 3, actions, texts)
    assert len(closed) == 1
