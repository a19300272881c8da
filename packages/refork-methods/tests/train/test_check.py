from dataclasses import replace

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork.forking import fork
from refork.growing import RandomNode, grow_trees, plant_prompt
from refork.policies.base import Sampling
from refork.tree.node import NewNode
from refork.tree.tree import Tree
from refork_methods.train.check import check_logprobs, check_tree, worst_difference

LAW = Sampling(max_tokens=6)


def test_the_worst_difference_by_hand():
    assert worst_difference([-1.0, -2.0, -3.0], [-1.0, np.nan, -2.5]) == (2, 0.5)
    assert worst_difference([], []) == (-1, 0.0)
    assert worst_difference([np.nan, -1.0], [-1.0, -1.0]) == (0, np.inf)


@pytest.fixture
def grown(counting):
    tree = Tree.memory()
    start = plant_prompt(tree, counting, "one two")
    fork(start, counting, 12, settings=LAW, seed=1)
    return tree, counting


def test_a_sound_sampler_passes(grown):
    tree, policy = grown
    found = check_tree(tree, policy.model, policy.card.weights)
    assert found.problems == ()
    assert found.rollouts == 12
    assert found.largest < 1e-4


def test_a_wrong_log_prob_is_found_at_its_token(grown):
    tree, policy = grown
    trajectories = tree.paths([node.id for node in tree.leaves()])
    node = trajectories[3].leaf
    wrong = node.logprobs_t1.copy()
    wrong[1] += 0.01
    steps = (
        *trajectories[3].steps[:-1],
        replace(trajectories[3].steps[-1], node=replace(node, logprobs_t1=wrong)),
    )
    trajectories[3] = replace(trajectories[3], steps=steps)
    (problem,), largest = check_logprobs(policy.model, trajectories, rows=5)
    assert (problem.leaf, problem.node, problem.token) == (node.id, node.id, 1)
    assert problem.expected - problem.value == pytest.approx(0.01, abs=1e-4)
    assert largest == pytest.approx(0.01, abs=1e-4)
    assert check_logprobs(policy.model, trajectories, tolerance=0.1)[0] == []


def test_every_context_of_a_rollout_is_compared(grown):
    """What was said before the context was rewritten was sampled too."""
    tree, policy = grown
    first = tree.paths([node.id for node in tree.leaves()])[0]
    wrong = replace(first.leaf, logprobs_t1=first.leaf.logprobs_t1 + 1)
    again = replace(first.root, id="again", kind="rewrite")
    steps = (*first.steps[:-1], replace(first.steps[-1], node=wrong), replace(first.steps[0], node=again))
    (problem,), _ = check_logprobs(policy.model, [replace(first, steps=steps)])
    assert (problem.node, problem.value - problem.expected) == (wrong.id, pytest.approx(-1, abs=1e-4))


def test_a_log_prob_that_is_none_comes_first(grown):
    tree, policy = grown
    rest = tree.paths([node.id for node in tree.leaves()])[:4]
    gaps = [0.5, 0.1, 0.0, 2.0]
    moved = [
        replace(path, steps=(*path.steps[:-1], replace(
            path.steps[-1], node=replace(path.leaf, logprobs_t1=path.leaf.logprobs_t1 + gap))))
        for path, gap in zip(rest, gaps, strict=True)
    ]  # fmt: skip

    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = policy.model

        def forward(self, **given):
            found = self.inner(**given)
            found.logits[2] = torch.nan
            return found

    problems, largest = check_logprobs(Broken(), moved)
    assert [problem.leaf for problem in problems] == [rest[i].leaf.id for i in (2, 3, 0, 1)]
    assert largest == np.inf


def test_a_check_of_nothing_is_refused(grown):
    tree, policy = grown
    leaf = next(tree.leaves())
    more = NewNode(kind="action", parent=leaf.id, key="more", tokens=leaf.tokens, weights="1" * 64)
    tree.append([more])
    with pytest.raises(BadInput, match="turns of other weights too"):
        check_tree(tree, policy.model, "1" * 64)


def test_rollouts_of_other_weights_are_refused(grown):
    tree, policy = grown
    with pytest.raises(BadInput, match="no rollout of weights") as error:
        check_tree(tree, policy.model, "0" * 64)
    assert policy.card.weights[:12] in str(error.value)


def test_forks_inside_a_turn_are_compared_too(counting):
    from support.worlds import TwoTurns

    world = TwoTurns()
    with Tree.memory() as tree:
        grow_trees(
            tree, counting, world, world.tasks("train", 2), selector=RandomNode(0, 3, 2), leaves=9,
            settings=LAW,
        )  # fmt: skip
        found = check_tree(tree, counting.model, counting.card.weights)
    assert found.rollouts == 18
    assert found.largest < 1e-4
