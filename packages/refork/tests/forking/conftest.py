from __future__ import annotations

from collections.abc import Iterator

import pytest

from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import Point
from refork.tree.tree import Tree
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
