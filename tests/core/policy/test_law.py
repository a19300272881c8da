"""The sampling law: enumerated exactly, then both couplings against it."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ramify.core.errors import BadInput
from ramify.core.policy import law
from ramify.core.policy.base import Sampling
from ramify.core.policy.noise import NoiseKey, gumbels, uniforms

PLAIN = Sampling()
LOGITS = torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.5]])
P = torch.softmax(LOGITS[0].double(), 0).numpy()


def tokens_at(values, settings=PLAIN, logits=LOGITS):
    noise = torch.tensor(values, dtype=torch.float64)
    return law.draw(logits.expand(len(values), -1), settings, noise)


def expected(settings):
    """The law by brute force, in the documented order of filters."""
    scores = LOGITS[0].double().numpy() / (settings.temperature or 1)
    scores = np.array([-np.inf if i in settings.banned else s for i, s in enumerate(scores)])
    p = np.exp(scores) / np.exp(scores).sum()
    if settings.min_p:
        p[p < settings.min_p * p.max()] = 0
        p /= p.sum()
    if settings.top_k:
        p[p < np.sort(p)[-min(settings.top_k, len(p))]] = 0
        p /= p.sum()
    if settings.top_p:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= settings.top_p]] = 0
        p /= p.sum()
    return p


LAWS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(top_p=1.0, top_k=9),
    Sampling(temperature=2.0, top_k=4, top_p=0.6, banned=(2,)),
    Sampling(min_p=0.2),
    # The order shows: min-p leaves two tokens, of which top-p keeps one; the other way round it keeps both.
    Sampling(min_p=0.3, top_p=0.7),
    Sampling(temperature=2.0, min_p=0.5, top_k=3, banned=(2,)),
]


@pytest.mark.parametrize("settings", LAWS)
def test_the_grid_of_uniforms_enumerates_the_law(settings):
    """With n equally spaced uniforms each count is n p to within one on either border."""
    n = 4000
    drawn = tokens_at((np.arange(n) + 0.5) / n, settings)
    counts = np.bincount(drawn.tokens.numpy(), minlength=5)
    p = expected(settings)
    assert (np.abs(counts - n * p) <= 1).all()
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(drawn.logprobs.numpy(), np.log(p)[drawn.tokens.numpy()], atol=1e-6)
    np.testing.assert_allclose(drawn.logprobs_t1.numpy(), np.log(P)[drawn.tokens.numpy()], atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 300])
def test_tokens_lie_in_the_order_of_their_ids(size):
    logits = torch.randn(1, size, generator=torch.Generator().manual_seed(size))
    edges = np.cumsum(torch.softmax(logits[0].double(), 0).numpy())
    edges[-1] = 1.0
    u = np.random.default_rng(0).random(500)
    drawn = tokens_at(u, logits=logits)
    clear = np.abs(u[:, None] - edges).min(axis=1) > 1e-6
    np.testing.assert_array_equal(drawn.tokens.numpy()[clear], np.searchsorted(edges, u, "right")[clear])


def test_a_zero_is_never_drawn_however_extreme_the_noise():
    logits = torch.full((1, 200), -torch.inf)
    logits[0, [70, 130]] = 0.0
    drawn = tokens_at([1e-300, 2**-60, 0.5 - 1e-9, 0.5 + 1e-9, 1 - 2**-53], logits=logits)
    assert drawn.tokens.tolist() == [70, 70, 70, 130, 130]
    assert drawn.ties.tolist() == [False, False, True, True, False]


def test_ties_are_counted_near_a_border_only():
    edge = float(P[0])
    drawn = tokens_at([edge - 5e-7, edge + 5e-7, edge - 1e-4, edge + 1e-4])
    assert drawn.ties.tolist() == [True, True, False, False]
    greedy = law.draw(
        torch.tensor([[1.0, 1.0 + 5e-7, 0.0], [1.0, 1.1, 0.0]]), Sampling(temperature=0), torch.zeros(0)
    )
    assert greedy.ties.tolist() == [True, False]


def test_greedy_takes_the_lowest_of_equals_and_its_law_is_a_point():
    drawn = law.draw(torch.tensor([[0.0, 3.0, 3.0]]), Sampling(temperature=0, banned=(0,)), torch.zeros(0))
    assert drawn.tokens.tolist() == [1]
    assert drawn.logprobs.tolist() == [0.0]
    forced = law.draw(LOGITS, Sampling(temperature=0), torch.zeros(0), forced=torch.tensor([0]))
    assert forced.logprobs.tolist() == [-math.inf]
    assert forced.logprobs_t1[0] == pytest.approx(math.log(P[0]), abs=1e-6)


def test_forced_tokens_have_the_laws_logprob():
    noise = torch.tensor([0.5, 0.5], dtype=torch.float64)
    drawn = law.draw(LOGITS.expand(2, -1), Sampling(top_k=2), noise, forced=torch.tensor([3, -1]))
    assert drawn.tokens.tolist()[0] == 3
    assert drawn.logprobs[0] == -math.inf
    assert drawn.logprobs_t1[0] == pytest.approx(math.log(P[3]), abs=1e-6)
    assert math.isfinite(drawn.logprobs[1])


def test_banned_first_acts_on_first_rows_only():
    settings = Sampling(banned_first=(2, 0), temperature=0)
    drawn = law.draw(LOGITS.expand(2, -1), settings, torch.zeros(0), first=torch.tensor([True, False]))
    assert drawn.tokens.tolist() == [4, 2]


def test_banning_everything_is_refused():
    with pytest.raises(BadInput, match="every token is banned"):
        law.draw(LOGITS, Sampling(banned=(0, 1, 2, 3, 4)), torch.tensor([0.5]))


def test_entropy_is_a_lower_bound_and_not_renormalised():
    noise = torch.tensor([0.5], dtype=torch.float64)
    for k, exact in ((2, -sum(p * math.log(p) for p in sorted(P)[-2:])), (9, -float((P * np.log(P)).sum()))):
        drawn = law.draw(LOGITS, Sampling(entropy_top_k=k, temperature=0.3), noise)
        assert drawn.entropy is not None
        assert drawn.entropy[0] == pytest.approx(exact, abs=1e-6)
    assert law.draw(LOGITS, Sampling(), noise).entropy is None


@pytest.mark.parametrize("coupling", ["inverse", "gumbel"])
def test_both_couplings_draw_from_the_law(coupling):
    """Chi-square at level 1e-4, four times in all: false alarm for at most 4 in 10,000 seeds; it is fixed."""
    n = 20_000
    keys = [NoiseKey(11, 0, i) for i in range(n)]
    raw = gumbels(keys, 0, 5) if coupling == "gumbel" else uniforms(keys, 1)[:, 0]
    for settings in (Sampling(coupling=coupling), Sampling(coupling=coupling, temperature=1.5, top_k=4)):
        drawn = law.draw(LOGITS.expand(n, -1), settings, torch.from_numpy(raw))
        p = expected(settings)
        counts = np.bincount(drawn.tokens.numpy(), minlength=5)
        assert counts[p == 0].sum() == 0
        assert chisquare(counts[p > 0], n * p[p > 0]).pvalue > 1e-4


def test_rows_do_not_depend_on_each_other():
    logits = torch.randn(37, 131, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(37, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = law.draw(logits, Sampling(temperature=0.8, top_p=0.9), noise)
    for row in (0, 5, 36):
        one = law.draw(logits[row : row + 1], Sampling(temperature=0.8, top_p=0.9), noise[row : row + 1])
        assert one.tokens[0] == whole.tokens[row]
        assert torch.equal(one.logprobs[0], whole.logprobs[row])
        assert torch.equal(one.logprobs_t1[0], whole.logprobs_t1[row])


def test_token_logprobs():
    found = law.token_logprobs(LOGITS.expand(5, -1), torch.arange(5))
    np.testing.assert_allclose(found.numpy(), np.log(P), atol=1e-6)
