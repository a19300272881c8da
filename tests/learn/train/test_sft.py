import math

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ramify.core.errors import BadInput
from ramify.core.types import token_array
from ramify.learn.train.sft import (
    Example,
    SftSettings,
    learning_rate,
    masked_cross_entropy,
    pack,
    row_order,
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


def test_packing_keeps_order_and_never_learns_a_first_token():
    packed = pack([example(1, 2, 3), example(4, 5), example(6, 7, 8, learned=[0, 0, 1])], 5)
    assert packed.tokens.tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]
    assert packed.loss.tolist() == [[False, True, True, False, True], [False, False, True, False, False]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 0, 0]]
    assert packed.segments.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, -1, -1]]
    attention = packed.attention(torch.tensor([0]))
    assert attention.shape == (1, 1, 5, 5)
    assert attention[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 1, 1],
    ]  # fmt: skip


def test_packing_refuses_what_does_not_fit():
    with pytest.raises(BadInput, match="nothing"):
        pack([], 4)
    with pytest.raises(BadInput, match="does not fit"):
        pack([example(1, 2, 3)], 2)
    with pytest.raises(BadInput, match="mask entries"):
        Example(token_array([1, 2]), np.array([True]))


def tiny(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=12, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=32, tie_word_embeddings=True,
        )  # fmt: skip
        return LlamaForCausalLM(config)


def test_a_packed_row_equals_its_examples_alone():
    model = tiny()
    parts = [example(1, 2, 3, 4), example(5, 6, 7), example(1, 3)]
    packed = pack(parts, 10)
    rows = torch.tensor([0])
    output = model(
        input_ids=packed.tokens, attention_mask=packed.attention(rows), position_ids=packed.positions
    ).logits
    start = 0
    for part in parts:
        alone = model(input_ids=torch.tensor([part.tokens.tolist()])).logits[0]
        torch.testing.assert_close(output[0, start : start + len(part.tokens)], alone, atol=1e-5, rtol=1e-5)
        start += len(part.tokens)


def test_the_learning_rate_warms_up_and_falls_as_a_cosine():
    settings = SftSettings(steps=20, warmup=10, learning_rate=1.0, final_rate=0.0)
    assert learning_rate(0, settings) == 0.1
    assert learning_rate(9, settings) == 1.0
    assert learning_rate(15, settings) == pytest.approx(0.5)
    assert learning_rate(20, settings) == pytest.approx(0.0)


def test_every_row_comes_once_per_epoch():
    batches = list(row_order(6, 3, 4, seed=1))
    for epoch in (batches[:2], batches[2:]):
        assert sorted(torch.cat(epoch).tolist()) == list(range(6))
    assert [b.tolist() for b in row_order(6, 3, 4, seed=1)] == [b.tolist() for b in batches]
    assert all(len(b) == 5 for b in row_order(2, 5, 3, seed=0))


def test_training_learns_reports_and_repeats_bit_for_bit():
    data = pack([example(1, 2, 3, 4), example(5, 6, 7, 8)], 8)
    settings = SftSettings(steps=60, rows=1, learning_rate=1e-2, warmup=5)
    seen, models = [], []
    for _ in range(2):
        model = tiny()
        log = train(model, data, settings, lambda done, total, note: seen.append((done, total, note)))
        models.append(model)
    assert log[0]["loss"] > 2
    assert log[-1]["loss"] < 0.1
    assert [r["step"] for r in log] == list(range(60))
    assert seen[59] == (60, 60, f"loss {log[-1]['loss']:.3f}")
    assert not models[0].training
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(a, b)


def test_bad_settings():
    with pytest.raises(BadInput):
        SftSettings(steps=0)
