"""Draws from a server with a generator for each request: joint distributions, seeds and log-probs."""

import itertools
import json
import math
import threading

import numpy as np
import pytest
from scipy.stats import chisquare

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.remote import draw as drawing
from refork.policies.remote.draw import Asker
from refork.policies.remote.probe import ServerAbilities, _seeds, honours
from refork.sampling.grammar import Grammar
from refork.sampling.noise import NoiseKey
from support.openai_server import CODEC, LETTERS, Script, complete, filtered, normal, penalised

A, B, C = LETTERS[:3]
PREFIX = CODEC.encode("once upon")
LONG = CODEC.encode("once upon abbac")


def three(ids):
    """Logits of a model of three letters: fixed by the last two tokens."""
    logits = np.full(CODEC.vocabulary, -1e4)
    logits[[A, B, C]] = np.random.default_rng([int(i) for i in ids[-2:]]).normal(size=3) * 1.3
    return logits


def joint(prefix, settings, generated=0, exclude=None):
    """The exact chance of every three tokens."""
    prompt, begun = (
        [int(t) for t in prefix[: len(prefix) - generated]],
        [int(t) for t in prefix[len(prefix) - generated :]],
    )
    body = settings.to_json()
    found = {}
    for tokens in itertools.product((A, B, C), repeat=3):
        chance = 1.0
        for place, token in enumerate(tokens):
            if place < len(settings.forced):
                chance *= token == settings.forced[place]
                continue
            turn = [*begun, *tokens[:place]]
            logits = three([*prompt, *turn])
            logits[list(settings.banned)] = -math.inf
            if place == len(settings.forced):
                logits[list(settings.banned_first)] = -math.inf
            distribution = np.exp(
                filtered(penalised(logits, body, prompt, turn) / settings.temperature, body)
            )
            if place == len(settings.forced) and exclude is not None:
                distribution[exclude] = 0
            chance *= distribution[token] / distribution.sum()
        found[tokens] = chance
    assert sum(found.values()) == pytest.approx(1)
    return found


CASES = {
    "plain": (Sampling(), {}, {}),
    "ban": (Sampling(banned=(B,)), {}, {}),
    "a ban that is not obeyed": (Sampling(banned=(B,)), {}, {"biased": False}),
    "ban first": (Sampling(banned_first=(B,)), {}, {}),
    "a first ban that is not obeyed": (Sampling(banned_first=(B,)), {}, {"biased": False}),
    "exclude first": (Sampling(temperature=0.8), {"exclude_first": A}, {}),
    "exclude first, top-p": (Sampling(temperature=2.0, top_p=0.8), {"exclude_first": C}, {}),
    "exclude first, top-k, ban": (Sampling(top_k=2, banned=(B,)), {"exclude_first": A}, {}),
    "forced": (Sampling(forced=(C,)), {}, {}),
    "forced, ban first": (Sampling(forced=(C,), banned_first=(A,)), {}, {}),
    "penalties": (Sampling(presence_penalty=1.1, frequency_penalty=-0.4, repetition_penalty=1.4), {}, {}),
    "presence in a turn": (Sampling(presence_penalty=1.3), {"generated": 3}, {}),
    "frequency in a turn": (Sampling(frequency_penalty=0.9, banned_first=(A,)), {"generated": 5}, {}),
    "min-p": (Sampling(min_p=0.4, top_p=0.9, temperature=1.4), {}, {}),
}


class InProcess:
    """The fake server without its wire, for many draws."""

    server = "in process"

    def __init__(self, script):
        self.script, self.seeds = script, []

    def completion(self, body, what, extra=None):
        asked = json.loads(json.dumps(body | (extra or {})))
        if not body.get("echo"):
            self.seeds.append(asked["seed"])
        choice, usage = complete(self.script, asked)
        return json.loads(json.dumps({"choices": [choice], "usage": usage}))


@pytest.mark.parametrize("turn", [0, 1, 2])
@pytest.mark.parametrize("case", CASES)
def test_three_tokens_have_the_joint_law(case, turn):
    """400 draws a case against enumeration; an exact sampler fails one of these tests in 20,000 seeds."""
    settings, own, server = CASES[case]
    prefix = LONG if own.get("generated") else PREFIX
    fake = InProcess(Script(logits=three, **server))
    able = ServerAbilities(
        True, logprobs=True, logprob_kind="t1", scores=True, kind="vLLM", bias=server.get("biased", True)
    )
    asker = Asker(fake, able, CODEC, None)
    distribution = {
        k: v
        for k, v in joint(prefix, settings, own.get("generated", 0), own.get("exclude_first")).items()
        if v
    }
    seen, count = dict.fromkeys(distribution, 0), 100 if turn else 400
    for draw in range(count):
        request = Request(prefix, NoiseKey(3, 1, draw, turn), **own)
        seen[tuple(asker.tokens(draw, request, settings.but(max_tokens=3)).ids)] += 1
    found, expected = (
        np.array(list(seen.values()), dtype=float),
        np.array([distribution[k] * count for k in distribution]),
    )
    rare = expected < 5
    if rare.any():
        found, expected = (np.append(v[~rare], v[rare].sum()) for v in (found, expected))
    if len(found) > 1:
        assert chisquare(found, expected).pvalue > 1e-6
    # Every call has a seed of its own: of its draw, and of its place in it.
    assert len(set(fake.seeds)) == len(fake.seeds) >= count


def test_turns_are_independent_and_no_seed_is_sent_twice(remote):
    settings = Sampling(max_tokens=3, banned_first=(B,))
    policy = remote(Script(owner="vllm", logits=three), tokenizer=CODEC)
    asked = [Request(PREFIX, NoiseKey(3, 1, draw, turn)) for draw in range(20) for turn in range(3)]
    far = [one.tokens.tolist() for one in sample_all(policy, asked, settings)]
    fake = InProcess(Script(logits=three))
    asker = Asker(fake, policy.abilities, CODEC, None)
    assert far == [asker.tokens(0, request, settings).ids for request in asked]
    assert len({tuple(one) for one in far}) > 6
    assert len(set(fake.seeds)) == len(fake.seeds) == 2 * len(asked)


def test_log_probs_under_penalties_are_of_the_plain_law(remote):
    policy = remote(Script(owner="vllm", logits=three), tokenizer=CODEC)
    settings = Sampling(max_tokens=4, presence_penalty=1.5, repetition_penalty=0.7)
    for one in sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, i)) for i in range(4)], settings):
        ids = [*PREFIX, *one.tokens]
        plain = [normal(three(ids[:i]))[ids[i]] for i in range(len(PREFIX), len(ids))]
        np.testing.assert_allclose(one.logprobs_t1, plain, rtol=1e-5)
        assert one.logprobs is None


@pytest.mark.parametrize(
    ("settings", "own", "known"),
    [
        (Sampling(temperature=0.5, presence_penalty=1.0), {}, True),
        (Sampling(temperature=0.5, banned=(B,)), {}, True),
        (Sampling(temperature=0.5), {"exclude_first": A}, True),
        # Drawn anew, and told as it was drawn: not given that the token does not come.
        (Sampling(temperature=0.5, top_k=2), {"exclude_first": A}, False),
        # Forced tokens are scored by an echo, at temperature 1.
        (Sampling(temperature=0.5, forced=(B,)), {}, False),
    ],
)
def test_log_probs_that_are_told_are_of_the_law_that_was_sampled(remote, settings, own, known):
    policy = remote(Script(owner="vllm", logits=three, law="sampled"), tokenizer=CODEC)
    drawn = sample_all(
        policy, [Request(PREFIX, NoiseKey(0, 0, i), **own) for i in range(9)], settings.but(max_tokens=3)
    )
    distribution = joint(PREFIX, settings, 0, own.get("exclude_first"))
    for one in drawn:
        assert (one.logprobs is not None) is known
        if known:
            assert one.logprobs.sum() == pytest.approx(
                math.log(distribution[tuple(one.tokens.tolist())]), abs=1e-4
            )


def test_a_grammar_is_refused_before_anything_is_sent(remote):
    policy = remote(Script(owner="vllm"), tokenizer=CODEC)
    _ = policy.card
    before = len(policy.script.seen)
    with pytest.raises(CannotDo, match="grammar"):
        sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, 0))], Sampling(grammar=Grammar.regex("a+")))
    assert len(policy.script.seen) == before


def test_the_excluded_token_that_is_all_there_is(remote, monkeypatch):
    monkeypatch.setattr(drawing, "_TRIES", 20)
    policy = remote(Script(owner="vllm", logits=three), tokenizer=CODEC)
    best = int(np.argmax(three(PREFIX)))
    with pytest.raises(BadInput, match="only one was excluded"):
        sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, 0), exclude_first=best)], Sampling(temperature=0))
    with pytest.raises(ServerError, match="20 times in a row"):
        sample_all(
            policy, [Request(PREFIX, NoiseKey(0, 0, 0), exclude_first=best)], Sampling(top_k=1, max_tokens=2)
        )


@pytest.mark.parametrize(
    ("owner", "settings", "why"),
    [
        ("llamacpp", Sampling(presence_penalty=1), "llama.cpp defines presence_penalty otherwise"),
        ("sglang", Sampling(repetition_penalty=1.2), "SGLang defines repetition_penalty otherwise"),
        ("sglang", Sampling(top_p=0.5, min_p=0.1), "before top-k and min-p"),
        ("somebody", Sampling(frequency_penalty=1), "not known how this server defines frequency_penalty"),
        (None, Sampling(min_p=0.1), "not known how this server defines min_p"),
        ("vllm", Sampling(presence_penalty=1, repetition_penalty=1.2, forced=(A,)), "inside a turn"),
        ("refork", Sampling(presence_penalty=1, forced=(A,)), "inside a turn"),
    ],
)
def test_penalties_that_a_server_defines_otherwise_are_refused_before_anything_is_sent(
    remote, owner, settings, why
):
    policy = remote(Script(owner=owner, logits=three), tokenizer=CODEC)
    _ = policy.card
    before = len(policy.script.seen)
    with pytest.raises(CannotDo, match=why):
        sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, 0))], settings)
    assert len(policy.script.seen) == before


def test_bans_under_a_filter_need_a_bias_that_is_obeyed(remote):
    policy = remote(Script(owner="vllm", logits=three, biased=False), tokenizer=CODEC)
    assert "does not obey" in policy.card.extra["bans"]
    with pytest.raises(CannotDo, match="a filter acts after a ban"):
        sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, 0))], Sampling(banned=(A,), top_k=2))
    assert "drawn anew" in remote(Script(owner="vllm")).card.extra["bans"]


def test_penalties_that_nobody_asked_for_are_switched_off(remote):
    defaults = {"repetition_penalty": 1.5, "presence_penalty": 1.0, "frequency_penalty": 1.0, "min_p": 0.3}
    free, other = (
        remote(Script(owner="vllm", logits=three, defaults=given), tokenizer=CODEC)
        for given in ({}, defaults)
    )
    asked = [Request(PREFIX, NoiseKey(0, 0, i)) for i in range(20)]
    one, two = (sample_all(policy, asked, Sampling(max_tokens=5)) for policy in (free, other))
    assert [list(c.tokens) for c in one] == [list(c.tokens) for c in two]
    chat = remote(Script(dialect=None, owner="vllm"))
    talk = [Request(PREFIX, NoiseKey(0, 0, 0), messages=({"role": "user", "content": "?"},))]
    sample_all(chat, talk, Sampling(presence_penalty=0.5))
    sent = chat.script.bodies("/chat/completions")[-1]
    assert (sent["presence_penalty"], sent["frequency_penalty"], sent["repetition_penalty"]) == (
        0.5,
        0.0,
        1.0,
    )


def test_llama_cpps_filters_are_put_in_order(remote):
    policy = remote(Script(dialect="llama", owner="llamacpp"), tokenizer=CODEC)
    sample_all(
        policy, [Request(PREFIX, NoiseKey(0, 0, 0))], Sampling(temperature=0.5, top_p=0.5, max_tokens=1)
    )
    sent = policy.script.bodies("/completions")[-1]
    assert sent["samplers"] == ["penalties", "temperature", "min_p", "top_k", "top_p"]
    assert sent["repeat_last_n"] == -1


# -- seeds ------------------------------------------------------------------------------------------


def test_every_call_has_an_address():
    keys = [NoiseKey(s, t, d, n) for s in range(2) for t in range(2) for d in range(4) for n in range(3)]
    seeds = {key.call_seed(offset, again) for key in keys for offset in range(5) for again in range(3)}
    assert len(seeds) == len(keys) * 15
    assert all(0 <= seed < 1 << 48 for seed in seeds)
    assert NoiseKey(1, 2, 3).call_seed(4, bits=31) < 1 << 31


def believed(chances, pairs, least, texts):
    """The exact chance that a server which ignores seeds says ``least`` or more of ``pairs`` twice, in
    ``texts``.

    Dynamic programming over the texts: how many seeds said one twice, and how many texts were such.
    """
    found = 0.0
    for equal in range(least, pairs + 1):
        ways = np.zeros((equal + 1, equal + 1))  # seeds placed (divided by their order), distinct texts
        ways[0, 0] = 1.0
        for p in chances:
            new = ways.copy()
            for n in range(1, equal + 1):
                new[n:, 1:] += ways[: equal + 1 - n, :-1] * p ** (2 * n) / math.factorial(n)
            ways = new
        twice = math.factorial(equal) * ways[equal, texts:].sum()
        differ = 1 - sum(p * p for p in chances)
        found += math.comb(pairs, equal) * twice * differ ** (pairs - equal)
    return found


def test_a_server_that_ignores_seeds_is_believed_less_than_once_in_a_million_probes():
    """The worst distribution is searched: uniform ones, and 150 others on up to 11 texts."""
    rng = np.random.default_rng(0)
    distributions = [np.full(n, 1 / n) for n in range(1, 20)]
    distributions += [
        rng.dirichlet(np.full(int(n), float(rng.choice([0.5, 2, 20])))) for n in rng.integers(2, 12, 150)
    ]
    seven = max(believed(distribution, 7, 7, 7) for distribution in distributions)
    ten = max(believed(distribution, 10, 8, 7) for distribution in distributions)
    assert seven < 1e-8
    assert ten < 2.4e-7
    assert 4 * (seven + ten) < 1e-6
    # By hand: two texts by a coin, three of three pairs equal, two texts seen.
    assert believed([0.5, 0.5], 3, 3, 2) == pytest.approx((2**3 - 2) / 4**3)


def test_what_honours_takes():
    ten = list("abcdefghij")
    assert honours(ten[:7], ten[:7]) == "honoured"
    assert honours([*ten[:6], "a"], [*ten[:6], "a"]) == "not known"
    assert honours(ten, [*ten[:8], "x", "y"]) == "honoured"
    assert honours(ten, [*ten[:7], "x", "y", "z"]) == "not known"
    assert honours(["a"] * 10, ["a"] * 10) == "not known"
    assert honours(list("ab" * 5), list("ab" * 5)) == "not known"
    assert honours(ten, ten[1:] + ten[:1]) == "ignored"


@pytest.mark.parametrize("colours", [1, 2, 3])
@pytest.mark.parametrize("seeds", [True, False])
def test_few_answers_tell_nothing_about_seeds(remote, colours, seeds):
    card = remote(Script(dialect=None, seeds=seeds, colours=colours)).card
    assert not card.can("paired")
    assert not card.extra["seed"].startswith("honoured")


def test_a_generator_of_the_whole_batch_is_not_a_generator_of_a_request():
    """Alone each seed gives its text; beside others it does not. So only one request at a time is paired."""
    main, calls = threading.get_ident(), itertools.count()

    def say(seed):
        beside = next(calls) if threading.get_ident() != main else 0
        return str(np.random.default_rng([seed, beside]).integers(1 << 40))

    paired, told, _ = _seeds(say, 4, 48)
    assert not paired
    assert "concurrency=1" in told
    alone = _seeds(lambda seed: str(np.random.default_rng(seed).integers(1 << 40)), 4, 48)
    assert alone == (True, "honoured: 7 of 7 seeds gave the same text twice, 7 texts in all", 48)


def test_a_server_of_short_seeds_gets_short_ones(remote):
    policy = remote(Script(bits=31), tokenizer=CODEC)
    assert policy.card.can("paired")
    assert policy.abilities.seed_bits == 31
    sample_all(policy, [Request(PREFIX, NoiseKey(0, 0, 0))], Sampling(max_tokens=1))
    assert policy.script.bodies("/completions")[-1]["seed"] == NoiseKey(0, 0, 0).call_seed(0, bits=31)
    assert remote(Script(bits=31, dialect=None)).abilities.seed_bits == 31


def test_abilities_that_were_never_probed_promise_nothing():
    able = ServerAbilities(tokens=True)
    assert (able.paired, able.bias, able.kind, able.seed) == (False, False, None, "not known")
