import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from refork.errors import BadInput
from refork.types import token_array
from refork_methods.train.batch import Batch, Sample, pad
from refork_methods.train.policy_gradient import (
    PolicyGradientSettings,
    clip_share,
    clipped_surrogate,
    group_advantages,
    kl_k3,
    policy_gradient_step,
    token_entropy,
    token_logprobs,
)

FREE = PolicyGradientSettings(max_grad_norm=1e9)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# -- advantages -------------------------------------------------------------------------------


def test_group_advantages_by_hand():
    rewards, groups = [1.0, 0.0, 0.0, 1.0, 3.0], ["a", "a", "a", "b", "b"]
    mean = group_advantages(rewards, groups, "mean")
    np.testing.assert_allclose(mean, [2 / 3, -1 / 3, -1 / 3, -1, 1])
    deviation = math.sqrt(2) / 3
    found = group_advantages(rewards, groups)
    np.testing.assert_allclose(found[:3], mean[:3] / deviation)
    np.testing.assert_allclose(found[3:], [-1, 1])


@given(st.floats(-1e6, 1e6), st.integers(1, 9), st.sampled_from(["std", "mean"]))
def test_an_all_equal_group_gives_exactly_zero(value, size, normalise):
    found = group_advantages([value] * size, [0] * size, normalise)
    assert found.tobytes() == np.zeros(size).tobytes()


def test_ungraded_rewards_stay_unknown_and_do_not_move_the_mean():
    found = group_advantages([1.0, np.nan, 0.0, np.nan], [0, 0, 0, 1], "mean")
    np.testing.assert_array_equal(found, [0.5, np.nan, -0.5, np.nan])


@pytest.mark.parametrize("normalise", ["std", "mean"])
def test_rewards_that_differ_by_rounding_are_equal(normalise):
    assert group_advantages([0.1 + 0.2, 0.3, 0.3], [0, 0, 0], normalise).tolist() == [0.0, 0.0, 0.0]
    assert group_advantages([0.3, 0.3 + 1e-6], [0, 0], normalise).any()


def test_group_advantages_refuse():
    with pytest.raises(BadInput, match="median"):
        group_advantages([1.0], [0], "median")
    with pytest.raises(BadInput, match="group names"):
        group_advantages([1.0, 2.0], [0])


# -- token terms ------------------------------------------------------------------------------


def test_token_logprobs_and_entropy_by_hand():
    logits = torch.log(torch.tensor([[[1.0, 1, 2], [1, 3, 4], [1, 1, 1]]]))
    found = token_logprobs(logits, torch.tensor([[1, 2, 0]]))
    torch.testing.assert_close(found, torch.log(torch.tensor([[1.0, 1 / 2, 1 / 8]])))
    entropy = token_entropy(logits)
    expected = [0, 1.5 * math.log(2), -(math.log(1 / 8) / 8 + math.log(3 / 8) * 3 / 8 + math.log(1 / 2) / 2)]
    torch.testing.assert_close(entropy, torch.tensor([expected]))


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),  # on policy: minus the advantage times the score
        (1.1, 2.0, -2.2, -2.2),
        (1.5, 2.0, -2.56, 0.0),  # above 1.28 with a positive advantage: clipped
        (1.5, -2.0, 3.0, 3.0),  # a worse token that got likelier is never clipped
        (0.5, -2.0, 1.6, 0.0),  # below 0.8 with a negative advantage: clipped
        (0.5, 2.0, -1.0, -1.0),
        (1.5, 0.0, 0.0, 0.0),
    ],
)
def test_clipped_surrogate_by_hand(ratio, advantage, loss, gradient):
    sampled = tensor(-1.5)
    logprobs = (sampled + math.log(ratio)).requires_grad_()
    found = clipped_surrogate(logprobs, sampled, tensor(advantage), 0.2, 0.28)
    found.backward()
    assert found.item() == pytest.approx(loss)
    assert logprobs.grad.item() == pytest.approx(gradient)
    clipped = clip_share(logprobs.detach(), sampled, tensor(advantage), 0.2, 0.28).item()
    assert clipped == float(gradient == 0 and advantage != 0)


def test_k3_by_hand():
    logprobs = tensor(math.log(0.5), math.log(0.2), math.log(0.3)).requires_grad_()
    reference = tensor(math.log(0.25), math.log(0.4), math.log(0.3))
    found = kl_k3(logprobs, reference)
    expected = tensor(0.5 - math.log(0.5) - 1, 2 - math.log(2) - 1, 0.0)
    torch.testing.assert_close(found.detach(), expected)
    found.sum().backward()
    # d/dx (exp(r - x) - (r - x) - 1) = 1 - exp(r - x)
    torch.testing.assert_close(logprobs.grad, tensor(0.5, -1.0, 0.0))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_k3_is_unbiased_over_the_policy_and_never_negative(weights, random):
    policy = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    shuffled = list(weights)
    random.shuffle(shuffled)
    reference = torch.tensor(shuffled, dtype=torch.float64) / sum(shuffled)
    terms = kl_k3(policy.log(), reference.log())
    assert (terms >= -1e-12).all()
    exact = (policy * (policy / reference).log()).sum()
    torch.testing.assert_close((policy * terms).sum(), exact, atol=1e-9, rtol=1e-9)


# -- the step ---------------------------------------------------------------------------------


def sample(model, tokens, learned, advantages, shift=0.0):
    ids = torch.tensor([tokens])
    logprobs = token_logprobs(model(ids).logits, ids)[0].detach().numpy() + shift
    return Sample(
        token_array(tokens), np.array(learned, dtype=bool), logprobs, np.array(advantages, dtype=np.float64)
    )


def gradient(model, batch, settings=FREE):
    before = model.table.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    metrics = policy_gradient_step(model, optimizer, batch, settings)
    return before - model.table.detach(), metrics


def test_on_policy_gradient_is_reinforce_with_a_baseline(table):
    model = table()
    samples = [
        sample(model, [0, 1, 2, 3], [0, 1, 1, 0], [9, 0.5, 0.5, 9]),
        sample(model, [0, 3, 1], [0, 1, 1], [0, -0.25, -0.25]),
    ]
    found, metrics = gradient(model, pad(samples))
    # The update has moved the table: take the gradient where it was.
    model2 = table()
    loss = 0
    for item in samples:
        ids = torch.tensor([item.tokens.tolist()])
        logprobs = token_logprobs(model2(ids).logits, ids)[0]
        loss = loss - (logprobs * torch.tensor(item.advantages))[torch.tensor(item.mask)].sum()
    (loss / 4).backward()
    torch.testing.assert_close(found, model2.table.grad, atol=1e-6, rtol=1e-5)
    assert metrics["sampler_difference"] < 1e-6
    assert metrics["clip_share"] == 0
    assert metrics["tokens"] == 4
    assert metrics["rows"] == 2
    assert metrics["kl"] is None
    assert metrics["grad_norm"] == pytest.approx(model2.table.grad.norm().item(), rel=1e-5)


def test_one_token_by_hand(table):
    model = table(3)
    with torch.no_grad():
        model.table[:] = torch.log(tensor(1, 1, 2))
    found, metrics = gradient(model, pad([sample(model, [0, 2], [0, 1], [0, 3.0])]))
    # Minus the advantage times (one-hot - distribution), in the row of the token before.
    torch.testing.assert_close(found[0], tensor(0.75, 0.75, -1.5), atol=1e-6, rtol=0)
    assert (found[1:] == 0).all()
    assert metrics["loss"] == pytest.approx(-3.0)
    assert metrics["entropy"] == pytest.approx(1.5 * math.log(2))


def test_zero_advantage_gives_no_gradient_at_all(table):
    model = table()
    found, metrics = gradient(model, pad([sample(model, [0, 1, 2, 3], [0, 1, 1, 1], [0.0] * 4)]))
    assert (found == 0).all()
    assert metrics["grad_norm"] == 0


def test_tokens_outside_the_mask_do_not_matter(table):
    model = table()
    one = sample(model, [0, 1, 2, 3], [0, 0, 1, 0], [0, 5.0, 1.0, -7.0])
    two = sample(model, [0, 1, 2, 3], [0, 0, 1, 0], [0, 0.0, 1.0, 0.0])
    nan = Sample(
        one.tokens,
        one.mask,
        np.where(one.mask, one.logprobs_t1, np.nan),
        one.advantages * [np.nan, np.nan, 1, np.nan],
    )
    results = [gradient(table(), pad([item]))[0] for item in (one, two, nan)]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def llama():
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=11, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
            )
        ).double()  # fmt: skip


def widened(batch, extra):
    def grow(part, value):
        return torch.nn.functional.pad(part, (0, extra), value=value)

    return Batch(
        grow(batch.tokens, 7), grow(batch.attention, False), grow(batch.mask, False),
        grow(batch.logprobs_t1, 0.0), grow(batch.advantages, 0.0),
    )  # fmt: skip


def test_padding_and_splitting_do_not_change_the_update():
    samples = []
    for row, tokens in enumerate([[1, 2, 3], [4, 5, 6, 7, 8, 9], [2, 4, 6, 8]]):
        learned = [0, *[1] * (len(tokens) - 1)]
        samples.append(sample(llama(), tokens, learned, [0.5 - row] * len(tokens)))
    batch = pad(samples)
    updates = []
    for part, rows in ((batch, 32), (widened(batch, 5), 32), (batch, 1), (pad(samples, pad_id=9), 2)):
        model = llama()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        settings = PolicyGradientSettings(max_grad_norm=1e9, micro_rows=rows)
        metrics = policy_gradient_step(model, optimizer, part, settings)
        updates.append((metrics, [p.detach() for p in model.parameters()]))
    for metrics, weights in updates[1:]:
        assert metrics.pop("kl") is None
        assert metrics == pytest.approx({k: v for k, v in updates[0][0].items() if k != "kl"}, rel=1e-5)
        for a, b in zip(weights, updates[0][1], strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_a_policy_that_moved_is_seen_and_clipped(table):
    model = table()
    batch = pad([sample(model, [0, 1, 2, 3], [0, 1, 1, 1], [1.0] * 4, shift=-0.5)])
    found, metrics = gradient(model, batch)
    # Every ratio is exp(0.5) with a positive advantage: all clipped at 1.2, no gradient.
    assert (found == 0).all()
    assert metrics["clip_share"] == 1
    assert metrics["sampler_difference"] == pytest.approx(0.5, rel=1e-5)
    assert metrics["loss"] == pytest.approx(-1.2)


def test_the_gradient_norm_is_bounded(table):
    model = table()
    found, metrics = gradient(
        model, pad([sample(model, [0, 1], [0, 1], [0, 100.0])]), PolicyGradientSettings(max_grad_norm=0.5)
    )
    assert metrics["grad_norm"] > 1
    assert found.norm().item() == pytest.approx(0.5, rel=1e-4)


def test_the_kl_term_pulls_to_the_reference(table):
    model = table()
    plain = sample(model, [0, 1, 2], [0, 1, 1], [0.0] * 3)
    reference = plain.logprobs_t1 + math.log(2)
    batch = pad([Sample(plain.tokens, plain.mask, plain.logprobs_t1, plain.advantages, reference)])
    settings = PolicyGradientSettings(kl_weight=0.1, max_grad_norm=1e9)
    found, metrics = gradient(model, batch, settings)
    assert metrics["kl"] == pytest.approx(1 - math.log(2), rel=1e-5)
    assert metrics["loss"] == pytest.approx(0.1 * (1 - math.log(2)), rel=1e-5)
    assert found[0, 1] < 0  # the update raises the token's logit
    with pytest.raises(BadInput, match="reference"):
        gradient(table(), pad([plain]), settings)


def test_nothing_learned_and_nothing_finite_are_refused_without_an_update(table):
    model = table()
    with pytest.raises(BadInput, match="no token"):
        gradient(model, pad([sample(model, [0, 1], [0, 0], [0, 0])]))
    before = model.table.detach().clone()
    broken = sample(model, [0, 1], [0, 1], [0, 1.0])
    batch = pad([broken])
    batch.advantages[:] = float("inf")
    with pytest.raises(BadInput, match="not finite"):
        gradient(model, batch)
    assert torch.equal(model.table, before)


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip_low": 0},
        {"clip_low": 1},
        {"clip_high": 0},
        {"kl_weight": -1},
        {"max_grad_norm": 0},
        {"micro_rows": 0},
    ],
)
def test_bad_settings(wrong):
    with pytest.raises(BadInput):
        PolicyGradientSettings(**wrong)
