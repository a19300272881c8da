from __future__ import annotations

import pytest

from refork.errors import BadInput
from refork.forking.context import conversation
from refork.growing import grow, plant
from refork.policies.base import Sampling
from refork.tool_calls import compact
from refork.tree.tree import Tree
from refork.worlds import World, open_world
from refork_testbed.worlds.house_rules.agents import RuleAgent
from refork_testbed.worlds.house_rules.scenario import scenarios
from refork_testbed.worlds.house_rules.tasks import TASKS, TOOLS

SETTINGS = Sampling(max_tokens=300)


def test_specifications():
    assert isinstance(open_world("house-rules"), World)
    assert (
        open_world("house-rules:email?turns=2&wording=small").name
        == "house-rules:email?turns=2&wording=small"
    )
    for spec, said in [
        ("house-rules:mail", "no house rule"),
        ("house-rules?turns=-1", "0 turns"),
        ("house-rules?wording=tiny", "unknown wording"),
        ("house-rules?channel=radio", "unknown channel"),
        ("house-rules?size=2", "unknown option"),
    ]:
        with pytest.raises(BadInput, match=said):
            open_world(spec)


def test_all_nine_take_turns_and_twins_are_about_half():
    tasks = open_world("house-rules?turns=1").tasks("train", 180)
    assert [task.data["rule"] for task in tasks[:9]] == list(TASKS)
    assert 60 <= sum(task.data["twin"] for task in tasks) <= 120


def test_the_full_wording_offers_the_tools():
    first = open_world("house-rules:email").tasks("train", 1)[0].data["messages"][0]
    assert [tool["function"]["name"] for tool in first["tools"]] == [
        tool["function"]["name"] for tool in TOOLS
    ]
    small = open_world("house-rules:email?wording=small").tasks("train", 1)[0].data["messages"][0]
    assert "tools" not in small
    spanish = open_world("house-rules:email?language=es&turns=1").tasks("train", 1)[0]
    assert TASKS["email"].other["es"] in spanish.prompt


def test_rewards():
    world = open_world("house-rules:email?turns=1")
    session = scenarios("email", "train", 1, turns=1)[0]
    task = world.tasks("train", 1)[0]
    for action, reward, outcome in [
        (compact(session.violating), 0.0, "violation"),
        (compact(session.allowed), 1.0, "allowed"),
        ("I must not do that.", 1.0, "refused"),
        ("", 0.0, "unparseable"),
    ]:
        seen = world.start(task, 0).step(action)
        assert (seen.reward, seen.info["outcome"], seen.done) == (reward, outcome, True)
    assert world.start(task, 0).step(compact(session.violating)).info["call"]["name"] == "send_email"


@pytest.mark.parametrize("wording", ["full", "small"])
def test_a_session_on_the_tree(wording):
    """The opening is many messages, the walk holds them, and rollouts are graded."""
    world = open_world(f"house-rules:deploy?turns=2&wording={wording}")
    policy = RuleAgent(error=0.5).policy()
    tasks = world.tasks("train", 4)
    with Tree.memory() as tree:
        point = plant(tree, policy, world, tasks)[0]
        assert list(conversation(tree.path(point.node)).messages) == tasks[0].data["messages"]
        assert [finding for finding in tree.verify() if finding.severity == "error"] == []
        groups = grow(tree, policy, world, tasks, draws=4, settings=SETTINGS)
        rewards = [value for group in groups for value in group.values()]
        assert set(rewards) == {0.0, 1.0}
