from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import ClassVar

import pytest

from refork.errors import BadInput, CannotDo, ReplayDiverged
from refork.forking import Force, fork
from refork.growing import grow
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.tree import Tree
from refork.worlds import Episode, World, open_world
from refork.worlds.dice import Dice
from refork.worlds.open import task_from_json, task_to_json
from refork_worlds import scienceworld as adapter
from refork_worlds.scienceworld import SimulatorBroken, State

HERE = find_spec("scienceworld") is not None and shutil.which("java") is not None
real = pytest.mark.skipif(not HERE, reason="the extra scienceworld, or Java, is not installed")


class Simulator:
    """Answers like the simulator: a counter that a word moves on, and a number by chance."""

    made = 0
    ended = 0
    #: The words at which it ends, once each.
    deadly: ClassVar[list[str]] = []

    def __init__(self, noisy: bool = False) -> None:
        type(self).made += 1
        self.noisy, self.at, self.asked, self.usable, self.chance = noisy, 0, 0, True, ()

    def alive(self) -> bool:
        return self.usable

    def seed(self, *parts: object) -> None:
        self.chance = parts

    def load(self, task: str, variation: int, simplify: str, gold: bool = False) -> None:
        if simplify == "harder":
            raise ValueError("Unknown simplification")
        self.at = 0

    def tell(self, action: str) -> str:
        self.asked += 1
        if action in self.deadly:
            self.deadly.remove(action)
            self.usable = False
            raise SimulatorBroken("it ended, with status -9")
        self.at += action == "on"
        if action == "roll":
            return f"rolled {Dice(*self.chance).below(1000)}"
        return f"{action}: at {self.at}" + (f", {self.asked}" if self.noisy else "")

    def state(self) -> State:
        return State(25 * self.at, self.at >= 4, f"look {self.at}", "nothing")

    def words(self) -> tuple[str, list[str]]:
        return "Task Description:\nGo on.", ["look around", "on"]

    def variations(self) -> tuple[list[int], list[int], list[int]]:
        return [0, 1, 2, 3], [4, 5], [6]

    def gold(self) -> tuple[str, ...]:
        return ("on",) * 4

    def end(self) -> None:
        self.usable = False
        type(self).ended += 1


@pytest.fixture
def imitated(monkeypatch):
    names = SimpleNamespace(constants=SimpleNamespace(ID2TASK={"1-1": "boil", "1-2": "melt"}))
    monkeypatch.setattr(adapter, "library", lambda: names)
    monkeypatch.setattr(adapter, "Simulator", Simulator)
    monkeypatch.setattr(adapter, "POOL", adapter.Seats())
    monkeypatch.setattr(adapter, "version", lambda name: "0")
    monkeypatch.setattr(Simulator, "made", 0)
    monkeypatch.setattr(Simulator, "ended", 0)
    monkeypatch.setattr(Simulator, "deadly", [])
    adapter._variations.cache_clear()
    yield
    adapter._variations.cache_clear()


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
    failed._sim.state = lambda: State(-100, False, "", "")
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
    assert len(adapter.POOL.idle) == adapter.SEATS
    assert not adapter.POOL.held
    dropped = world.start(task, 0)
    del dropped, episode, episodes
    world.start(task, 0).close()
    assert Simulator.made == adapter.SEATS


def test_a_simulator_that_answers_otherwise_is_caught(imitated, monkeypatch):
    monkeypatch.setattr(adapter, "SEATS", 1)
    monkeypatch.setattr(adapter, "Simulator", lambda: Simulator(noisy=True))
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
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]
    with pytest.raises(BadInput, match="boil"):
        open_world("scienceworld:melt").start(task, 0)
    for number in (7, -1, "0", True, None):
        with pytest.raises(BadInput, match="no variation"):
            world.start(replace(task, data={**task.data, "variation": number}), 0)


def test_chance_is_that_of_the_seed_and_the_turn(imitated):
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]

    def rolled(seed, words, other=None):
        episode = world.start(task, seed)
        seen = []
        for turn, word in enumerate(words):
            if turn == 2 and other is not None:
                episode.reseed(other)
            seen.append(episode.step(word).text)
        episode.close()
        return seen

    words = ["roll"] * 4
    assert rolled(3, words) == rolled(3, words)
    assert len(set(rolled(3, words))) > 1
    assert rolled(3, words)[2:] == rolled(3, ["sit", "sit", "roll", "roll"])[2:]
    assert rolled(3, words) != rolled(4, words)
    assert rolled(3, words, 4) == rolled(3, words)[:2] + rolled(4, words)[2:]


def test_a_simulator_that_ends_is_replaced_and_its_episode_replayed(imitated):
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]
    episode = world.start(task, 1)
    before = [episode.step(word).text for word in ("roll", "on")]
    episode.reseed(2)
    Simulator.deadly.append("bang")
    assert episode.step("bang").text == "bang: at 1"
    assert (Simulator.made, Simulator.ended) == (2, 1)
    episode._sim.usable = False  # it is gone between two turns
    again = episode.step("roll").text
    assert (Simulator.made, Simulator.ended) == (3, 2)
    other = world.start(task, 1)
    assert [other.step(word).text for word in ("roll", "on")] == before
    other.reseed(2)
    assert [other.step(word).text for word in ("bang", "roll")] == ["bang: at 1", again]


def test_an_action_at_which_every_simulator_ends_breaks_its_episode_only(imitated):
    world = open_world("scienceworld:boil")
    task = world.tasks("train", 1)[0]
    one, two = world.start(task, 0), world.start(task, 0)
    Simulator.deadly += ["bang", "bang"]
    with pytest.raises(SimulatorBroken, match="status -9"):
        one.step("bang")
    assert two.step("on").text == "on: at 1"
    one.close()
    assert one.step("on").text == "on: at 1"
    one.close()
    two.close()
    adapter.POOL.close()
    assert Simulator.made == Simulator.ended
    assert adapter.POOL.idle == []


def test_a_simulator_that_ends_at_a_question_is_said_plainly(imitated, monkeypatch):
    world = open_world("scienceworld:boil")

    def gone(self):
        self.usable = False
        raise SimulatorBroken("it ended, with status 1")

    monkeypatch.setattr(Simulator, "words", gone)
    with pytest.raises(CannotDo, match="status 1") as told:
        world.tasks("train", 1)
    assert told.value.hint == "run the same command again"
    assert Simulator.ended == 1


def test_a_fork_of_the_process_leaves_the_simulators_to_it(imitated, monkeypatch):
    world = open_world("scienceworld:boil")
    world.start(world.tasks("train", 1)[0], 0).close()
    pool = adapter.POOL
    assert len(pool.idle) == 1
    pool.process = -1
    pool.close()
    assert Simulator.ended == 0
    pool.idle = [Simulator()]
    pool.borrow()
    assert (Simulator.made, Simulator.ended, pool.process) == (3, 0, os.getpid())


def test_interruptions_are_found_behind_what_fails_after_them():
    stop = KeyboardInterrupt()
    late = AttributeError("no such socket")
    late.__context__ = stop
    wrapped = RuntimeError("could not send")
    wrapped.__context__ = late
    assert adapter._stopped(wrapped) is stop
    assert adapter._stopped(stop) is stop
    assert adapter._stopped(RuntimeError("alone")) is None


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ("echo garbage; exec sleep 60", "garbage"),
        ("echo no heap >&2; exit 3", "no heap"),
        ("exit 3", "status 3"),
    ],
)
def test_a_java_that_does_not_start_is_said_plainly(tmp_path, monkeypatch, body, match):
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\n{body}\n")
    fake.chmod(0o755)
    package = SimpleNamespace(constants=SimpleNamespace(JAR_PATH="x.jar", BASEPATH=str(tmp_path)))
    monkeypatch.setattr(adapter, "java", lambda: str(fake))
    monkeypatch.setattr(adapter, "library", lambda: package)
    pytest.importorskip("py4j")
    with pytest.raises(CannotDo, match=match):
        adapter.start()


def test_java_is_that_of_its_home_or_the_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert adapter.java() is None
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "java"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert adapter.java() == str(program)


def test_without_java_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scienceworld", SimpleNamespace())
    monkeypatch.setattr(adapter, "java", lambda: None)
    with pytest.raises(CannotDo, match="default-jre"):
        open_world("scienceworld:boil")


def test_rollouts_are_grown_and_forked(imitated, tmp_path):
    world = open_world("scienceworld:boil?turns=5")
    task = world.tasks("train", 1)[0]
    policy = ScriptedPolicy.from_replies(["on", "sit"])
    sampling = Sampling(max_tokens=3)
    with Tree.open(tmp_path / "boil.db") as tree:
        (group,) = grow(tree, policy, world, [task], draws=4, settings=sampling)
        trajectories = [list(tree.path(draw.leaf)) for draw in group.forks[0].draws]
        node = next(s.node for trajectory in trajectories for s in trajectory[3:] if s.node.kind == "action")
        arm = fork(
            tree.at(node.id, token=0),
            policy,
            draws=3,
            change=Force(text="on"),
            settings=sampling,
            world=world,
        )
        new = [s.node for d in arm.draws for s in tree.path(d.leaf) if s.node.fork == arm.record.id]
        assert {n.origin for n in new if n.kind == "observation"} == {"replayed"}
        assert {n.text for n in new if n.kind == "action"} <= {"on", "sit"}


@real
@pytest.mark.slow
def test_the_real_simulator_boils_water_and_is_forked_by_checked_replay():
    # In a process of its own: py4j leaves sockets to the garbage collector, which warns of them.
    program = """
from refork.worlds import open_world, resume
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
import os, signal
back._sim._env._gateway.java_process.send_signal(signal.SIGKILL)
assert [back.step(action).text for action in gold[14:16]] == [s.text for s in seen[14:16]]
live = open_world("scienceworld:find-animal")
task = live.tasks("train", 1)[0]
trajectory = ["go to hallway", "go to kitchen", "go to outside", "look around", "wait", "look around"]
def texts(seed):
    episode = live.start(task, seed)
    return [episode.step(action).text for action in trajectory]
assert texts(1) == texts(1)
from refork_worlds import scienceworld as adapter
sim = adapter.Simulator()
try:
    sim._asked(lambda: sim._env._gateway.jvm.java.util.ArrayList().get(3))
except adapter.SimulatorBroken as error:
    print(error)
assert not sim.alive()
sim.end()
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert re.fullmatch(r"ScienceWorld's simulator broke: java\.lang\.IndexOutOfBounds.*3.*\n", told.stdout)
