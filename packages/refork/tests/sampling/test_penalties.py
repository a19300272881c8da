"""min-p and penalties: against transformers' processors, vLLM's formula, and a model's own forward pass."""

import math

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from refork.errors import BadInput, CannotDo, InternalError
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.local import LocalPolicy
from refork.policies.scripted import ScriptedPolicy, filtered
from refork.sampling import distribution
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support.models import make_model, make_tokenizer

ALL = Sampling(
    max_tokens=12,
    temperature=0.8,
    repetition_penalty=1.7,
    frequency_penalty=0.6,
    presence_penalty=-0.9,
    min_p=0.01,
    top_k=40,
    top_p=0.95,
)
EACH = [
    ALL,
    Sampling(max_tokens=12, repetition_penalty=0.6),
    Sampling(max_tokens=12, frequency_penalty=-1.5),
    Sampling(max_tokens=12, presence_penalty=2.0, temperature=0),
    Sampling(max_tokens=12, min_p=0.5, coupling="gumbel"),
]


@pytest.fixture(scope="module")
def policy():
    return LocalPolicy(make_model(), make_tokenizer(), name="tiny")


def vllm(logits, prompt, said, settings):
    """Log-probs [V] as vLLM's sampler has them: counts over the vocabulary, steps 6 and 7 of its list."""
    size = len(logits)
    prompt_mask = torch.bincount(torch.as_tensor(prompt, dtype=torch.long), minlength=size) > 0
    counts = torch.bincount(torch.as_tensor(said, dtype=torch.long), minlength=size)
    penalty = torch.ones(size).masked_fill(prompt_mask | (counts > 0), settings.repetition_penalty or 1.0)
    scores = logits * torch.where(logits > 0, 1.0 / penalty, penalty)
    scores = scores - (settings.frequency_penalty or 0.0) * counts
    scores = scores - (settings.presence_penalty or 0.0) * (counts > 0)
    if settings.temperature == 0:
        return torch.where(torch.arange(size) == scores.argmax(), 0.0, -math.inf)
    scores = scores / settings.temperature
    if settings.min_p:
        chances = torch.softmax(scores, -1)
        scores[chances < settings.min_p * chances.max()] = -math.inf
    if settings.top_k:
        scores[scores < scores.topk(settings.top_k).values[-1]] = -math.inf
    if settings.top_p:
        ordered, index = scores.sort()
        scores[index[(ordered.softmax(-1).cumsum(-1) <= 1 - settings.top_p)]] = -math.inf
    return torch.log_softmax(scores, -1)


def drawn_by(logits, prompt, said, settings):
    """Log-probs [V] of the distribution that is drawn from."""
    history = distribution.History.of(
        [distribution.SoFar(token_array([*prompt, *said]), len(said))], torch.device("cpu")
    )
    return torch.log_softmax(distribution.restrict(logits[None], settings, history=history)[0].double(), -1)


def agree(found, true):
    assert torch.equal(torch.isfinite(found), torch.isfinite(true))
    np.testing.assert_allclose(found[torch.isfinite(found)], true[torch.isfinite(true)], atol=2e-5)


@pytest.mark.parametrize("seed", range(20))
def test_filters_are_vllms(seed):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=50) * 3, dtype=torch.float32)
    prompt, said = rng.integers(0, 50, 9), rng.integers(0, 12, int(rng.integers(0, 9)))
    settings = Sampling(
        temperature=float(rng.uniform(0.4, 2)),
        repetition_penalty=float(rng.uniform(0.5, 2)),
        frequency_penalty=float(rng.uniform(-2, 2)),
        presence_penalty=float(rng.uniform(-2, 2)),
        min_p=float(rng.uniform(0, 0.3)),
        top_k=int(rng.integers(1, 30)),
        top_p=float(rng.uniform(0.3, 1)),
    )
    agree(drawn_by(logits, prompt, said, settings), vllm(logits, prompt, said, settings))
    # A script reads the same settings, of log-probs in the place of logits.
    bare = torch.log_softmax(logits, -1).numpy().astype(np.float64)
    scripted = filtered(bare, settings, (), prompt.tolist(), said.tolist())
    agree(torch.tensor(scripted), drawn_by(torch.tensor(bare).float(), prompt, said, settings))


@pytest.mark.parametrize("seed", range(5))
def test_filters_are_those_of_transformers_in_vllms_order(seed):
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=50) * 3, dtype=torch.float32)
    prompt, said = rng.integers(0, 50, 9), rng.integers(0, 50, 7)
    chain = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.4),
            TemperatureLogitsWarper(0.7),
            MinPLogitsWarper(0.03),
            TopKLogitsWarper(20),
            TopPLogitsWarper(0.9),
        ]
    )
    ids = torch.tensor([*prompt, *said])[None]
    true = torch.log_softmax(chain(ids, logits[None].clone())[0], -1)
    settings = Sampling(temperature=0.7, repetition_penalty=1.4, min_p=0.03, top_k=20, top_p=0.9)
    agree(drawn_by(logits, prompt, said, settings), true)


def test_what_penalties_read_by_hand():
    """Token 0: prompt only. 1: said once, 2: said twice, 3: both, 4: neither."""
    logits = torch.tensor([2.0, 2.0, 2.0, -2.0, 2.0])
    prompt, said = [0, 3], [1, 2, 2, 3]

    def left(**settings):
        history = distribution.History.of(
            [distribution.SoFar(token_array([*prompt, *said]), len(said))], logits.device
        )
        return distribution.penalise(logits[None], Sampling(**settings), history)[0].tolist()

    assert left(repetition_penalty=2.0) == [1.0, 1.0, 1.0, -4.0, 2.0]
    assert left(frequency_penalty=0.5) == [2.0, 1.5, 1.0, -2.5, 2.0]
    assert left(presence_penalty=0.5) == [2.0, 1.5, 1.5, -2.5, 2.0]
    # The repetition penalty comes first: it would halve what the others leave.
    both = left(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=1.0)
    assert both == [1.0, -0.5, -1.0, -5.5, 2.0]


def test_a_banned_token_stays_banned():
    logits = torch.zeros(1, 4)
    history = distribution.History.of([distribution.SoFar(token_array([1, 2]), 1)], logits.device)
    settings = Sampling(banned=(1, 2), repetition_penalty=0.2, frequency_penalty=-2, presence_penalty=-2)
    assert distribution.restrict(logits, settings, history=history)[0].tolist() == [
        0,
        -math.inf,
        -math.inf,
        0,
    ]


def test_penalties_without_a_history_are_our_bug():
    with pytest.raises(InternalError, match="nobody follows"):
        distribution.restrict(torch.zeros(1, 4), Sampling(presence_penalty=1.0))
    # Settings that change nothing need none.
    neutral = Sampling(presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, min_p=0.0)
    assert not neutral.penalised
    assert not neutral.filtered
    assert neutral.is_plain
    assert neutral.distribution == Sampling().distribution
    assert distribution.restrict(torch.zeros(1, 4), neutral).tolist() == [[0.0] * 4]


def by_forward(policy, prompt, begun, item, settings):
    """Log-probs of a continuation's tokens by the model's forward pass and vLLM's formula; and plain ones."""
    under, plain = [], []
    for place, token in enumerate(item.tokens.tolist()):
        ids = torch.tensor([[*prompt, *begun, *item.tokens[:place].tolist()]])
        with torch.no_grad():
            logits = policy.model(ids).logits[0, -1].float()
        said = [*begun, *item.tokens[:place].tolist()]
        under.append(float(vllm(logits, prompt, said, settings)[token]))
        plain.append(float(torch.log_softmax(logits, -1)[token]))
    return under, plain


@pytest.mark.parametrize("settings", EACH)
@pytest.mark.parametrize("said", [0, 5])
def test_a_local_models_log_probs_are_vllms_and_the_plain_ones_stay_plain(policy, settings, said):
    tokens = policy.encode("abcab abba")
    prompt, begun = tokens[: len(tokens) - said].tolist(), tokens[len(tokens) - said :].tolist()
    forced = tuple(policy.encode("ba").tolist())
    settings = settings.but(forced=forced, ignore_eos=True)
    asked = [Request(tokens, NoiseKey(5, 0, draw), generated=said) for draw in range(4)]
    for item in sample_all(policy, asked, settings):
        under, plain = by_forward(policy, prompt, begun, item, settings)
        np.testing.assert_allclose(item.logprobs, under, atol=1e-4)
        np.testing.assert_allclose(item.logprobs_t1, plain, atol=1e-4)
    # Each alone gives what all give together, and so does a live decoder.
    together = sample_all(policy, asked, settings)
    for one, item in zip(asked, together, strict=True):
        [alone] = sample_all(policy, [one], settings)
        assert alone.tokens.tobytes() == item.tokens.tobytes()
        assert alone.logprobs.tobytes() == item.logprobs.tobytes()


@pytest.mark.parametrize("settings", [ALL, Sampling(frequency_penalty=-1.5, max_tokens=12)])
def test_a_turn_goes_on_as_it_would_have(policy, settings):
    """What was said of a turn before a fork counts as said: the law behind it is that of the whole turn."""
    prompt = policy.encode("abcab ")
    settings = settings.but(ignore_eos=True)
    [whole] = sample_all(policy, [Request(prompt, NoiseKey(5, 0, 0))], settings)
    for keep in (1, 4, 9):
        kept = token_array([*prompt, *whole.tokens[:keep]])
        rest = settings.but(forced=tuple(whole.tokens[keep:].tolist()))
        [resumed] = sample_all(
            policy, [Request(kept, NoiseKey(5, 0, 0), generated=keep, max_tokens=12 - keep)], rest
        )
        np.testing.assert_allclose(resumed.logprobs, whole.logprobs[keep:], atol=1e-5)
        [blind] = sample_all(
            policy, [Request(kept, NoiseKey(5, 0, 0), generated=0, max_tokens=12 - keep)], rest
        )
        assert np.abs(blind.logprobs - whole.logprobs[keep:]).max() > 1e-3


def test_a_script_follows_what_was_said():
    """P(second = first) by hand: the chain says "a" and "b" alike, and penalises what it said."""
    policy = ScriptedPolicy.from_chain(
        {"": {"a": 0.5, "b": 0.5}, "a": {"a": 0.5, "b": 0.5}, "b": {"a": 0.5, "b": 0.5}}
    )
    settings = Sampling(max_tokens=2, frequency_penalty=1.0, presence_penalty=0.5)
    start = policy.render([], token_array([]), [{"role": "user", "content": "aaaa"}]).tokens
    drawn = sample_all(policy, [Request(start, NoiseKey(0, 0, i)) for i in range(200)], settings)
    same = [item for item in drawn if item.tokens[0] == item.tokens[1]]
    other = [item for item in drawn if item.tokens[0] != item.tokens[1]]
    again = math.exp(-1.5) / (1 + math.exp(-1.5))
    assert len(same) == pytest.approx(200 * again, abs=4 * math.sqrt(200 * again * (1 - again)))
    np.testing.assert_allclose([math.exp(item.logprobs[1]) for item in same], again, atol=1e-6)
    np.testing.assert_allclose([math.exp(item.logprobs[1]) for item in other], 1 - again, atol=1e-6)
    assert {round(math.exp(item.logprobs_t1[1]), 6) for item in drawn} == {0.5}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 1e-38),
        ("temperature", math.inf),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("repetition_penalty", math.nan),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("frequency_penalty", math.nan),
    ],
)
def test_values_outside_their_range_are_refused(name, value):
    with pytest.raises(BadInput, match=name):
        Sampling(**{name: value})


def test_new_fields_at_their_default_leave_no_mark():
    assert Sampling().to_json() == {}
    given = {"min_p": 0.1, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": -0.5}
    assert Sampling.from_json(given).to_json() == given


def test_a_question_that_does_not_say_where_its_turn_begins_is_refused(policy):
    with pytest.raises(CannotDo, match="penalties cannot be counted"):
        policy.ask(policy.encode("ab"), NoiseKey(0, 0, 0), Sampling(presence_penalty=1.0))
