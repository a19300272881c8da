"""Rejected drafts on the tree: beside the draws they left, and counted by nobody."""

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork.forking import fork
from refork.growing.plant import plant_prompt
from refork.policies.base import Sampling
from refork.tree.tree import Tree
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.on_tree import pruned, record_rejected
from support.drafters import gqa, knowing


@pytest.fixture(scope="module")
def drawn():
    """A fork drawn with a drafter, and what was drafted and not said."""
    target = gqa()
    rejected = []
    policy = SpeculativeDecoder(target, knowing(target), rule="coupled", on_rejected=rejected.extend)
    tree = Tree.memory()
    point = plant_prompt(tree, policy, "Well?")
    arm = fork(point, policy, draws=5, settings=Sampling(max_tokens=12))
    said = [step.node for trajectory in arm.leaves() for step in trajectory if step.node.noise is not None]
    return tree, target, said, rejected, policy.card.extra["speculate"]["drafter"]


def test_rejected_suffixes_are_pruned_siblings_of_what_was_said(drawn):
    tree, target, said, rejected, drafter = drawn
    assert len(said) == 5
    assert rejected
    leaves = {node.id for node in tree.leaves()}
    made = record_rejected(tree, target, said, rejected, drafter=drafter)
    by_noise = {node.noise: node for node in said}
    for node, item in zip(made, rejected, strict=True):
        own = by_noise[item.noise]
        assert (node.parent, node.keep, node.fork) == (own.parent, own.keep, own.fork)
        assert node.tokens[: item.offset].tolist() == own.tokens[: item.offset].tolist()
        assert node.tokens[item.offset :].tolist() == item.tokens.tolist()
        assert node.tokens[item.offset] != own.tokens[item.offset]
        assert (node.weights, node.logprobs, node.logprobs_t1) == (drafter, None, None)
        assert pruned(node)
        assert not pruned(own)
    # Said once more, nothing is added; what was said is still a leaf, and the tree is sound.
    assert record_rejected(tree, target, said, rejected, drafter=drafter) == made
    assert leaves <= {node.id for node in tree.leaves()}
    assert not [finding for finding in tree.verify() if finding.severity == "error"]
    [record] = tree.forks()
    assert len(tree.draws(record.id)) == 5


def test_a_suffix_that_left_nothing_recorded_is_refused(drawn):
    tree, target, said, rejected, drafter = drawn
    with pytest.raises(BadInput, match="leaves no recorded action"):
        record_rejected(tree, target, said, [replace(rejected[0], offset=99)], drafter=drafter)
    with pytest.raises(BadInput, match="leaves no recorded action"):
        record_rejected(tree, target, [], rejected[:1], drafter=drafter)
    [task] = tree.tasks()
    with pytest.raises(BadInput, match="draws of a fork"):
        record_rejected(tree, target, [task], rejected[:1], drafter=drafter)
    assert record_rejected(tree, target, said, [], drafter=drafter) == []
    assert np.isin([node.kind for node in said], ["action"]).all()
