from __future__ import annotations

import builtins

import pytest

from refork.errors import BadInput, MissingExtra
from refork.registry import names
from refork.worlds import World, open_world
from refork.worlds.open import Named, recorded_world
from refork.worlds.spec import Spec, family


def test_a_specification_is_taken_apart():
    spec = Spec.parse('reasoning-gym:chain_sum?min_terms=2&after=answer&compact=true&operators=["+"]')
    assert (spec.name, spec.argument) == ("reasoning-gym", "chain_sum")
    assert spec.options == {"min_terms": 2, "after": "answer", "compact": True, "operators": ["+"]}
    assert Spec.parse("lock") == Spec("lock", "", {}, "")


@pytest.mark.parametrize("spec", ["maze:3,3,3", "household:2", "lock"])
def test_defaults(spec):
    assert open_world(spec.partition(":")[0]).name == spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("moon", ["there is no world 'moon'", *names("worlds")]),
        ("", ["there is no world"]),
        ("mase:3,3,3", ["did you mean maze"]),
        ("household:0", ["size 0", "1 and 2"]),
        ("household:3", ["size 3"]),
        ("household:big", ["big"]),
        ("household:2?slip=2", ["slip", "probability"]),
        ("household:2?slip=much", ["slip", "much"]),
        ("household:2?slap=0.1", ["slap", "slip"]),
        ("household:2?slip", ["option=value"]),
        ("maze:3,3", ["3,3", "maze:3,3,3"]),
        ("maze:a,b,c", ["a,b,c"]),
        ("maze:0,1,1", ["W is 0"]),
        ("maze:2,-1,1", ["K is -1"]),
        ("maze:2,1,0", ["L is 0"]),
        ("maze:3,3,3?cap=7", ["cap is 7", "8"]),
        ("maze:3,3,3?cap=true", ["cap"]),
        ("lock:3", ["no argument"]),
        ("lock?size=3", ["size", "none"]),
        ("reasoning-gym:nothing", ["nothing", "chain_sum"]),
        ("reasoning-gym:chain_sum?colour=3", ["colour"]),
        ("reasoning-gym:chain_sum?min_terms=0", ["refused"]),
        ("reasoning-gym:chain_sum?seed=1", ["seed"]),
        ("reasoning-gym:chain_sum?extract=box", ["box", "extract=tag"]),
        ("reasoning-gym:chain_sum?extract=tag&after=x", ["exclude"]),
        ("gymnasium:Moon-v9", ["Moon-v9"]),
        ("gymnasium:Taxi-v3", ["Taxi-v3"]),
        ("gymnasium:FrozenLake-v1?turns=0", ["turns"]),
        ("gymnasium:FrozenLake-v1?colour=3", ["colour"]),
        ("gymnasium:CartPole-v1", ["Box"]),
    ],
)
def test_what_cannot_be_opened_says_why(spec, words):
    from refork.errors import UserError

    with pytest.raises(UserError) as caught:
        open_world(spec)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("spec", "package"), [("reasoning-gym:chain_sum", "reasoning_gym"), ("gymnasium:Taxi-v4", "gymnasium")]
)
def test_absent_packages_name_the_extra(monkeypatch, spec, package):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match="pip install 'gymnasium>="):
        open_world(spec)


def test_tasks_of_another_world_are_refused():
    lock = open_world("lock").tasks("train", 1)[0]
    grid = open_world("household:1").tasks("train", 1)[0]
    house = open_world("household:2").tasks("train", 1)[0]
    maze = open_world("maze:2,2,2").tasks("train", 1)[0]
    for spec, task in [
        ("household:2", lock),
        ("household:1", house),
        ("household:2", grid),
        ("maze:3,2,2", maze),
        ("lock", maze),
        ("gymnasium:Taxi-v4", open_world("gymnasium:Blackjack-v1").tasks("train", 1)[0]),
        ("reasoning-gym:chain_sum", open_world("reasoning-gym:decimal_chain_sum").tasks("train", 1)[0]),
    ]:
        with pytest.raises(BadInput):
            open_world(spec).start(task, 0)


def test_a_task_goes_on_in_a_variant_of_its_world():
    task = open_world("household:2").tasks("train", 1)[0]
    slippery = open_world("household:2?slip=1")
    episode = slippery.start(task, 0)
    assert "slipped" in episode.step(episode.game.actions(episode.state)[0]).info


OWN = """
from dataclasses import dataclass
from refork.worlds.base import Observation, Task
from refork.worlds.lock import LockWorld
from refork.worlds.open import open_world
from refork.worlds.spec import Spec, family


@dataclass(frozen=True)
class Toy:
    size: int = 2
    name: str = "toy"
    version: str = "1"
    max_turns: int = 1
    deterministic: bool = True
    inside = open_world("lock")

    def tasks(self, split, count, seed=0):
        found = self.inside.tasks(split, count, seed)
        return [Task(t.id, self.name, t.split, t.prompt, t.data) for t in found]

    def start(self, task, seed):
        assert task.world == self.name
        return self.inside.start(Task(task.id, "lock", task.split, task.prompt, task.data), seed)

    def restore(self, task, snapshot):
        raise NotImplementedError


thing = Toy(3)


def by_spec(spec: Spec):
    return Toy(int(spec.argument or 0) + spec.options.get("more", 0))


def by_options(*, size: int = 1, more: int = 0):
    return Toy(size + more)


def no_world():
    return 3


def broken():
    return 1 / 0


number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_worlds.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("rest", "size"),
    [
        ("Toy", 2),
        ("Toy?size=5", 5),
        ("Toy:4", "4"),
        ("thing", 3),
        ("by_spec:4?more=2", 6),
        ("by_options", 1),
        ("by_options?size=4&more=1", 5),
    ],
)
@pytest.mark.parametrize("place", ["./own_worlds.py", "own_worlds"])
def test_a_world_of_ones_own(own, place, rest, size):
    spec = f"{place}:{rest}"
    world = open_world(spec)
    assert world.size == size
    assert world.name == spec
    assert isinstance(world, World)
    # The name opens it again, and its tasks carry the name.
    task = open_world(world.name).tasks("train", 1)[0]
    assert task.world == spec
    world.start(task, 0).close()


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("Toy?colour=3", ["unknown option 'colour'", "size"]),
        ("thing?size=3", ["unknown option 'size'"]),
        ("thing:3", ["takes no argument"]),
        ("by_options:3", ["takes no argument"]),
        ("no_world", ["this is no world but int", "tasks", "docs/worlds.md"]),
        ("number", ["this is no world but int"]),
        ("broken", ["ZeroDivisionError", "own_worlds.py:46"]),
        ("By_spec", ["has no 'By_spec'", "by_spec"]),
    ],
)
def test_what_is_no_world_of_ones_own_says_why(own, rest, words):
    with pytest.raises(BadInput) as told:
        open_world(f"./own_worlds.py:{rest}")
    shown = f"{told.value} {told.value.where} {told.value.hint}"
    assert all(word in shown for word in words), shown


def test_shipped_worlds_keep_their_names_and_types():
    for spec in (
        "maze:3,3,3",
        "household:2?slip=0.5",
        "lock",
        "toolcall:4",
        "refusal:P",
        "miniapps",
        "phone",
        "desktop",
        "motive:email?turns=9",
        "house-rules",
        "repair",
        "search",
        "specialists",
        "swe",
        "terminal",
        "tools:shop",
        "web",
    ):
        assert open_world(spec).name == spec
        assert not isinstance(open_world(spec), Named)


def test_families():
    assert family("household:2?slip=1") == family("simulated:household") == "household"
    assert family("./a/w.py:World?x=1") == family("w.py:World:3") == "w.py:World"
    assert family("w.py:Other") != family("w.py:World")


def test_a_name_with_colons_is_taken_apart(own):
    assert Spec.parse("./own_worlds.py:by_spec:a:b?x=1") == Spec(
        "./own_worlds.py:by_spec", "a:b", {"x": 1}, "x=1"
    )
    assert Spec.parse("web:http://localhost:80/a.py:b") == Spec("web", "http://localhost:80/a.py:b", {}, "")


@pytest.mark.parametrize(
    "spec",
    [
        "./evil.py:World",
        "evil:World",
        "evil.inner:World",
        "tools:mcp?command=touch%20done",
        "web?chromium=./evil",
        "miniwob:click-test?chromium=./evil",
        "gymnasium:evil:Env-v0",
        "verifiers:evil",
    ],
)
def test_what_a_record_names_is_not_run(tmp_path, monkeypatch, spec):
    line = f"open({str(tmp_path / 'done')!r}, 'w')\nWorld = 1\n"
    (tmp_path / "evil").mkdir()
    for file in ("evil.py", "evil/__init__.py", "evil/inner.py"):
        (tmp_path / file).write_text(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInput) as told:
        recorded_world(spec)
    assert "--world SPEC" in told.value.hint
    assert not (tmp_path / "done").exists()
    assert recorded_world("maze:2,1,1").name == "maze:2,1,1"
