from collections import Counter

import numpy as np
import pytest

from refork.errors import BadInput
from refork.policies.base import Continuation, PolicyCard, Sampling
from refork.sampling.noise import uniforms
from refork.types import token_array
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.lossless import (
    against_distribution,
    against_samples,
    check_decoder,
    exact_distribution,
)
from refork_methods.speculate.model import as_draft_model, build_draft
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.step_cost import StepCost
from support.models import tiny_policy

PROMPT = token_array([1, 2])


class Word:
    """Says one token of a fixed law, whatever came before; ``says`` may differ from what it states."""

    def __init__(self, law, says=None, name="word"):
        self.law, self.says, self.name = np.array(law), np.array(says or law), name

    @property
    def card(self):
        return PolicyCard(self.name, "fake", None, None, len(self.law), frozenset({"tokens"}))

    def next_logprobs(self, prefixes):
        with np.errstate(divide="ignore"):
            return [np.log(self.law).astype(np.float32) for _ in prefixes]

    def sample(self, requests, settings):
        edges = np.cumsum(self.says)
        drawn = uniforms([r.noise for r in requests], settings.max_tokens)
        for i, row in enumerate(drawn):
            best = self.law.argmax()
            tokens = np.searchsorted(edges, row) if settings.temperature else np.full(len(row), best)
            yield Continuation(i, token_array(tokens), "", "length")


class Blind:
    """A policy that cannot say its distribution."""

    def __init__(self, inner):
        self.card, self.sample = inner.card, inner.sample


def test_an_honest_decoder_passes_and_a_biased_one_does_not():
    """Level 0.001, fixed seed."""
    plain = Word([0.5, 0.3, 0.2])
    settings = {"plain": Sampling()}
    good = check_decoder(plain, Word([0.5, 0.3, 0.2]), [PROMPT], settings, samples=6000, greedy=[PROMPT])
    assert good.lossless
    assert (good.method, good.error_rate, good.mismatches) == ("chi-square", 0.001, 0)
    assert good.cases[0].cells == 9
    assert good.min_p == good.cases[0].p > 0.001
    bad = check_decoder(
        plain, Word([0.5, 0.3, 0.2], says=[0.54, 0.28, 0.18]), [PROMPT], settings, samples=6000
    )
    assert not bad.lossless
    assert bad.min_p < 0.001
    assert bad.mismatches is None


def test_without_a_stated_law_two_samples_are_compared():
    plain = Blind(Word([0.5, 0.3, 0.2]))
    settings = {"plain": Sampling()}
    good = check_decoder(plain, Word([0.5, 0.3, 0.2]), [PROMPT], settings, samples=6000)
    bad = check_decoder(plain, Word([0.56, 0.27, 0.17]), [PROMPT], settings, samples=6000)
    assert good.lossless
    assert not bad.lossless
    exact = check_decoder(Word([0.5, 0.3, 0.2]), Word([0.5, 0.3, 0.2]), [PROMPT], settings, samples=6000)
    assert good.cases[0].detectable > exact.cases[0].detectable


def test_greedy_answers_are_compared_token_for_token():
    found = check_decoder(Word([0.5, 0.3, 0.2]), Word([0.2, 0.6, 0.2]), [], {}, greedy=[PROMPT, PROMPT])
    assert found.mismatches == 2
    assert not found.lossless
    assert found.min_p is None


def test_a_filter_that_acts_on_one_side_only_is_caught():
    """The model's distribution is cut to two words; the decoder goes on saying the third."""
    plain = Word([0.5, 0.3, 0.2])
    found = check_decoder(plain, Word([0.5, 0.3, 0.2]), [PROMPT], {"top-k 2": Sampling(top_k=2)}, samples=500)
    assert found.cases[0].p == 0.0
    assert not found.lossless


def test_the_exact_law_has_the_filters_in_it():
    plain = Word([0.5, 0.3, 0.2])
    distribution = exact_distribution(plain, PROMPT, Sampling(top_k=2, max_tokens=2))
    assert distribution == pytest.approx(
        {(0, 0): 0.390625, (0, 1): 0.234375, (1, 0): 0.234375, (1, 1): 0.140625}, rel=1e-6
    )
    cold = exact_distribution(plain, PROMPT, Sampling(temperature=0.5, max_tokens=1))
    assert cold == pytest.approx({(0,): 25 / 38, (1,): 9 / 38, (2,): 4 / 38}, rel=1e-6)
    assert exact_distribution(Blind(plain), PROMPT, Sampling()) is None
    assert exact_distribution(plain, PROMPT, Sampling(max_tokens=12)) is None, "too many continuations"


def test_p_values_of_an_exact_decoder_are_uniform():
    """400 tests of 500 samples: as many below 0.1 as expected, within 4 deviations; fixed seed."""
    rng = np.random.default_rng(0)
    distribution = {(i,): p for i, p in enumerate([0.4, 0.3, 0.2, 0.07, 0.02, 0.006, 0.004])}
    values = np.array(list(distribution.values()))
    low = 0
    for _ in range(400):
        counts = rng.multinomial(500, values)
        seen = Counter({(i,): int(n) for i, n in enumerate(counts) if n})
        low += against_distribution("x", seen, distribution).p < 0.1
    assert abs(low - 40) < 4 * np.sqrt(400 * 0.1 * 0.9)


def test_a_detectable_distance_is_detected():
    """A law at the stated distance is found in at least 80 % of 50 tries (stated: 90 %); fixed seed."""
    rng = np.random.default_rng(1)
    distribution = {(i,): 0.2 for i in range(5)}
    counts = rng.multinomial(2000, [0.2] * 5)
    far = against_distribution(
        "x", Counter({(i,): int(n) for i, n in enumerate(counts)}), distribution
    ).detectable
    other = [0.2 + far, 0.2 - far, 0.2, 0.2, 0.2]
    found = 0
    for _ in range(50):
        counts = rng.multinomial(2000, other)
        found += (
            against_distribution("x", Counter({(i,): int(n) for i, n in enumerate(counts)}), distribution).p
            < 0.001
        )
    assert found >= 40


@pytest.mark.parametrize(
    "found",
    [
        against_distribution("x", Counter({(0,): 4}), {(0,): 0.5, (1,): 0.5}),
        against_distribution("x", Counter(), {(0,): 0.5, (1,): 0.5}),
        against_distribution("x", Counter({(i,): 1 for i in range(99)}), {(i,): 0.01 for i in range(100)}),
        against_samples("x", Counter({(0,): 4}), Counter({(1,): 4})),
        against_samples("x", Counter({(0,): 4}), Counter({(0,): 4})),
        against_samples("x", Counter(), Counter()),
    ],
)
def test_samples_too_few_for_two_cells_test_nothing(found):
    assert found.p is None
    assert found.detectable is None


@pytest.mark.parametrize("plain", [Word([0.5, 0.3, 0.2]), Blind(Word([0.5, 0.3, 0.2]))])
def test_what_was_not_tested_is_not_certified(plain):
    settings = {"plain": Sampling(), "one word": Sampling(top_k=1)}
    found = check_decoder(
        plain, Word([0.5, 0.3, 0.2], says=[1.0, 0.0, 0.0]), [PROMPT], settings, samples=3, greedy=[PROMPT]
    )
    assert found.cases[0].p is None
    assert (found.mismatches, found.lossless) == (0, False)


def test_laws_of_one_outcome():
    assert against_distribution("x", Counter({(0,): 9}), {(0,): 1.0}).p == 1.0
    assert against_samples("x", Counter({(0,): 9}), Counter({(0,): 9})).p == 1.0


def test_nothing_to_compare():
    word = Word([1.0])
    with pytest.raises(BadInput, match="nothing to compare"):
        check_decoder(word, word, [], {})
    with pytest.raises(BadInput, match="temperature 0"):
        check_decoder(word, word, [PROMPT], {"greedy": Sampling(temperature=0.0)})


@pytest.fixture(scope="module")
def target():
    return tiny_policy()


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_the_real_decoder_with_a_random_drafter(target, rule):
    """An untrained drafter, a schedule on a flat table, top-k 3 and 4 tokens: level 0.001, fixed seed."""
    draft = as_draft_model(build_draft(draft_config(target, layers=1, rank=4, block=3), target)).eval()
    flat = PrefixScheduler(StepCost.of(dict.fromkeys(range(1, 1025), 1.0)), beyond="cap", margin=1.0)
    decoder = SpeculativeDecoder(target, draft, rule=rule, scheduler=flat, width=256)
    rng = np.random.default_rng(0)
    found = check_decoder(
        target,
        decoder,
        [token_array([5, 9, 77])],
        {"top-k 3": Sampling(top_k=3, temperature=1.5)},
        samples=1500,
        tokens=4,
        greedy=[token_array(rng.integers(1, 250, 4)) for _ in range(12)],
        greedy_tokens=12,
    )
    assert found.lossless, found
    assert found.mismatches == 0
    assert decoder.stats.verified > 500
