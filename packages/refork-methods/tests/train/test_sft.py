import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from refork.errors import BadInput
from refork.types import token_array
from refork_methods.train.sft import (
    Example,
    SftSettings,
    batch_order,
    learning_rate,
    masked_cross_entropy,
    pad_right,
    train,
)


def example(*tokens, learned=None):
    mask = np.ones(len(tokens), dtype=bool) if learned is None else np.array(learned, dtype=bool)
    return Example(token_array(tokens), mask)


def test_cross_entropy_by_hand():
    # Odds 1 : 1 : 2 for token 2, and 1 : 3 : 4 for token 0.
    logits = torch.log(torch.tensor([[[1.0, 1, 2], [1, 3, 4], [7, 7, 7]]])).requires_grad_()
    tokens, mask = torch.tensor([[1, 2, 0]]), torch.tensor([[True, True, True]])
    loss = masked_cross_entropy(logits, tokens, mask)
    assert math.isclose(loss.item(), (math.log(2) + math.log(8)) / 2, rel_tol=1e-6)
    loss.backward()
    expected = [[[1 / 8, 1 / 8, -1 / 4], [1 / 16 - 1 / 2, 3 / 16, 1 / 4], [0, 0, 0]]]
    torch.testing.assert_close(logits.grad, torch.tensor(expected))


def test_only_masked_tokens_are_learned():
    logits = torch.randn(1, 3, 4, requires_grad=True)
    masked_cross_entropy(logits, torch.tensor([[1, 2, 0]]), torch.tensor([[False, False, True]])).backward()
    assert (logits.grad[0, [0, 2]] == 0).all()
    assert (logits.grad[0, 1] != 0).all()


def test_nothing_to_learn_is_refused():
    with pytest.raises(BadInput, match="no token"):
        masked_cross_entropy(torch.zeros(1, 2, 3), torch.zeros(1, 2).long(), torch.tensor([[True, False]]))


def test_padding_never_learns_a_first_token():
    tokens, mask = pad_right([example(1, 2, 3), example(6, 7, learned=[1, 0])])
    assert tokens.tolist() == [[1, 2, 3], [6, 7, 0]]
    assert mask.int().tolist() == [[0, 1, 1], [0, 0, 0]]


def test_examples_and_settings_are_checked():
    with pytest.raises(BadInput, match="mask entries"):
        Example(token_array([1, 2]), np.array([True]))
    with pytest.raises(BadInput, match="at least 1"):
        SftSettings(steps=0)
    with pytest.raises(BadInput, match="nothing"):
        train(tiny(), [], SftSettings(steps=1))


def tiny(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True,
        )  # fmt: skip
        return LlamaForCausalLM(config)


def test_padding_changes_nothing():
    parts = [example(1, 2, 3, 4), example(5, 6, 7), example(1, 3)]
    tokens, mask = pad_right(parts)
    model = tiny()
    together = masked_cross_entropy(model(input_ids=tokens).logits, tokens, mask)
    alone = [pad_right([part]) for part in parts]
    losses = [masked_cross_entropy(model(input_ids=t).logits, t, m) * m.sum() for t, m in alone]
    torch.testing.assert_close(together, sum(losses) / 6, atol=1e-6, rtol=1e-5)


def test_the_learning_rate_warms_up_and_falls_as_a_cosine():
    settings = SftSettings(steps=20, warmup=10, learning_rate=1.0, final_rate=0.0)
    assert learning_rate(0, settings) == 0.1
    assert learning_rate(9, settings) == 1.0
    assert learning_rate(15, settings) == pytest.approx(0.5)
    assert learning_rate(20, settings) == pytest.approx(0.0)


def test_every_example_comes_once_per_epoch_among_its_like():
    lengths = [1, 9, 2, 8, 1, 9]
    batches = list(batch_order(lengths, 2, 6, seed=1))
    for epoch in (batches[:3], batches[3:]):
        assert sorted(i for batch in epoch for i in batch) == list(range(6))
        assert sorted(tuple(lengths[i] for i in batch) for batch in epoch) == [(1, 1), (2, 8), (9, 9)]
    assert list(batch_order(lengths, 2, 6, seed=1)) == batches
    assert sorted(map(len, batch_order([1, 2, 3], 2, 2, seed=0))) == [1, 2]


def test_training_learns_reports_and_repeats_bit_for_bit():
    data = [example(1, 2, 3, 4), example(5, 6, 7, 8)]
    settings = SftSettings(steps=60, rows=2, learning_rate=1e-2, warmup=5)
    seen, models = [], []
    for _ in range(2):
        model = tiny()
        log = train(model, data, settings, lambda done, total, note: seen.append((done, total, note)))
        models.append(model)
    assert log[0]["loss"] > 2
    assert log[-1]["loss"] < 0.1
    assert log[-1]["tokens"] == 8
    assert [r["step"] for r in log] == list(range(60))
    assert seen[59] == (60, 60, f"loss {log[-1]['loss']:.3f}")
    assert not models[0].training
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)
