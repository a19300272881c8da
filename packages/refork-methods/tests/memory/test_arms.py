from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork_methods.memory.catalogue import schemas
from refork_methods.memory.induce import skeleton_of
from refork_methods.memory.stream import Help, StreamAgent, StreamTask
from refork_testbed.trials.memory_arms import MiniAppsAgent, compare_arms, tool_world
from refork_testbed.worlds.miniapps.world import MiniAppsWorld


@pytest.fixture(scope="module")
def compared():
    world = MiniAppsWorld(templates="seen")
    return compare_arms(["none", "text", "code", "metis"], world, tasks=45, held_out=15, theta=1, seed=1)


def test_the_arms_learn_and_are_tested(compared):
    assert compared["none"].memory is None
    assert not compared["text"].memory.state.tools
    assert compared["code"].memory.state.live_tools()
    tools = compared["metis"].memory.state.live_tools()
    assert 0 < len(tools) < len(compared["code"].memory.state.live_tools())
    for arm in compared.values():
        assert len(arm.report.rows) == 15
        assert arm.to_json()["figures"]["arm"] == arm.report.arm


def test_tools_are_called_and_save_steps(compared):
    assert any(row.called for row in compared["code"].report.rows)
    assert compared["code"].report.steps < compared["text"].report.steps <= compared["none"].report.steps
    assert not any(row.called for row in compared["text"].report.rows)


def test_arms_are_paired_and_repeat():
    world = MiniAppsWorld(templates="seen")
    one, other = (compare_arms(["text"], world, tasks=9, held_out=6)["text"].report for _ in range(2))
    assert one == other
    alone = compare_arms(["none", "text"], world, tasks=9, held_out=6)
    assert alone["text"].report == one


def test_a_run_becomes_a_trajectory_with_a_skeleton():
    world = MiniAppsWorld(templates="seen")
    tasks = {task.id: task for task in world.tasks("train", 30)}

    def no_plans(name):
        raise AssertionError(name)

    agent = MiniAppsAgent(world, tasks, no_plans)
    assert isinstance(agent, StreamAgent)
    row = [
        StreamTask(task.id, str(task.data["query"]), str(task.data["scenario"])) for task in tasks.values()
    ]
    outcomes = [agent.work(task, Help()) for task in row]
    done = [one.run for one in outcomes if one.success]
    assert all(run.success and run.query not in run.context for run in done)
    known = set(schemas(world))
    for run in done:
        assert {step.function for step in run.steps if step.function} <= known
    assert sum(bool(skeleton_of(run)) for run in done) >= 0.8 * len(done)


def test_what_is_no_arm_or_no_world_is_refused():
    world = MiniAppsWorld()
    for names in ([], ["wild"]):
        with pytest.raises(BadInput, match="no arm"):
            compare_arms(names, world)
    with pytest.raises(BadInput, match="no tools to give"):
        tool_world("lock")
