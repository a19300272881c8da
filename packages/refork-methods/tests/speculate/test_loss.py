import math

import numpy as np
import pytest
import torch

from refork.errors import BadInput
from refork_methods.speculate.loss import (
    CODE_DECAY,
    LossWeights,
    confidence_loss,
    draft_loss,
    l1_distance,
    position_weights,
)


def laws(seed, rows=6, size=11):
    generator = torch.Generator().manual_seed(seed)
    return [torch.softmax(3 * torch.randn(rows, size, generator=generator).double(), -1) for _ in range(2)]


def test_weights_decay_with_the_block_or_a_constant_of_their_own():
    assert torch.allclose(position_weights(7), torch.tensor([math.exp(-k / 7) for k in range(7)]))
    coded = position_weights(7, CODE_DECAY)
    assert torch.allclose(coded, torch.tensor([math.exp(-k / 4) for k in range(7)]))
    assert float(position_weights(7)[0]) == 1.0
    for bad in (0.0, -1.0):
        with pytest.raises(BadInput):
            position_weights(7, bad)


def test_gradient_of_total_variation():
    """By hand: d L1 / d z_j = q_j (s_j - sum_v q_v s_v), s = sign(q - p)."""
    p, _ = laws(0)
    logits = torch.randn(6, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    logits.requires_grad_(True)
    q = torch.softmax(logits, -1)
    l1_distance(p, q).sum().backward()
    with torch.no_grad():
        sign = torch.sign(q - p)
        wanted = q * (sign - (q * sign).sum(-1, keepdim=True))
    assert torch.allclose(logits.grad, wanted, atol=1e-14)
    assert torch.autograd.gradcheck(
        lambda z: l1_distance(p, torch.softmax(z, -1)), logits.detach().requires_grad_()
    )


@pytest.mark.parametrize("label", [0.1, 0.5, 0.93])
def test_confidence_is_best_where_it_says_the_chance(label):
    soft = torch.tensor([label])
    logit = torch.logit(soft).requires_grad_(True)
    confidence_loss(logit, soft).sum().backward()
    assert abs(float(logit.grad)) < 1e-7
    least = float(confidence_loss(logit.detach(), soft))
    assert all(float(confidence_loss(logit.detach() + step, soft)) > least for step in (-0.5, 0.5))
    entropy = -label * math.log(label) - (1 - label) * math.log(1 - label)
    assert least == pytest.approx(entropy, abs=1e-6)


def lesson(seed=1, rows=6, size=11):
    generator = torch.Generator().manual_seed(seed)
    logits, target = (torch.randn(rows, size, generator=generator) for _ in range(2))
    tokens = torch.randint(size, (rows,), generator=generator)
    return (
        logits,
        target,
        tokens,
        torch.rand(rows, generator=generator),
        torch.randn(rows, generator=generator),
    )


def test_loss_is_the_weighted_mean_of_its_terms():
    logits, target, tokens, weights, sure = lesson()
    found = draft_loss(logits, target, tokens, weights, sure)
    p, q = torch.softmax(target, -1).numpy(), torch.softmax(logits, -1).numpy()
    w = weights.numpy() / weights.numpy().sum()
    overlap = np.minimum(p, q).sum(1)
    c = torch.sigmoid(sure).numpy()
    ce = -(w * np.log(q[range(6), tokens])).sum()
    tv = (w * np.abs(p - q).sum(1)).sum()
    conf = -(w * (overlap * np.log(c) + (1 - overlap) * np.log(1 - c))).sum()
    assert float(found.ce) == pytest.approx(ce, rel=1e-5)
    assert float(found.tv) == pytest.approx(tv, rel=1e-5)
    assert float(found.confidence) == pytest.approx(conf, rel=1e-5)
    assert float(found.total) == pytest.approx(0.1 * ce + 0.9 * tv + conf, rel=1e-5)
    assert np.allclose(found.accept, overlap, atol=1e-6)


def test_soft_label_is_detached():
    logits, target, tokens, weights, sure = lesson()
    logits.requires_grad_(True)
    only = LossWeights(ce=0.0, tv=1.0, confidence=1.0)
    draft_loss(logits, target, tokens, weights, sure, only).total.backward()
    with_label = logits.grad.clone()
    logits.grad = None
    draft_loss(logits, target, tokens, weights, None, only).total.backward()
    assert torch.equal(with_label, logits.grad)


def test_equal_laws_cost_nothing_but_entropy():
    logits, _, tokens, weights, _ = lesson()
    found = draft_loss(logits, logits + 3.0, tokens, weights, None)
    assert float(found.tv) == pytest.approx(0.0, abs=1e-6)
    assert found.confidence is None
    assert torch.allclose(found.accept, torch.ones(6), atol=1e-6)


def test_nothing_to_learn_is_refused():
    logits, target, tokens, weights, _ = lesson()
    with pytest.raises(BadInput):
        draft_loss(logits, target, tokens, torch.zeros_like(weights))
    with pytest.raises(BadInput):
        draft_loss(logits[:0], target[:0], tokens[:0], weights[:0])
    with pytest.raises(BadInput):
        LossWeights(ce=0.0, tv=0.0)
