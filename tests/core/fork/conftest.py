from __future__ import annotations

from collections.abc import Iterator

import pytest

from refork.core.grow.plant import plant_prompt
from refork.core.judge import MatchJudge
from refork.core.policy.scripted import ScriptedPolicy
from refork.core.tree.node import Point
from refork.core.tree.tree import Tree
from support.chain import TABLE


@pytest.fixture
def policy() -> ScriptedPolicy:
    return ScriptedPolicy.from_chain(TABLE)


@pytest.fixture
def judge() -> MatchJudge:
    return MatchJudge("right")


@pytest.fixture
def tree() -> Iterator[Tree]:
    with Tree.memory() as made:
        yield made


@pytest.fixture
def start(tree: Tree, policy: ScriptedPolicy) -> Point:
    return plant_prompt(tree, policy, "Well?")
