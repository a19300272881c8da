"""The decoder against plain transformers: greedy tokens, log-probs, hidden states."""

import numpy as np
import pytest
import torch

from refork.decoding.loop import BranchDecoder
from refork.decoding.score import hidden, score
from refork.policies.base import Sampling
from refork.sampling.noise import NoiseKey
from support import decoder_models as models

PREFIXES = models.prefixes()
LENGTH = 40
GENERATED = (5, 12)  # of 130 tokens, and of 7


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_greedy_is_generate_and_logprobs_are_teacher_forced(built, name):
    """LENGTH is longer than the sliding window, and so are most prefixes.

    What ``generate`` draws greedily is the likeliest token after all before it, which the plain forward pass
    that is needed for the log-probs says of every place. ``generate`` itself, a pass for every token, is
    asked for two prefixes: one longer than the window and one shorter.
    """
    model, backbone = built(name)
    noise = [NoiseKey(0, 0, i) for i in range(len(PREFIXES))]
    settings = Sampling(temperature=0, max_tokens=LENGTH)
    drawn = list(BranchDecoder(backbone).sample(PREFIXES, noise, settings))
    assert sorted(item.index for item in drawn) == list(range(len(PREFIXES)))
    for item in drawn:
        prefix = PREFIXES[item.index]
        if item.index in GENERATED:
            np.testing.assert_array_equal(item.tokens, models.greedy(model, prefix, LENGTH))
        logs = models.plain_logprobs(model, np.concatenate([prefix, item.tokens]))[len(prefix) - 1 : -1]
        np.testing.assert_array_equal(item.tokens, logs.argmax(1))
        forced = np.take_along_axis(logs, item.tokens[:, None].astype(np.int64), 1)[:, 0]
        np.testing.assert_allclose(item.logprobs_t1, forced, atol=1e-5, rtol=0)
        assert (item.logprobs == 0).all()
        assert item.finish == "length"


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_scores_and_hidden_states(built, name):
    model, backbone = built(name)
    decoder = BranchDecoder(backbone)
    found = score(decoder, PREFIXES)
    for prefix, values in zip(PREFIXES, found, strict=True):
        np.testing.assert_allclose(values, models.teacher_forced(model, prefix), atol=1e-5, rtol=0)
    states = hidden(decoder, PREFIXES, [0, 1, 2], [0] * len(PREFIXES))
    for prefix, values in zip(PREFIXES, states, strict=True):
        with torch.no_grad():
            plain = model(torch.from_numpy(prefix).long()[None], output_hidden_states=True).hidden_states
        for mine, theirs in zip(values, plain, strict=True):
            np.testing.assert_allclose(mine, theirs[0].numpy(), atol=2e-5, rtol=1e-5)


def test_scores_do_not_depend_on_company_or_start(built):
    _, backbone = built("llama")
    together = score(BranchDecoder(backbone), PREFIXES)
    small = score(BranchDecoder(backbone, memory=1 << 20), PREFIXES)
    for i, prefix in enumerate(PREFIXES):
        np.testing.assert_array_equal(score(BranchDecoder(backbone), [prefix])[0], together[i])
        np.testing.assert_array_equal(small[i], together[i])
    tail = score(BranchDecoder(backbone), [PREFIXES[6]], [250])[0]
    np.testing.assert_array_equal(tail, together[6][249:])
    assert score(BranchDecoder(backbone), []) == []


def test_the_model_is_left_as_it_was(built):
    model, backbone = built("llama")
    before = model.config._attn_implementation
    model.train()
    score(BranchDecoder(backbone), PREFIXES[:2])
    assert model.config._attn_implementation == before
    assert model.training
    model.eval()
    model(torch.tensor([[1, 2]])).logits.sum().backward()
    model.zero_grad()
