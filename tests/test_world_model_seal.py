"""The seal of benchmarks/world_model.py: what of sealed tasks was there before is found, whatever it is."""

from dataclasses import replace

import pytest

from refork.worlds.environment import Brief, EnvTrajectory
from refork.worlds.open import open_world
from support.toolbox import load_benchmark

part = load_benchmark("world_model").sealing
Seal, marks, seal_of = part.Seal, part.marks, part.seal_of
WORLDS = ("terminal?brief=labels", "tools?brief=labels")


@pytest.fixture(scope="module", params=WORLDS)
def drawn(request):
    world = open_world(request.param)
    sealed = world.tasks("held-out", 12, part.SEED)
    return sealed, world.tasks("train", 40), world.tasks("held-out", 60)


def test_sealed_tasks_are_new(drawn):
    found = seal_of(*drawn)
    assert found == Seal(12, 0, 0, 0, 0)
    assert found.whole


def test_what_was_there_before_breaks_the_seal(drawn):
    sealed, trained, earlier = drawn
    again = seal_of([*sealed, trained[3]], trained, earlier)
    assert (again.trained, again.earlier, again.marks > 0, again.whole) == (1, 0, True, False)
    seen = seal_of([*sealed, earlier[3]], trained, earlier)
    assert (seen.trained, seen.earlier, seen.marks, seen.whole) == (0, 1, 0, False)
    # A task of its own on a path, or of a composition, that training has.
    other = replace(sealed[0], id="new", data=trained[0].data)
    near = seal_of([other], trained, earlier)
    assert (near.trained, near.earlier, near.whole) == (0, 0, False)
    assert near.marks == len(marks(trained[0])) > 0
    assert not seal_of([], trained, earlier).whole


def test_the_quick_form_is_not_sealed_nor_is_an_episode_of_an_unknown_task(monkeypatch):
    monkeypatch.setattr(part, "WORLDS", {"tools?brief=labels": 20})
    monkeypatch.setattr(part, "EARLIER", 30)
    world = open_world("tools?brief=labels")

    def episode(task):
        return EnvTrajectory(id=task.id, source="s", brief=Brief(), turns=(), extra={"task": task.id})

    lessons = [episode(task) for task in world.tasks("train", 20)]
    asked = [episode(task) for task in world.tasks("held-out", 5, part.SEED)]
    assert part.seal(asked, lessons, 5, part.SEED).whole
    looked_at = part.seal([episode(task) for task in world.tasks("held-out", 5)], lessons, 5, 0)
    assert (looked_at.earlier, looked_at.whole) == (5, False)
    stray = EnvTrajectory(id="x", source="s", brief=Brief(), turns=(), extra={"task": "x"})
    assert part.seal(asked, [*lessons, stray], 5, part.SEED).strange == 1
    assert not part.seal([*asked, stray], lessons, 5, part.SEED).whole
