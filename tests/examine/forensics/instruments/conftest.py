from __future__ import annotations

import pytest

from refork.core.policy.base import Sampling
from refork.core.tree.tree import Tree
from refork.core.world.motives import TargetJudge, find_agent, motive_world
from refork.examine.forensics.bench import Bench, restart
from refork.examine.forensics.case import Case
from refork.examine.forensics.incident import Incident, Target


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
