"""Distributions after temperature, top-k, top-p and bans: the same filters for model and drafter."""

import pytest
import torch

from refork.errors import BadInput
from refork.policies.base import Sampling
from refork.sampling import distribution
from refork_methods.speculate.accept import (
    chance_of,
    distribution_of,
    distribution_scores,
    keep_chance,
    residual,
)

SETTINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(top_k=3),
    Sampling(top_p=0.6),
    Sampling(temperature=1.4, top_k=6, top_p=0.8, banned=(2,)),
    Sampling(temperature=0.0),
]


@pytest.fixture(scope="module")
def logits():
    return torch.randn((2, 9), generator=torch.Generator().manual_seed(4)) * 2


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: str(s.to_json()))
def test_the_law_said_is_that_of_plain_decoding_under_every_filter(logits, settings):
    """Drafts from the filtered distribution of one row, verified under that of the other, by enumeration."""
    scores = distribution_scores(logits, settings)
    p, q = distribution_of(scores)
    said = torch.zeros_like(p)
    for token in torch.nonzero(q)[:, 0].tolist():
        keep = float(keep_chance(p[token], q[token]))
        said[token] += q[token] * keep
        said += q[token] * (1 - keep) * residual(p, q)
    assert float((said - p).abs().max()) < 1e-12
    # And p is the distribution that plain decoding states for its own draws, up to its float32 sums.
    forced = torch.arange(9)
    stated = distribution.draw(
        logits[:1].expand(9, -1), settings, torch.full((9,), 0.5).double(), forced=forced
    )
    assert torch.allclose(stated.logprobs.double().exp(), p, atol=1e-6)


def test_chances_of_tokens_are_those_of_the_whole_law(logits, monkeypatch):
    scores = distribution_scores(logits, Sampling(top_k=4))
    tokens = scores.argmax(dim=-1)
    wanted = distribution_of(scores).gather(1, tokens[:, None])[:, 0]
    assert torch.allclose(chance_of(scores, tokens), wanted, atol=1e-15)
    monkeypatch.setattr("refork_methods.speculate.accept._AT_ONCE", 1)
    assert torch.allclose(chance_of(scores, tokens), wanted, atol=1e-15)


def test_greedy_is_all_on_the_first_of_the_likeliest():
    found = distribution_of(
        distribution_scores(torch.tensor([[1.0, 3.0, 3.0, 0.0]]), Sampling(temperature=0.0))
    )
    assert found.tolist() == [[0.0, 1.0, 0.0, 0.0]]


def test_bans_of_the_first_free_token_act_there_only(logits):
    settings = Sampling(banned_first=(0, 1))
    found = distribution_of(distribution_scores(logits, settings, torch.tensor([True, False])))
    assert found[0, :2].tolist() == [0.0, 0.0]
    assert (found[1] > 0).all()


def test_a_law_without_tokens_is_refused(logits):
    with pytest.raises(BadInput, match="every token is banned"):
        distribution_scores(logits, Sampling(banned=tuple(range(9))))
