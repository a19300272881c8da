from __future__ import annotations

import pytest

from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.tree.tree import Tree
from refork_methods.cliff.planted import flat_chain, record_trace


@pytest.fixture
def tree():
    with Tree.memory() as made:
        yield made


@pytest.fixture
def judge():
    return MatchJudge("right")


@pytest.fixture
def planted(tree):
    """A 12-token wrong trace that falls from 0.8 to 0.1 at token 5: chain, policy, end of the trace."""
    chain = flat_chain(12, 0.8, 0.1, at=[5], chance=0.9, low=0.2)
    policy = chain.policy()
    start = plant_prompt(tree, policy, "Well?")
    return chain, policy, record_trace(start, policy, chain.text)
