from __future__ import annotations

import builtins

import pytest

from refork.core.errors import BadInput, MissingExtra
from refork.core.world import open_world
from refork.core.world.open import KNOWN
from refork.core.world.spec import Spec


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
        ("moon", ["moon", *KNOWN]),
        ("", ["unknown world"]),
        ("household:0", ["size 0", "1 to 6"]),
        ("household:7", ["size 7"]),
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
    from refork.core.errors import UserError

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
        ("household:3", house),
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
