from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from ramify.core.errors import BadInput, CannotDo, ReplayDiverged
from ramify.core.fork import Force, fork
from ramify.core.grow import grow
from ramify.core.policy.base import Sampling
from ramify.core.policy.scripted import ScriptedPolicy
from ramify.core.tree.tree import Tree
from ramify.core.world import Episode, World, open_world
from ramify.core.world.adapters import scienceworld as adapter
from ramify.core.world.open import task_from_json, task_to_json

HERE = find_spec("scienceworld") is not None and shutil.which("java") is not None
real = pytest.mark.skipif(not HERE, reason="pip install 'ramify[scienceworld]', and Java")


class Server:
    """Answers like the simulator's Java side: a counter that a word moves on."""

    def __init__(self, noisy: bool) -> None:
        self.noisy, self.at, self.asked = noisy, 0, 0

    def reset(self) -> None:
        self.at = 0

    def step(self, action: str) -> str:
        self.asked += 1
        self.at += action == "on"
        return f"{action}: at {self.at}" + (f", {self.asked}" if self.noisy else "")

    def getScore(self) -> float:  # noqa: N802
        return self.at / 4

    def getCompleted(self) -> bool:  # noqa: N802
        return self.at >= 4

    def freeActionLook(self) -> str:  # noqa: N802
        return f"look {self.at}"

    def freeActionInventory(self) -> str:  # noqa: N802
        return "nothing"


class Simulator:
    """The package's class, as far as the adapter uses it."""

    made = 0

    def __init__(self, noisy: bool = False) -> None:
        type(self).made += 1
        self.server = Server(noisy)

    def load(self, task: str, variation: int, simplify: str, gold: bool = False) -> None:
        if simplify == "harder":
            raise ValueError("Unknown simplification")
        self.server.reset()

    def get_variations_train(self) -> list[int]:
        return [0, 1, 2, 3]

    def get_variations_dev(self) -> list[int]:
        return [4, 5]

    def get_variations_test(self) -> list[int]:
        return [6]

    def get_task_description(self) -> str:
        return "Task Description:\nGo on."

    def get_possible_actions(self) -> list[str]:
        return ["on", "look around"]

    def get_gold_action_sequence(self) -> list[str]:
        return ["on"] * 4

    def close(self) -> None:
        pass


@pytest.fixture
def imitated(monkeypatch):
    names = SimpleNamespace(constants=SimpleNamespace(ID2TASK={"1-1": "boil", "1-2": "melt"}))
    monkeypatch.setattr(adapter, "_library", lambda: names)
    monkeypatch.setattr(adapter, "_simulator", Simulator)
    monkeypatch.setattr(adapter, "_POOL", adapter._Seats())
    monkeypatch.setattr(adapter, "version", lambda name: "0")
    monkeypatch.setattr(Simulator, "made", 0)


def test_variations_are_tasks_and_the_packages_parts_are_the_splits(imitated):
    world = open_world("scienceworld:1-1")
    assert isinstance(world, World)
    assert (world.name, world.max_turns, world.deterministic) == ("scienceworld:boil", 100, False)
    train = world.tasks("train", 4)
    assert sorted(t.data["variation"] for t in train) == [0, 1, 2, 3]
    assert world.tasks("train", 2) == train[:2]
    assert {t.data["variation"] for t in world.tasks("held-out", 2)} == {4, 5}
    assert open_world("scienceworld:boil?part=test").tasks("held-out", 1)[0].data["variation"] == 6
    assert train[0].prompt == "Go on.\nActions: look around ; on"
    assert any(world.tasks("train", 4, seed=s) != train for s in range(1, 9))
    assert task_from_json(world, json.loads(json.dumps(task_to_json(train[0])))) == train[0]
    with pytest.raises(BadInput, match="there are 2 held-out variations, not 3"):
        world.tasks("held-out", 3)


def test_scores_are_fractions_given_once(imitated):
    world = open_world("scienceworld:boil?turns=6")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 0)
    assert isinstance(episode, Episode)
    seen = [episode.step(" on\n") for _ in range(4)]
    assert [s.info["score"] for s in seen] == [25, 50, 75, 100]
    assert [s.reward for s in seen] == [None, None, None, 1.0]
    assert seen[0].text == "on: at 1"
    assert episode.step("on").text == seen[-1].text
    late = world.start(task, 0)
    assert [late.step(word).reward for word in ("on", "sit", "sit", "sit", "sit", "sit")][-1] == 0.25
    failed = world.start(task, 0)
    failed._sim.server.getScore = lambda: -1.0
    last = failed.step("on")
    assert (last.done, last.reward, last.info["score"]) == (True, 0.0, -100)


def test_more_episodes_than_seats_take_turns(imitated):
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]
    episodes = [world.start(task, 0) for _ in range(5)]
    for turn in range(1, 4):
        for number, episode in enumerate(episodes):
            word = "on" if number % 2 else "sit"
            assert episode.step(word).text == f"{word}: at {turn if number % 2 else 0}"
    assert Simulator.made == adapter.SEATS
    for episode in episodes:
        episode.close()
    assert len(adapter._POOL.idle) == adapter.SEATS
    assert not adapter._POOL.held
    dropped = world.start(task, 0)
    del dropped, episode, episodes
    world.start(task, 0).close()
    assert Simulator.made == adapter.SEATS


def test_a_simulator_that_answers_otherwise_is_caught(imitated, monkeypatch):
    monkeypatch.setattr(adapter, "SEATS", 1)
    monkeypatch.setattr(adapter, "_simulator", lambda: Simulator(noisy=True))
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]
    one, two = world.start(task, 0), world.start(task, 0)
    with pytest.raises(ReplayDiverged, match="look around"):
        one.step("on")
    two.close()
    with pytest.raises(CannotDo, match="replay"):
        world.restore(task, b"")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("scienceworld:fly", "no task 'fly'"),
        ("scienceworld", "no task ''"),
        ("scienceworld:boil?turns=0", "turns"),
        ("scienceworld:boil?part=train", "part"),
        ("scienceworld:boil?simplify=harder", "simplify"),
        ("scienceworld:boil?speed=3", "unknown option"),
    ],
)
def test_bad_specifications_are_refused(imitated, spec, match):
    with pytest.raises(BadInput, match=match):
        open_world(spec)


def test_tasks_of_another_kind_are_refused(imitated):
    task = open_world("scienceworld:boil").tasks("train", 1)[0]
    with pytest.raises(BadInput, match="boil"):
        open_world("scienceworld:melt").start(task, 0)


def test_without_java_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scienceworld", SimpleNamespace())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CannotDo, match="default-jre"):
        open_world("scienceworld:boil")


def test_rollouts_are_grown_and_forked(imitated, tmp_path):
    world = open_world("scienceworld:boil?turns=5")
    task = world.tasks("train", 1)[0]
    policy = ScriptedPolicy.from_replies(["on", "sit"])
    law = Sampling(max_tokens=3)
    with Tree.open(tmp_path / "boil.db") as tree:
        (group,) = grow(tree, policy, world, [task], draws=4, settings=law)
        walks = [list(tree.path(draw.leaf)) for draw in group.forks[0].draws]
        node = next(s.node for walk in walks for s in walk[3:] if s.node.kind == "action")
        arm = fork(
            tree.at(node.id, token=0), policy, draws=3, change=Force(text="on"), settings=law, world=world
        )
        new = [s.node for d in arm.draws for s in tree.path(d.leaf) if s.node.fork == arm.record.id]
        assert {n.origin for n in new if n.kind == "observation"} == {"replayed"}
        assert {n.text for n in new if n.kind == "action"} <= {"on", "sit"}


@real
@pytest.mark.slow
def test_the_real_simulator_boils_water_and_is_forked_by_checked_replay():
    # In a process of its own: py4j leaves sockets to the garbage collector, which warns of them.
    program = """
from ramify.core.world import open_world, resume
world = open_world("scienceworld:boil?simplify=easy")
task = world.tasks("train", 1)[0]
gold = world.gold(task)
episode = world.start(task, 0)
seen = [episode.step(action) for action in gold]
assert (seen[-1].done, seen[-1].reward) == (True, 1.0), seen[-1]
assert "No known action" in world.start(task, 0).step("sing a song").text
back, origin = resume(world, task, 0, gold[:9], [s.text for s in seen[:9]])
assert origin == "replayed"
assert [back.step(action).text for action in gold[9:14]] == [s.text for s in seen[9:14]]
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
