import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.types import token_array
from refork_methods.train.batch import Sample, pad
from refork_methods.train.objectives import (
    OBJECTIVES,
    PolicyGradientSettings,
    objective,
    overlong_penalty,
    sequence_anchor,
    token_weights,
)
from refork_methods.train.policy_gradient import clipped_surrogate, policy_gradient_step, token_logprobs

MASK = torch.tensor([[0, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)


@pytest.mark.parametrize(
    ("average", "expected"),
    [("tokens", [1 / 4, 1 / 4]), ("rows", [1 / 6, 1 / 2]), ("constant", [1 / 20, 1 / 20])],
)
def test_token_weights_by_hand(average, expected):
    found = token_weights(MASK, average, rows=2, tokens=4, longest=10)
    assert found[~MASK].eq(0).all()
    np.testing.assert_allclose(found[0, 1:], expected[0])
    np.testing.assert_allclose(found[1, 2], expected[1])
    if average != "constant":
        assert float(found.sum()) == pytest.approx(1)


@given(st.lists(st.floats(-2, 2), min_size=3, max_size=3), st.floats(-3, 3))
def test_the_sequence_form_has_the_value_and_gradient_of_the_plain_one(shift, advantage):
    sampled = torch.tensor([[0.0, -1.0, -2.0, -0.5]], dtype=torch.float64)
    mask = torch.tensor([[False, True, True, True]])
    moved = torch.tensor([[0.0, *shift]], dtype=torch.float64)

    def loss(form):
        logprobs = (sampled + moved).requires_grad_()
        if form == "token":
            anchor = sequence_anchor(logprobs, sampled, mask)
            terms = clipped_surrogate(logprobs, anchor, torch.tensor(advantage), 0.2, 0.3)[mask]
            value = terms.mean()
        else:
            ratio = torch.exp((logprobs - sampled)[mask].mean())
            value = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.3) * advantage)
        value.backward()
        return value.detach(), logprobs.grad

    ours, plain = loss("token"), loss("sequence")
    torch.testing.assert_close(ours[0], plain[0])
    # On the clip's border the two may stop a gradient by rounding alone.
    if abs(math.exp(sum(shift) / 3) - 0.8) > 1e-9 and abs(math.exp(sum(shift) / 3) - 1.3) > 1e-9:
        torch.testing.assert_close(ours[1], plain[1])


def test_advantages_may_differ_along_a_sequence():
    sampled = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
    logprobs = (sampled + 0.05).requires_grad_()
    mask = torch.ones(1, 2, dtype=torch.bool)
    anchor = sequence_anchor(logprobs, sampled, mask)
    clipped_surrogate(logprobs, anchor, torch.tensor([[1.0, -2.0]]), 0.2, 0.2).sum().backward()
    ratio = math.exp(0.05)
    np.testing.assert_allclose(logprobs.grad, [[-ratio, 2 * ratio]])


def test_overlong_penalty_by_hand():
    found = overlong_penalty([0, 80, 90, 100, 130], limit=100, soft=20)
    np.testing.assert_allclose(found, [0, 0, -0.5, -1, -1])
    for soft in (0, 101):
        with pytest.raises(BadInput, match="soft"):
            overlong_penalty([1], 100, soft)


def test_objectives_by_name():
    assert objective("plain") == PolicyGradientSettings()
    dapo, gspo = objective("dapo"), objective("gspo", micro_rows=2)
    assert (dapo.clip_low, dapo.clip_high, dapo.average) == (0.2, 0.28, "tokens")
    assert (gspo.ratio, gspo.clip_low, gspo.clip_high, gspo.micro_rows) == ("sequence", 3e-4, 4e-4, 2)
    assert objective("grpo", kl_weight=0.04).average == "rows"
    assert objective("dr-grpo", longest=8).longest == 8
    with pytest.raises(BadInput, match="unknown objective"):
        objective("ppo")
    with pytest.raises(BadInput, match="no setting 'beta'"):
        objective("grpo", beta=1)
    with pytest.raises(BadInput, match="longest"):
        objective("dr-grpo")
    with pytest.raises(BadInput, match="ratio"):
        PolicyGradientSettings(ratio="row")
    with pytest.raises(BadInput, match="average"):
        PolicyGradientSettings(average="median")


def sample(model, tokens, advantages):
    ids = torch.tensor([tokens])
    logprobs = token_logprobs(model(ids).logits, ids)[0].detach().numpy() + 0.1
    mask = np.array([False] + [True] * (len(tokens) - 1))
    return Sample(token_array(tokens), mask, logprobs, np.array(advantages, dtype=np.float64))


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_accumulated_passes_make_the_update_of_one_pass(table, name):
    found = []
    for rows in (8, 1, 2):
        model = table(6)
        batch = pad(
            [
                sample(model, [0, 1, 2], [0, 0.5, -0.2]),
                sample(model, [3, 4, 5, 1, 2], [0, 1, 1, -1, -1]),
                sample(model, [5, 5], [0, -0.7]),
            ]
        )
        settings = objective(
            name, micro_rows=rows, max_grad_norm=1e9, **({"longest": 9} if name == "dr-grpo" else {}),
        )  # fmt: skip
        # The clip of GSPO is so narrow that nothing here would pass it.
        settings = objective(name, clip_high=0.3, clip_low=0.3, **_kept(settings))
        metrics = policy_gradient_step(model, torch.optim.SGD(model.parameters(), lr=1.0), batch, settings)
        found.append((metrics, model.table.detach()))
    for metrics, weights in found[1:]:
        torch.testing.assert_close(weights, found[0][1], atol=1e-6, rtol=1e-5)
        assert metrics["loss"] == pytest.approx(found[0][0]["loss"], rel=1e-5)
        assert metrics["sampler_difference_max"] == pytest.approx(0.1, rel=1e-4)


def _kept(settings):
    names = ("micro_rows", "max_grad_norm", "longest")
    return {name: getattr(settings, name) for name in names}


def test_averages_weigh_rows_differently(table):
    grads = {}
    for name in ("plain", "grpo"):
        model = table(6)
        batch = pad([sample(model, [0, 1], [0, 1.0]), sample(model, [3, 4, 5, 4], [0, 1, 1, 1])])
        before = model.table.detach().clone()
        policy_gradient_step(
            model, torch.optim.SGD(model.parameters(), lr=1.0), batch, objective(name, max_grad_norm=1e9)
        )
        grads[name] = (before - model.table.detach())[0, 1].item()
    # One token of four, against one row of two.
    assert grads["grpo"] / grads["plain"] == pytest.approx(2, rel=1e-5)
