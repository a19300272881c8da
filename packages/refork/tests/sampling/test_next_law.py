from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import NextDistribution
from refork.policies.scripted import ScriptedPolicy
from refork.types import token_array


def test_a_scripted_policy_says_its_law():
    policy = ScriptedPolicy.from_chain({"": {" a": 0.25, " b": 0.75}, " a": {"": 1.0}, " b": {"": 1.0}})
    assert isinstance(policy, NextDistribution)
    distribution = policy.next_logprobs([token_array([1])])[0]
    assert np.exp(distribution).sum() == pytest.approx(1.0)
    assert np.exp(distribution[policy.encode(" a")[0]]) == pytest.approx(0.25)
    with pytest.raises(BadInput, match="empty"):
        policy.next_logprobs([token_array([])])


def test_a_local_policy_says_the_law_it_scores_with():
    import torch

    from refork.policies.local import LocalPolicy
    from refork_testbed.models.build import new_model
    from refork_testbed.models.recipe import Shape
    from refork_testbed.models.tokenizer import make_tokenizer

    torch.manual_seed(0)
    tokenizer = make_tokenizer(("one", "two"), 32)
    model = new_model(Shape(layers=2, width=16, heads=2, hidden=32, context=32), tokenizer)
    policy = LocalPolicy(model.eval(), tokenizer, name="tiny")
    sequence = policy.encode("one two one two")
    prefixes = [token_array(sequence[:n]) for n in range(1, len(sequence))]
    distributions = policy.next_logprobs([*prefixes, prefixes[0]])
    given = policy.logprobs([sequence])[0]
    for place, distribution in enumerate(distributions[:-1]):
        assert distribution.shape == (policy.card.vocabulary,)
        assert distribution[sequence[place + 1]] == pytest.approx(given[place], abs=1e-4)
    assert np.allclose(distributions[-1], distributions[0], atol=1e-5)
    with pytest.raises(BadInput, match="empty"):
        policy.next_logprobs([token_array([])])
