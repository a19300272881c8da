"""The scripted agent as a policy on the tree."""

from __future__ import annotations

import pytest

from refork.forking import SwapPolicy, compare, fork
from refork.growing.plant import plant
from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork.tree.tree import Tree
from refork.types import token_array
from refork.worlds import open_world
from refork_testbed.worlds.miniapps.advice import Text, statement
from refork_testbed.worlds.miniapps.agents import (
    Agent,
    ScriptTool,
    thought_in,
)
from refork_testbed.worlds.miniapps.mind import Rates
from refork_testbed.worlds.miniapps.policy import agent_policy

LAW = Sampling(max_tokens=600)


def test_the_policy_says_what_the_session_says():
    world = open_world("miniapps")
    task = world.tasks("train", 8)[7]
    policy = agent_policy(Agent())
    session, episode = Agent().open(task.prompt), world.start(task, 0)
    messages = [{"role": "user", "content": task.prompt}]
    tokens = policy.render([], token_array([]), messages).tokens
    for turn in range(40):
        said = sample_all(policy, [Request(tokens, NoiseKey(3, 1, 0, turn))], LAW)[0]
        assert said.finish == "stop"
        assert said.text == session.say(thought_in(said.text))
        seen = episode.step(said.text)
        if seen.done:
            break
        session.see(seen.text)
        messages.append({"role": "assistant", "content": said.text})
        tokens = token_array([*tokens, *said.tokens])
        new = {"role": "user", "content": seen.text}
        tokens = token_array([*tokens, *policy.render(messages, tokens, [new]).tokens])
        messages.append(new)
    assert seen.done


def test_forks_on_the_tree_are_graded_paired_and_may_begin_in_the_middle():
    world = open_world("miniapps")
    task = next(t for t in world.tasks("train", 90) if t.data["template"] == "pay-person")
    told = Agent(texts=(Text("fact", statement("person", "exact")),))
    with Tree.memory() as tree:
        policy = agent_policy(Agent(), name="none")
        root = plant(tree, policy, world, [task])[0]
        arms = [
            fork(root, one, draws=6, world=world, settings=LAW, seed=0)
            for one in (policy, agent_policy(told, name="told"))
        ]
        walks = [[tree.path(draw.leaf) for draw in arm.draws] for arm in arms]
        assert all(draw.end == "done" for arm in arms for draw in arm.draws)
        assert all(walk.leaf.text in ("success", "failure") for these in walks for walk in these)
        thoughts = [[thought_in(walk.steps[1].node.text) for walk in these] for these in walks]
        assert thoughts[0] == thoughts[1]
        assert len(set(thoughts[0])) == 6
        # after two turns of one draw, on with another memory: both arms restore the world's snapshot
        second = [step.node for step in walks[0][0].steps if step.node.kind == "observation"][1]
        other = agent_policy(told, name="told", since=2, before=Agent())
        ends = [
            fork(tree.at(second), policy, draws=4, change=change, world=world, settings=LAW, seed=1)
            for change in (None, SwapPolicy(other))
        ]
        assert all(draw.end == "done" for arm in ends for draw in arm.draws)
        effect = compare(*ends, score="success")
        assert -1.0 <= effect.difference <= 1.0


def test_what_the_agent_would_not_have_said_ends_the_turn():
    policy = agent_policy(Agent())
    task = open_world("miniapps").tasks("train", 1)[0]
    tokens = policy.render([], token_array([]), [{"role": "user", "content": task.prompt}]).tokens
    begun = token_array([*tokens, *policy.encode("# 0001\napis.weather")])
    said = sample_all(policy, [Request(begun, NoiseKey(0, 0, 0))], LAW)[0]
    assert (said.text, said.finish) == ("", "stop")


def test_another_memory_is_another_policy():
    tool = ScriptTool("reply", {})
    agents = [Agent(), Agent(texts=(Text("fact", "x"),)), Agent(tools=(tool,)), Agent(Rates(misled=0.1))]
    assert len({agent_policy(agent).card.weights for agent in agents}) == 4


@pytest.mark.parametrize("action", ["apis.mail.list_inbox(access_token='x')", "```\ndone()\n```"])
def test_a_turn_may_be_fenced(action):
    world = open_world("miniapps")
    seen = world.start(world.tasks("train", 1)[0], 0).step(f"Well.\n{action}")
    assert 'status_code": 400' not in seen.text
