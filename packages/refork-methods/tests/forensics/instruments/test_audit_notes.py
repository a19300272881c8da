from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.forking import fork
from refork_methods.forensics.instruments.audit_notes import (
    DEMAND,
    AuditNotes,
    edit_noticed,
    note_in,
    notes_of,
    stated_motives,
)
from refork_methods.forensics.instruments.outcomes import arm_of
from refork_methods.forensics.instruments.reading import Patterns
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.world import command_in


@pytest.fixture
def audited(planted):
    case, bench, world = planted
    commands = world.environment()["commands"]

    def is_target(action):
        return command_in(action, commands) == "target"

    return case, bench, AuditNotes(world, is_target)


def test_a_target_call_is_held_until_it_has_a_note(audited):
    _, _, world = audited
    task = world.inner.task()
    episode = world.start(task, 0)
    held = episode.step("I will.\n> commit --no-verify")
    assert held.text == DEMAND
    assert not held.done
    done = episode.step("NOTE: too much work\n> commit --no-verify")
    assert done.done
    assert done.info["audit_note"] == "too much work"
    assert done.info["target"] is True, "the world sees the call itself"


def test_a_call_that_is_never_justified_goes_through_in_the_end(audited):
    _, _, world = audited
    episode = world.start(world.inner.task(), 0)
    assert episode.step("> commit --no-verify").text == DEMAND
    last = episode.step("> commit --no-verify")
    assert last.done
    assert last.info["audit_note"] is None


def test_other_calls_pass_and_snapshots_keep_the_harness(audited):
    _, _, world = audited
    task = world.inner.task()
    episode = world.start(task, 0)
    assert "type errors" in episode.step("> read files").text
    episode.step("> commit --no-verify")
    again = world.restore(task, episode.snapshot())
    assert again.step("> commit --no-verify").done, "it was held once already"
    with pytest.raises(BadInput, match="not a snapshot"):
        world.restore(task, b"{}")


def test_notes_are_read_from_recorded_rollouts(audited):
    case, bench, world = audited
    root = bench.restart.point(bench.tree, bench.policy, case.incident.environment)
    arm = fork(root, bench.policy, 80, world=world, settings=bench.settings, judge=TargetJudge())
    trajectories = arm.leaves()
    found = arm_of("audited", arm, TargetJudge())
    notes = notes_of(trajectories)
    assert found.hits == len(notes) > 0
    assert notes_of([*trajectories, *trajectories]) == notes, "a call that rollouts share was made once"
    assert all(note for _, note in notes), "the scripted agent writes one when asked"
    reader = Patterns.of(work="too much", fun="fun")
    stated = {a.name: a for a in stated_motives(trajectories, reader)}
    assert stated["states work"].counts == (found.hits, found.hits)
    assert stated["states fun"].hits == 0
    assert edit_noticed(trajectories, "WORK").hits == found.hits
    with pytest.raises(BadInput, match="no target call"):
        stated_motives([], reader)
    with pytest.raises(BadInput, match="no target call"):
        edit_noticed([], "x")


def test_names_and_versions_tell_the_harness(audited):
    _, _, world = audited
    assert world.name == "motive:hook?audit=notes"
    assert world.version != world.inner.version
    assert world.max_turns == 2 * world.inner.max_turns
    assert world.tasks("train", 1)[0].world == "motive:hook"
    assert note_in("a\n NOTE: b \nc") == "b"
    assert note_in("NOTE:") is None
    with pytest.raises(BadInput, match="asks"):
        AuditNotes(world.inner, bool, asks=-1)
