"""Speculative decoding against plain decoding: the same tokens, log-probs, ends and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from refork.decoding.live import LiveDecoder
from refork.decoding.speculator import ActiveRows
from refork.errors import BadInput, CannotDo, WrongTokenizer, WrongWeights
from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork_methods.speculate.calibrate import SequentialTemperatureScaling
from refork_methods.speculate.config import draft_config
from refork_methods.speculate.decoder import SpeculativeDecoder
from refork_methods.speculate.model import build_draft
from refork_methods.speculate.schedule import PrefixScheduler
from refork_methods.speculate.speculator import ModelSpeculator
from refork_methods.speculate.step_cost import StepCost, shapes
from support.drafters import adversarial, gqa, knowing, untrained

CLOSE = 2e-5
LONG = 14
LAWS = {
    "greedy": Sampling(temperature=0.0),
    "plain": Sampling(),
    "cold": Sampling(temperature=0.6),
    "top-k": Sampling(top_k=7),
    "top-p": Sampling(top_p=0.8, temperature=1.3),
    "gumbel": Sampling(coupling="gumbel", top_k=30, temperature=0.8),
}


@pytest.fixture(scope="module")
def target():
    return gqa()


@pytest.fixture(scope="module")
def drafters(target):
    return {"untrained": untrained(target), "adversarial": adversarial(target), "knowing": knowing(target)}


@pytest.fixture(scope="module")
def requests():
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 256, size=n).astype(np.int32) for n in (3, 40, 9, 70, 1)]
    prompts += [prompts[1], prompts[1][:20]]
    return [Request(tokens, NoiseKey(4, 7, draw)) for draw, tokens in enumerate(prompts)]


def test_turns_held_to_a_grammar_are_the_target_s(target, drafters, requests):
    pytest.importorskip("llguidance")
    from refork.sampling.grammar import Grammar

    sampling = Sampling(max_tokens=LONG, grammar=Grammar.regex("[a-f]{2,9}"))
    asked = [
        *requests[:3],
        replace(requests[3], tokens=np.append(requests[3].tokens, target.encode("a")), generated=1),
    ]
    wanted = sample_all(target, [replace(r, tokens=r.tokens.astype(np.int32)) for r in asked], sampling)
    found = sample_all(SpeculativeDecoder(target, drafters["knowing"], rule="coupled"), asked, sampling)
    assert same(found, wanted)
    assert all(set(item.text) <= set("abcdef") for item in found)
    # One turn that has left its grammar fails alone, as it does without drafts.
    asked[1] = replace(asked[1], tokens=np.append(asked[1].tokens, target.encode("z")), generated=1)
    wanted = sample_all(target, asked, sampling)
    assert [item.finish == "error" for item in wanted] == [False, True, False, False]
    found = sample_all(SpeculativeDecoder(target, drafters["knowing"], rule="coupled"), asked, sampling)
    assert same(found, wanted)
    assert found[1].error == wanted[1].error


def same(found, wanted, logprobs=True):
    for a, b in zip(found, wanted, strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        assert (a.text, a.finish, a.index) == (b.text, b.finish, b.index)
        if logprobs:
            assert np.allclose(a.logprobs, b.logprobs, atol=CLOSE)
            assert np.allclose(a.logprobs_t1, b.logprobs_t1, atol=CLOSE)
    return True


@pytest.mark.parametrize(
    ("name", "law"),
    [
        *(("knowing", law) for law in LAWS),
        *((name, law) for name in ("untrained", "adversarial") for law in ("greedy", "plain")),
    ],
)
def test_coupled_drafts_leave_every_token_and_log_prob_as_it_was(target, drafters, requests, name, law):
    settings = LAWS[law].but(max_tokens=LONG)
    wanted = sample_all(target, requests, settings)
    for width in (64, 3) if law == "plain" else (64,):
        decoder = SpeculativeDecoder(target, drafters[name], rule="coupled", width=width)
        assert same(sample_all(decoder, requests, settings), wanted)
        assert decoder.stats.tau >= 1.0


def test_a_drafter_that_knows_something_is_kept_and_an_adversary_is_not(target, drafters, requests):
    taus = {}
    for name, draft in drafters.items():
        decoder = SpeculativeDecoder(target, draft, rule="rejection")
        list(decoder.sample(requests * 2, Sampling(temperature=0.5, max_tokens=LONG)))
        taus[name] = decoder.stats.tau
    assert taus["knowing"] > 1.2 > taus["adversarial"] >= 1.0


@pytest.mark.parametrize("kind", ["rnn", "dflash", "eagle", "no window"])
def test_other_drafters_leave_the_tokens_too(target, requests, kind):
    known = {"rnn": {"head": "rnn"}, "no window": {"window": None}}
    changes = known.get(kind, {"kind": kind})
    draft = build_draft(draft_config(target, **({"layers": 1, "block": 4, "rank": 8} | changes)), target)
    for sampling in ("greedy", "plain"):
        settings = LAWS[sampling].but(max_tokens=LONG)
        decoder = SpeculativeDecoder(target, draft, rule="coupled", max_draft_tokens=3)
        assert same(sample_all(decoder, requests[:4], settings), sample_all(target, requests[:4], settings))


@pytest.mark.parametrize("mode", ["early_stop", "stale_topk", "fixed"])
def test_no_schedule_changes_a_coupled_token(target, drafters, requests, mode):
    sizes = [1, 2, 4, 8, 16, 32, 64]
    cost = StepCost.of({n: 1.0 + n / 8 for n in sizes}, dict.fromkeys(sizes, 0.1))
    scheduler = PrefixScheduler(cost, mode, threshold=0.3, length=2, beyond="cap", retry=3)
    decoder = SpeculativeDecoder(target, drafters["knowing"], rule="coupled", scheduler=scheduler, width=5)
    settings = LAWS["plain"].but(max_tokens=LONG)
    assert same(sample_all(decoder, requests, settings), sample_all(target, requests, settings))
    assert decoder.stats.verified <= decoder.stats.drafted


def test_where_no_draft_could_pay_the_target_draws_alone(target, drafters, requests):
    sizes = [1, 2, 4, 8, 16, 32, 64]
    cost = StepCost.of({n: float(n) for n in sizes}, dict.fromkeys(sizes, 9.0))
    scheduler = PrefixScheduler(cost, "early_stop", beyond="cap")
    decoder = SpeculativeDecoder(target, drafters["untrained"], rule="rejection", scheduler=scheduler)
    settings = Sampling(max_tokens=9, ignore_eos=True)
    assert same(sample_all(decoder, requests, settings), sample_all(target, requests, settings))
    assert decoder.stats.drafted == 0


def test_a_drafter_that_does_not_pay_is_left_and_probed(target, drafters, requests):
    sizes = [1, 2, 4, 8, 16, 32, 64]
    cost = StepCost.of(dict.fromkeys(sizes, 1.0), dict.fromkeys(sizes, 0.5))
    scheduler = PrefixScheduler(cost, "early_stop", beyond="cap", retry=5)
    decoder = SpeculativeDecoder(target, drafters["untrained"], rule="rejection", scheduler=scheduler)
    found = sample_all(decoder, requests, Sampling(max_tokens=30, ignore_eos=True))
    assert all(len(c.tokens) == 30 for c in found)
    assert decoder.stats.plain > 1.5 * decoder.stats.passes > 0


@pytest.mark.parametrize("law", ["top-p"])
def test_rejection_says_the_same_whatever_is_drawn_beside(target, drafters, requests, law):
    settings = LAWS[law].but(max_tokens=LONG)
    decoder = SpeculativeDecoder(target, drafters["knowing"], rule="rejection")
    together = sample_all(decoder, requests, settings)
    assert decoder.stats.accepted > 0
    narrow = SpeculativeDecoder(target, drafters["knowing"], rule="rejection", width=2)
    assert same(sample_all(narrow, requests, settings), together)
    alone = SpeculativeDecoder(target, drafters["knowing"], rule="rejection")
    assert sample_all(alone, requests[2:3], settings)[0].tokens.tolist() == together[2].tokens.tolist()


def test_requests_of_equal_noise_draft_with_numbers_of_their_own_under_a_schedule(target, drafters):
    """Else one's lengths would depend on what the other is about to draw; without a schedule none do."""
    key = NoiseKey(1, 2, 3)
    twins = [Request(np.array([5, 6], dtype=np.int32), key)] * 2
    settings = Sampling(temperature=6.0, max_tokens=12, ignore_eos=True)
    cost = StepCost.of(dict.fromkeys((1, 2, 4, 8, 16, 32), 1.0))
    for scheduler, equal in ((None, True), (PrefixScheduler(cost, "early_stop"), False)):
        decoder = SpeculativeDecoder(target, drafters["knowing"], scheduler=scheduler)
        one, two = sample_all(decoder, twins, settings)
        assert one.tokens[0] == two.tokens[0], "drawn as in plain decoding"
        assert (one.tokens.tolist() == two.tokens.tolist()) is equal
        assert decoder.stats.verified > 0
        again = sample_all(
            SpeculativeDecoder(target, drafters["knowing"], scheduler=scheduler), twins[:1], settings
        )
        assert equal is (again[0].tokens.tolist() == two.tokens.tolist())


def test_a_probe_without_a_confidence_head_verifies_and_counts_the_others(target, drafters):
    """Six branches, four drafted for: the schedule is told of the two others, and learns all the same."""
    told = []

    class Refuses:
        def __init__(self):
            self.asked = 1

        def drafts(self, requests, recent=None):
            self.asked += 1
            return self.asked % 2 == 0

        def plan(self, survival, limits=None, others=0):
            told.append((len(survival), others))
            return np.zeros(len(survival), dtype=np.int64)

    plain = build_draft(draft_config(target, layers=1, block=3, rank=4, confidence=False), target).eval()
    requests = [Request(np.array([5, 6], dtype=np.int32), NoiseKey(1, 2, d)) for d in range(6)]
    decoder = SpeculativeDecoder(target, plain, scheduler=Refuses())
    sample_all(decoder, requests, Sampling(max_tokens=8, ignore_eos=True))
    assert told[0] == (4, 2)
    assert decoder.stats.verified > 0
    assert decoder.stats.plain > 0


def test_rejection_gives_the_log_probs_of_the_model_not_the_drafters(target, drafters, requests):
    settings = Sampling(temperature=0.7, top_k=20, max_tokens=LONG, entropy_top_k=5)
    decoder = SpeculativeDecoder(target, drafters["knowing"], rule="rejection")
    for request, said in zip(requests, sample_all(decoder, requests, settings), strict=True):
        whole = np.concatenate([request.tokens, said.tokens]).astype(np.int32)
        start = len(request.tokens)
        [scores] = target.logprobs([whole])
        assert np.allclose(said.logprobs_t1, scores[start - 1 :], atol=CLOSE)
        samplings = target.next_logprobs([whole[:i] for i in range(start, len(whole))])
        for i, sampling in enumerate(samplings):
            kept = np.argsort(-sampling)[:20]
            filtered = sampling[kept].astype(np.float64) / 0.7
            stated = sampling[said.tokens[i]] / 0.7 - np.logaddexp.reduce(filtered)
            assert said.logprobs[i] == pytest.approx(stated, abs=1e-4)
        assert len(said.entropy) == len(said.tokens)
        assert (said.entropy > 0).all()


def test_stops_ends_bans_and_forced_tokens_are_honoured(target, drafters, requests):
    base = sample_all(target, requests, Sampling(max_tokens=LONG, ignore_eos=True))
    assert any(c.finish == "stop" for c in sample_all(target, requests, Sampling(max_tokens=LONG)))
    stop_id = int(base[0].tokens[5])
    for settings in (
        Sampling(max_tokens=LONG, stop_ids=(stop_id, int(base[1].tokens[8]))),
        Sampling(max_tokens=LONG, stop=(base[1].text[3:4] or "e", base[2].text[5:6] or "a")),
        Sampling(max_tokens=LONG, banned=tuple(range(120)), banned_first=(200, 201)),
        Sampling(max_tokens=LONG, forced=(5, 6, 7, 8, 9, 10), banned_first=tuple(range(200))),
        Sampling(max_tokens=1),
        Sampling(max_tokens=2),
    ):
        for rule in ("coupled", "rejection"):
            decoder = SpeculativeDecoder(target, drafters["knowing"], rule=rule)
            found = sample_all(decoder, requests, settings)
            if rule == "coupled":
                assert same(found, sample_all(target, requests, settings))
            for said in found:
                assert len(said.tokens) <= settings.max_tokens
                assert said.tokens[: len(settings.forced)].tolist() == list(settings.forced)
                free = said.tokens[len(settings.forced) :]
                assert not np.isin(free, settings.banned).any()
                assert not np.isin(free[:1], settings.banned_first).any()
                assert not np.isin(said.tokens[:-1], settings.stop_ids).any()


def test_a_request_may_say_less_and_the_context_ends_it(target, drafters):
    long = np.arange(150, dtype=np.int32)
    requests = [Request(long, NoiseKey(0, 0, 0)), Request(long[:9], NoiseKey(0, 0, 1), max_tokens=4)]
    decoder = SpeculativeDecoder(target, drafters["knowing"], rule="coupled")
    found = sample_all(decoder, requests, Sampling(max_tokens=40))
    assert [len(c.tokens) for c in found] == [10, 4]
    assert [c.finish for c in found] == ["length", "length"]
    assert found[0].tokens.tolist() == sample_all(target, requests[:1], Sampling())[0].tokens.tolist()


def test_many_forks_of_one_prefix_project_it_once(target, monkeypatch):
    draft = untrained(target)
    rows = []
    context = type(draft).context

    def counted(self, states):
        rows.append(len(states))
        return context(self, states)

    monkeypatch.setattr(type(draft), "context", counted)
    prompt = np.arange(60, dtype=np.int32)
    requests = [Request(prompt, NoiseKey(0, 0, draw)) for draw in range(40)]
    decoder = SpeculativeDecoder(target, draft, rule="coupled")
    settings = Sampling(max_tokens=4)
    assert same(sample_all(decoder, requests, settings), sample_all(target, requests, settings))
    assert rows[0] == 12, "the window of the one prompt"


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_forced_tokens_are_proposed_and_kept(target, drafters, rule):
    """At the seam itself: decoders may also feed them one by one."""
    settings = Sampling(forced=(5, 6, 7), banned_first=tuple(range(100)), max_tokens=9, temperature=0.9)
    speculator = ModelSpeculator(drafters["untrained"], rule=rule)
    request_ids, states = np.array([3, 4]), torch.zeros((2, len(speculator.layers), 32))
    speculator.join(request_ids, [np.array([1, 2], dtype=np.int32)] * 2, [states, states])
    key = [NoiseKey(0, 0, 0), NoiseKey(0, 0, 1)]
    branches = ActiveRows(
        request_ids,
        np.array([5, 6]),
        np.array([2, 3]),
        np.array([1, 2]),
        np.array([8, 7]),
        [settings] * 2,
        key,
    )
    with pytest.raises(BadInput, match="joined twice"):
        speculator.join(request_ids[:1], [np.array([1], dtype=np.int32)], [states])
    drafts = speculator.draft(branches)
    assert drafts.tokens[0, :2].tolist() == [6, 7]
    assert drafts.tokens[1, 0] == 7
    logits = torch.randn((10, 258), generator=torch.Generator().manual_seed(0))
    first, second = speculator.settle(branches, drafts, logits)
    assert first.tokens[:2].tolist() == [6, 7]
    assert second.tokens[0] == 7
    assert min(first.tokens[2], second.tokens[1]) >= 100
    stated = torch.log_softmax(logits / 0.9, dim=-1)[0, 6]
    assert first.logprobs[0] == pytest.approx(float(stated), abs=1e-5)


def test_laws_of_a_batch_may_differ(target, drafters, requests):
    """Requests of several distributions in one batch, as a server sees them."""
    settings = [sampling.but(max_tokens=LONG) for sampling in LAWS.values()]
    speculator = ModelSpeculator(drafters["knowing"], rule="coupled")
    live = LiveDecoder(target.decoder, speculator=speculator)
    said = {}
    asked = list(zip(requests, settings, strict=False))
    for place, (request, sampling) in enumerate(asked):
        said[live.submit(target.ask(request.tokens, request.noise, sampling))] = []
        if place % 2:
            for item in live.step():
                said[item.request_id] += item.tokens.tolist()
    assert speculator.bytes > 0
    while not live.idle:
        for item in live.step():
            said[item.request_id] += item.tokens.tolist()
    wanted = [sample_all(target, [r], sampling)[0].tokens.tolist() for r, sampling in asked]
    assert list(said.values()) == wanted
    assert speculator.bytes == 0


def test_a_drafter_of_another_model_is_refused(target, drafters):
    other = gqa(seed=1)
    with pytest.raises(WrongWeights, match="weights"):
        SpeculativeDecoder(other, drafters["untrained"])
    config = drafters["untrained"].config
    strange = untrained(target)
    strange.config = config.but(tokenizer="0" * 64)
    with pytest.raises(WrongTokenizer):
        SpeculativeDecoder(target, strange)
    strange.config = config.but(vocabulary=300)
    with pytest.raises(WrongTokenizer, match="vocabulary"):
        SpeculativeDecoder(target, strange)


def test_settings_that_make_no_sense_are_refused(target, drafters):
    draft = drafters["untrained"]
    with pytest.raises(BadInput, match="acceptance rule"):
        SpeculativeDecoder(target, draft, rule="greedy")
    with pytest.raises(BadInput, match="max_draft_tokens"):
        SpeculativeDecoder(target, draft, max_draft_tokens=0)
    with pytest.raises(BadInput, match="width"):
        SpeculativeDecoder(target, draft, width=0)
    with pytest.raises(BadInput, match="positions"):
        SpeculativeDecoder(target, draft, calibration=SequentialTemperatureScaling((1.0,), (0,)))
    cost = StepCost.of({1: 1.0, 2: 2.0}, {1: 0.1, 2: 0.2})
    leaky = PrefixScheduler(cost, "context_only")
    with pytest.raises(CannotDo, match="changes the output's distribution"):
        SpeculativeDecoder(target, draft, rule="rejection", scheduler=leaky)
    SpeculativeDecoder(target, draft, rule="coupled", scheduler=leaky)


def test_requests_have_terms_of_their_own(target, drafters):
    decoder = SpeculativeDecoder(target, drafters["knowing"], rule="coupled")
    prompt, settings = np.array([1, 2], dtype=np.int32), Sampling(max_tokens=7, ignore_eos=True)
    plain = sample_all(target, [Request(prompt, NoiseKey(0, 0, 0))], settings)[0]
    asked = [
        Request(prompt, NoiseKey(0, 0, 0), exclude_first=int(plain.tokens[0])),
        Request(prompt, NoiseKey(0, 0, 1), max_tokens=3),
    ]
    for mine, theirs in zip(
        sample_all(decoder, asked, settings), sample_all(target, asked, settings), strict=True
    ):
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)
        np.testing.assert_allclose(mine.logprobs, theirs.logprobs, atol=1e-5)


def test_generate_takes_texts_and_tokens(target, drafters):
    decoder = SpeculativeDecoder(target, drafters["knowing"])
    found = decoder.generate(["ab", np.array([5, 6], dtype=np.int32)], Sampling(max_tokens=5), seed=3)
    assert [c.index for c in found] == [0, 1]
    assert [c.tokens.tolist() for c in found] == [
        c.tokens.tolist()
        for c in SpeculativeDecoder(target, drafters["knowing"]).generate(
            ["ab", np.array([5, 6], dtype=np.int32)], Sampling(max_tokens=5), seed=3
        )
    ]
    assert decoder.stats.rounds > 0
    decoder.reset()
    assert (decoder.stats.rounds, decoder.stats.tau) == (0, None)


def test_its_card_tells_the_schedule_and_the_calibration(target, drafters):
    cost = StepCost.of({b: 1.0 + b / 8 for b in shapes(64)})

    def told(scheduler=None, calibration=None):
        decoder = SpeculativeDecoder(
            target, drafters["knowing"], scheduler=scheduler, calibration=calibration
        )
        found = decoder.card.extra["speculate"]
        return found["schedule"], found["calibration"]

    assert told() == (None, None)
    plain, _ = told(PrefixScheduler(cost))
    assert (plain["mode"], plain["margin"]) == ("early_stop", 1.0)
    others = [
        PrefixScheduler(cost, margin=1.2),
        PrefixScheduler(StepCost.of({b: 2.0 + b for b in shapes(64)})),
        PrefixScheduler(cost, "stale_topk", staleness=2),
        PrefixScheduler(None, "fixed", length=2),
        PrefixScheduler(None, "fixed", length=3),
    ]
    assert len({json.dumps(told(other)[0]) for other in [PrefixScheduler(cost), *others]}) == 6
    warm = SequentialTemperatureScaling((1.5, 1.0, 1.0, 1.0), (900, 800, 700, 600))
    assert told(PrefixScheduler(cost), warm) == (plain, [1.5, 1.0, 1.0, 1.0])


def test_the_policy_is_its_target_with_another_way_to_sample_all(target, drafters):
    coupled = SpeculativeDecoder(target, drafters["knowing"], rule="coupled")
    other = SpeculativeDecoder(target, drafters["knowing"], rule="rejection")
    assert coupled.card.can("paired")
    assert not other.card.can("paired")
    assert not coupled.card.can("whitebox")
    assert coupled.card.weights == target.card.weights
    drafted = coupled.card.extra["speculate"]
    assert (drafted["rule"], drafted["kind"], drafted["max_draft_tokens"]) == ("coupled", "dspark", 4)
    assert len(drafted["drafter"]) == 64
    tokens = coupled.encode("hello")
    assert coupled.decode(tokens) == "hello"
    message = [{"role": "user", "content": "hi"}]
    assert coupled.render([], tokens[:0], message).text == target.render([], tokens[:0], message).text
    assert np.array_equal(coupled.logprobs([tokens])[0], target.logprobs([tokens])[0])
    assert np.array_equal(coupled.next_logprobs([tokens])[0], target.next_logprobs([tokens])[0])
