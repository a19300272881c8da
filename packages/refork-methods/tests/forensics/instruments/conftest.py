from __future__ import annotations

import pytest

from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.forensics.bench import Bench, restart
from refork_methods.forensics.case import Case
from refork_methods.forensics.incident import Incident, Target
from refork_methods.forensics.target import TargetJudge
from refork_testbed.worlds.motives.agents import find_agent
from refork_testbed.worlds.motives.world import motive_world


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


def bench_of(tree, agent, seed=0):
    """A scripted agent in its scene: case, bench, world."""
    world = motive_world(agent.scene)
    policy, grader, environment = agent.policy(), TargetJudge(), world.environment()
    case = Case.memory(Incident(agent.name, policy.card, environment, Target("target", grader.producer)))
    bench = Bench(tree, policy, grader, restart(world), Sampling(max_tokens=40), seed)
    return case, bench, world


@pytest.fixture
def planted(tree):
    """The tedium agent's bench."""
    return bench_of(tree, find_agent("tedium"))


@pytest.fixture
def make_bench(tree):
    return lambda name, seed=0: bench_of(tree, find_agent(name), seed)
