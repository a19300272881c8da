from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork_methods.cliff.dpo import (
    CliffDpoSettings,
    Lora,
    cliff_dpo,
    single_token_dpo,
    token_margin,
)
from refork_methods.cliff.pairs import Pair
from refork_testbed.models.build import new_model
from refork_testbed.models.recipe import Shape
from refork_testbed.models.tokenizer import make_tokenizer


def logits(seed, rows=5, size=30):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.05, 0.5])
def test_the_gradient_touches_exactly_two_logits(beta):
    z = logits(0).requires_grad_()
    chosen, rejected = torch.tensor([1, 4, 7, 0, 29]), torch.tensor([2, 3, 8, 29, 0])
    reference = torch.linspace(-1, 1, 5, dtype=torch.float64)
    loss = single_token_dpo(z, chosen, rejected, reference, beta)
    loss.sum().backward()
    assert ((z.grad != 0).sum(dim=1) == 2).all(), "exactly zero elsewhere, not only small"
    margin = token_margin(z, chosen, rejected).detach() - reference
    for i in range(5):
        push = beta / (1 + np.exp(beta * float(margin[i])))
        assert float(z.grad[i, chosen[i]]) == pytest.approx(-push, rel=1e-12)
        assert float(z.grad[i, rejected[i]]) == pytest.approx(push, rel=1e-12)


def test_the_loss_is_sigmoid_dpo():
    z, ref = logits(1), logits(2)
    chosen, rejected = torch.arange(5), torch.arange(5) + 10
    distribution, old = torch.log_softmax(z, -1), torch.log_softmax(ref, -1)
    pick = torch.arange(5)
    plain = (distribution[pick, chosen] - old[pick, chosen]) - (
        distribution[pick, rejected] - old[pick, rejected]
    )
    expected = -torch.nn.functional.logsigmoid(0.05 * plain)
    found = single_token_dpo(z, chosen, rejected, token_margin(ref, chosen, rejected))
    assert torch.allclose(found, expected, atol=1e-12)


def test_the_released_form_adds_the_end_of_sequence():
    z = logits(3, rows=1)
    one, two = torch.tensor([1]), torch.tensor([2])
    end = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)
    plain = single_token_dpo(z, one, two, torch.zeros(1, dtype=torch.float64))
    found = single_token_dpo(z, one, two, torch.zeros(1, dtype=torch.float64), end=end)
    found.backward()
    assert found < plain
    assert end.grad < 0, "ending after the chosen token is pushed up: P(end | token) moves too"


@pytest.fixture
def policy():
    return tiny()


def tiny():
    from refork.policies.local import LocalPolicy

    torch.manual_seed(0)
    tokenizer = make_tokenizer(("one", "two", "three"), 32)
    model = new_model(Shape(layers=1, width=16, heads=2, hidden=32, context=32), tokenizer)
    return LocalPolicy(model.eval(), tokenizer, name="tiny")


def pairs_for(policy):
    prompts = [tuple(int(t) for t in policy.encode(text)) for text in ("one two", "two one", "three", "one")]
    a, b = int(policy.encode(" one")[0]), int(policy.encode(" two")[0])
    return [Pair(p, a, b, "uncertain", 0.5, 0.6, 0.1, cliff=f"c{i}") for i, p in enumerate(prompts)]


SETTINGS = CliffDpoSettings(learning_rate=1e-2, rows=2, accumulate=1, epochs=8, held_out=0.0, lora=None)


def test_training_moves_the_margin(policy):
    pairs = pairs_for(policy)
    before = policy.card.weights
    distribution = [policy.next_logprobs([np.array(p.prompt_tokens, dtype=np.int32)])[0] for p in pairs]
    done = cliff_dpo(policy, pairs, SETTINGS)
    after = [policy.next_logprobs([np.array(p.prompt_tokens, dtype=np.int32)])[0] for p in pairs]
    for p, old, new in zip(pairs, distribution, after, strict=True):
        assert new[p.chosen] - new[p.rejected] > old[p.chosen] - old[p.rejected]
    assert len(done.log) == 8 * 2
    assert done.loss_tokens == 4 * 8 * 2
    assert done.log[0]["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert policy.card.weights != before


def test_training_is_repeatable(policy):
    import copy

    twin = copy.deepcopy(policy.model)
    first = cliff_dpo(policy, pairs_for(policy), SETTINGS)
    from refork.policies.local import LocalPolicy

    again = LocalPolicy(twin, policy.codec, name="tiny")
    assert [r["loss"] for r in cliff_dpo(again, pairs_for(again), SETTINGS).log] == [
        r["loss"] for r in first.log
    ]


def test_an_adapter_is_drawn_from_the_settings_seed():
    plan = CliffDpoSettings(learning_rate=1e-2, rows=2, accumulate=1, held_out=0.0, lora=Lora(rank=2))
    logs = []
    for seed in (1, 2):
        fresh = tiny()
        torch.manual_seed(seed)
        logs.append([row["loss"] for row in cliff_dpo(fresh, pairs_for(fresh), plan).log])
        assert torch.initial_seed() == seed
        after = torch.rand(1)
        torch.manual_seed(seed)
        assert after == torch.rand(1), "the caller's generator is left as it was"
    assert logs[0] == logs[1]


def test_an_adapter_can_be_trained_and_pairs_held_out(policy):
    settings = CliffDpoSettings(
        learning_rate=1e-2, rows=2, accumulate=1, held_out=0.5, lora=Lora(rank=2, alpha=4, dropout=0.0),
        eos_compat=True,
    )  # fmt: skip
    done = cliff_dpo(policy, pairs_for(policy), settings)
    assert done.held_out == 2
    assert done.pairs == 2
    assert done.accuracy_after is not None
    trained = {n for n, p in policy.model.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora" in name for name in trained)


def test_refusals(policy):
    with pytest.raises(BadInput, match="no pairs"):
        cliff_dpo(policy, [])
    with pytest.raises(BadInput, match="outside the vocabulary"):
        cliff_dpo(policy, [Pair((1, 2), 3, 99999, None, 0.5, 0.5, 0.1)])
    with pytest.raises(BadInput, match="beta"):
        CliffDpoSettings(beta=0)
    with pytest.raises(BadInput, match="held_out"):
        CliffDpoSettings(held_out=1.0)
