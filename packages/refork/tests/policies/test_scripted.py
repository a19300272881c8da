"""The scripted policy: exact distributions, filters, couplings, and everything a policy promises."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.scripted import (
    END,
    TURN,
    ScriptedPolicy,
    Words,
    choose_gumbel,
    choose_inverse,
    distribution_array,
    filtered,
    without,
)
from refork.sampling.noise import NoiseKey, gumbels, uniforms
from refork.types import token_array

COIN = {" heads": 0.6, " tails": 0.3, "": 0.1}
CHAIN = {"": {"a": 0.5, "b": 0.5}, "a": {"a": 0.2, "b": 0.3, "": 0.5}, "b": {"a": 0.9, "": 0.1}}


def coin():
    return ScriptedPolicy.from_text(lambda text: COIN, words=COIN)


def keys(count, seed=0, stream=1):
    return [NoiseKey(seed, stream, draw) for draw in range(count)]


def draws(policy, count, sampling, prompt="toss", **request):
    prefix = policy.encode(prompt)
    return sample_all(policy, [Request(prefix, key, **request) for key in keys(count)], sampling)


# -- the tokenizer ----------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_words_are_lossless(text):
    words = Words(["go", " north", "é", "go north", "🙂!"])
    ids = words.encode(text)
    back, ends = words.pieces(ids)
    assert back == text
    assert len(ends) == len(ids)
    assert not text or ends[-1] == len(text)


def test_the_longest_word_wins_and_characters_end_with_their_last_byte():
    words = Words(["go", "go north"])
    assert len(words.encode("go north")) == 1
    text, ends = words.pieces(words.encode("go é"))
    assert text == "go é"
    assert list(ends) == [2, 3, 3, 4]
    with pytest.raises(BadInput, match="outside the vocabulary"):
        words.pieces([len(words)])
    with pytest.raises(BadInput, match="not one token"):
        words.one("go south")


# -- distributions -------------------------------------------------------------------------------------


def test_laws_must_be_laws():
    words = Words(["ab"])
    for bad in ({"ab": 0.5}, {"ab": 1.5, "a": -0.5}, {"ab": float("nan")}, {}):
        with pytest.raises(BadInput, match="sum to 1"):
            distribution_array(bad, words)
    distribution = distribution_array({"ab": 0.25, "": 0.75}, words)
    assert np.exp(distribution[END]) == pytest.approx(0.75)
    assert np.exp(distribution[words.one("ab")]) == pytest.approx(0.25)


LAW = np.log(np.array([0.4, 0.1, 0.3, 0.15, 0.05]))


def test_filters_by_hand():
    def law(**options):
        banned = options.pop("ban", ())
        return np.exp(filtered(LAW, Sampling(**options), banned))

    np.testing.assert_allclose(law(), [0.4, 0.1, 0.3, 0.15, 0.05])
    np.testing.assert_allclose(law(ban=(0,)), np.array([0, 0.1, 0.3, 0.15, 0.05]) / 0.6)
    np.testing.assert_allclose(law(top_k=2), [4 / 7, 0, 3 / 7, 0, 0])
    np.testing.assert_allclose(law(top_p=0.69), [4 / 7, 0, 3 / 7, 0, 0])
    np.testing.assert_allclose(law(top_p=0.71), np.array([0.4, 0, 0.3, 0.15, 0]) / 0.85)
    np.testing.assert_allclose(law(top_p=1e-9), [1, 0, 0, 0, 0])
    square = np.array([0.4, 0.1, 0.3, 0.15, 0.05]) ** 2
    np.testing.assert_allclose(law(temperature=0.5), square / square.sum())
    np.testing.assert_allclose(law(temperature=0), [1, 0, 0, 0, 0])
    np.testing.assert_allclose(law(temperature=0, ban=(0,)), [0, 0, 1, 0, 0])
    # Order: the ban acts before top-k, temperature before top-p.
    np.testing.assert_allclose(law(top_k=1, ban=(0,)), [0, 0, 1, 0, 0])
    flat = np.exp(filtered(LAW, Sampling(temperature=1e6, top_p=0.5)))
    assert np.count_nonzero(flat) == 3
    assert not np.isfinite(filtered(LAW, Sampling(), range(5))).any()


def test_equal_chances():
    flat = np.log(np.full(4, 0.25))
    np.testing.assert_allclose(np.exp(filtered(flat, Sampling(top_k=2))), np.full(4, 0.25))
    np.testing.assert_allclose(np.exp(filtered(flat, Sampling(top_p=0.4))), [0.5, 0.5, 0, 0])
    even = ScriptedPolicy.from_text(lambda t: {"a": 0.5, "b": 0.5})
    said = draws(even, 1, Sampling(temperature=0, max_tokens=3))[0]
    assert (said.text, said.ties) == ("aaa", 3)


def test_without_renormalises():
    np.testing.assert_allclose(np.exp(without(LAW, 0)), np.array([0, 0.1, 0.3, 0.15, 0.05]) / 0.6)


def test_inverse_choice_and_its_ties():
    distribution = np.log(np.array([0.5, 1e-300, 0.25, 0.25]))
    distribution[1] = -np.inf
    assert choose_inverse(distribution, 0.49) == (0, False)
    assert choose_inverse(distribution, 0.51) == (2, False)
    assert choose_inverse(distribution, 0.5 - 1e-9) == (0, True)
    assert choose_inverse(distribution, 0.75) == (3, True)
    assert choose_inverse(distribution, 1 - 1e-16) == (3, False)


def test_gumbel_choice_and_its_ties():
    distribution = np.log(np.array([0.5, 0.5]))
    assert choose_gumbel(distribution, np.array([0.0, 1.0])) == (1, False)
    assert choose_gumbel(distribution, np.array([1e-9, 0.0])) == (0, True)
    alone = np.array([0.0, -np.inf])
    assert choose_gumbel(alone, np.zeros(2)) == (0, False)


# -- sampling ---------------------------------------------------------------------------------


def test_it_is_a_policy():
    policy = coin()
    assert isinstance(policy, Policy)
    assert policy.card.can("tokens")
    assert policy.card.can("paired")
    assert policy.card.vocabulary == 2 + 256 + 2
    assert policy.card.to_json()["capabilities"] == ["logprobs", "paired", "scores", "tokens"]


def test_draws_follow_the_noise_exactly():
    policy = coin()
    said = draws(policy, 200, Sampling(max_tokens=1))
    numbers = uniforms(keys(200), 1)[:, 0]
    # In order of ids: the end, " heads", " tails".
    expected = np.searchsorted([0.1, 0.7], numbers, side="right")
    ids = [END, policy.encode(" heads")[0], policy.encode(" tails")[0]]
    assert [s.tokens[0] for s in said] == [ids[e] for e in expected]


@pytest.mark.parametrize("coupling", ["inverse", "gumbel"])
def test_a_draw_is_the_same_in_any_batch_and_order(coupling):
    policy = ScriptedPolicy.from_chain(CHAIN)
    sampling = Sampling(max_tokens=12, coupling=coupling)
    prefix = policy.encode("x")
    requests = [Request(prefix, key) for key in keys(20)]
    together = sample_all(policy, requests, sampling)
    alone = [sample_all(ScriptedPolicy.from_chain(CHAIN), [r], sampling)[0] for r in requests]
    backwards = sample_all(policy, requests[::-1], sampling)[::-1]
    for one, two, three in zip(together, alone, backwards, strict=True):
        assert list(one.tokens) == list(two.tokens) == list(three.tokens)
        np.testing.assert_array_equal(one.logprobs, two.logprobs)


def test_logprobs_of_draws_and_of_sequences_agree():
    policy = ScriptedPolicy.from_chain(CHAIN)
    sampling = Sampling(max_tokens=8, temperature=0.7, top_k=2, entropy_top_k=5)
    prefix = policy.encode("x")
    for key in keys(20):
        said = sample_all(policy, [Request(prefix, key)], sampling)[0]
        whole = token_array([*prefix, *said.tokens])
        [scores] = policy.logprobs([whole])
        np.testing.assert_array_equal(scores[len(prefix) - 1 :], said.logprobs_t1)
        assert said.logprobs.dtype == said.logprobs_t1.dtype == np.float32
        assert len(said.offsets) == len(said.entropy) == len(said.tokens)
        assert said.text == policy.decode(said.tokens)


def test_chain_logprobs_by_hand():
    policy = ScriptedPolicy.from_chain(CHAIN)
    [scores] = policy.logprobs([token_array([TURN, *policy.encode("ab"), END])])
    np.testing.assert_allclose(scores, np.log([0.5, 0.3, 0.1]), rtol=1e-6)
    [scores] = policy.logprobs([policy.encode("bb")])
    assert scores[0] == -np.inf


def test_entropy_over_the_top_k():
    said = draws(coin(), 1, Sampling(max_tokens=1, entropy_top_k=2))[0]
    assert said.entropy[0] == pytest.approx(-(0.6 * np.log(0.6) + 0.3 * np.log(0.3)))
    assert draws(coin(), 1, Sampling(max_tokens=1))[0].entropy is None
    certain = ScriptedPolicy.from_replies(["yes"])
    assert draws(certain, 1, Sampling(entropy_top_k=3))[0].entropy[0] == 0.0


def test_forced_tokens_come_first_with_the_laws_logprobs():
    policy = coin()
    tails, heads = int(policy.encode(" tails")[0]), int(policy.encode(" heads")[0])
    sampling = Sampling(max_tokens=2, forced=(tails,), banned_first=(heads,))
    for said in draws(policy, 30, sampling):
        assert said.tokens[0] == tails
        assert said.logprobs[0] == said.logprobs_t1[0] == pytest.approx(np.log(0.3))
        # The ban acts on the first free token, which is the second here.
        assert said.tokens[1] != heads
        assert said.logprobs[1] == pytest.approx(np.log({tails: 0.75, END: 0.25}[int(said.tokens[1])]))
        assert said.logprobs_t1[1] == pytest.approx(np.log({tails: 0.3, END: 0.1}[int(said.tokens[1])]))


def test_bans():
    policy = coin()
    tails, heads = int(policy.encode(" tails")[0]), int(policy.encode(" heads")[0])
    for said in draws(policy, 30, Sampling(max_tokens=4, banned=(tails, END))):
        assert set(said.tokens) == {heads}
        assert said.finish == "length"
        np.testing.assert_allclose(said.logprobs, 0.0, atol=1e-7)
    gone = draws(policy, 1, Sampling(banned=(tails, heads, END)))[0]
    assert gone.finish == "error"
    assert "no token" in gone.error
    assert len(gone.tokens) == 0


def test_exclude_first_draws_from_the_conditional_law():
    policy = coin()
    tails, heads = int(policy.encode(" tails")[0]), int(policy.encode(" heads")[0])
    said = draws(policy, 60, Sampling(max_tokens=1), exclude_first=heads)
    assert {int(s.tokens[0]) for s in said} == {tails, END}
    assert {round(float(np.exp(s.logprobs[0])), 6) for s in said} == {0.75, 0.25}
    # The filters act first: top-1 keeps heads alone, and nothing is left without it.
    assert draws(policy, 1, Sampling(top_k=1), exclude_first=heads)[0].finish == "error"


def test_stopping():
    policy = ScriptedPolicy.from_text(lambda t: {"a": 1.0} if not t.endswith("aaa") else {"b": 1.0})
    said = draws(policy, 1, Sampling(stop=("ab",), max_tokens=9), prompt="x")[0]
    assert (said.text, said.finish) == ("aaab", "stop")
    # In a turn that has said "xa", which "xaa" then ends; "xa" ended it before and does not again.
    assert draws(policy, 1, Sampling(stop=("xaa", "xa")), prompt="xa", generated=2)[0].text == "a"
    assert draws(policy, 1, Sampling(stop=("xaa",), max_tokens=2), prompt="xa", generated=1)[0].text == "aa"
    # Forced tokens end no turn before all of them are out.
    forced = tuple(int(token) for token in policy.encode("aab"))
    assert draws(policy, 1, Sampling(stop=("aa",), forced=forced, max_tokens=4), prompt="x")[0].text == "aaba"
    letter = int(policy.encode("b")[0])
    assert draws(policy, 1, Sampling(stop_ids=(letter,)), prompt="x")[0].text == "aaab"
    short = draws(policy, 1, Sampling(max_tokens=2), prompt="x")[0]
    assert (short.text, short.finish) == ("aa", "length")
    assert draws(policy, 1, Sampling(max_tokens=9), prompt="x", max_tokens=3)[0].text == "aaa"
    nothing = draws(policy, 1, Sampling(), prompt="x", max_tokens=0)[0]
    assert (len(nothing.tokens), nothing.finish) == (0, "length")


def test_the_end_of_the_turn():
    policy = ScriptedPolicy.from_replies(["yes"])
    said = draws(policy, 1, Sampling())[0]
    assert list(said.tokens) == [*policy.encode("yes"), END]
    assert (said.text, said.finish) == ("yes", "stop")
    assert list(said.offsets) == [3, 3]
    on = draws(policy, 1, Sampling(ignore_eos=True, max_tokens=5))[0]
    assert on.finish == "length"
    assert len(on.tokens) == 5


@pytest.mark.parametrize("coupling", ["inverse", "gumbel"])
def test_greedy_is_a_point_mass(coupling):
    said = draws(coin(), 5, Sampling(temperature=0, max_tokens=3, coupling=coupling))
    assert {s.text for s in said} == {" heads heads heads"}
    assert all((s.logprobs == 0).all() and s.ties == 0 for s in said)
    np.testing.assert_allclose(said[0].logprobs_t1, np.log(0.6), rtol=1e-6)


def test_bad_requests():
    policy = coin()
    with pytest.raises(BadInput, match="prefix is empty"):
        sample_all(policy, [Request(token_array([]), keys(1)[0])], Sampling())
    with pytest.raises(BadInput, match="outside the vocabulary"):
        sample_all(policy, [Request(token_array([9999]), keys(1)[0])], Sampling())
    with pytest.raises(BadInput, match=r"outside the vocabulary.*sampling settings"):
        draws(policy, 1, Sampling(banned=(9999,)))
    with pytest.raises(BadInput, match="outside"):
        policy.logprobs([token_array([-1, 2])])


# -- replies ----------------------------------------------------------------------------------

REPLIES = {"go north": 2.0, "go south": 1.0, "wait": 1.0}


def test_replies_are_drawn_by_weight():
    policy = ScriptedPolicy.from_replies(REPLIES)
    # Two of the three begin with the same token; behind it they part as their weights do.
    asked = [*policy.encode("where?\n"), TURN]
    first, second = policy.next_logprobs([token_array(asked), token_array([*asked, *policy.encode("go")])])
    chances = [np.exp(law[int(policy.encode(text)[0])]) for law, text in
               ((first, "go"), (first, "wait"), (second, " north"), (second, " south"))]  # fmt: skip
    assert chances == pytest.approx([0.75, 0.25, 2 / 3, 1 / 3])


def test_a_reply_goes_on_where_the_turn_stands():
    policy = ScriptedPolicy.from_replies(REPLIES)
    context = policy.render([], token_array([]), [{"role": "user", "content": "go or wait"}]).tokens
    begun = token_array([*context, *policy.encode("go")])
    said = sample_all(policy, [Request(begun, key, mid_turn=True) for key in keys(40)], Sampling())
    assert {s.text for s in said} == {" north", " south"}
    # Off the script, the longest end of the turn that begins a reply decides.
    off = token_array([*context, *policy.encode("zzz go south")])
    assert sample_all(policy, [Request(off, keys(1)[0])], Sampling())[0].tokens[0] == END
    lost = token_array([*context, *policy.encode("zzz ")])
    assert sample_all(policy, [Request(lost, keys(1)[0])], Sampling())[0].text in REPLIES


def test_replies_of_any_characters():
    policy = ScriptedPolicy.from_replies(["ünïcode 🙂 ok", "ü"])
    assert {s.text for s in draws(policy, 20, Sampling())} == {"ünïcode 🙂 ok", "ü"}
    begun = policy.encode("ün")
    assert sample_all(policy, [Request(begun, keys(1)[0])], Sampling())[0].text == "ïcode 🙂 ok"


def test_replies_need_a_weight():
    for bad in ([], {}, {"a": 0.0}, {"a": -1.0, "b": 2.0}, {"a": float("inf")}):
        with pytest.raises(BadInput, match="at least one reply"):
            ScriptedPolicy.from_replies(bad)


def test_chains_need_a_start_and_laws():
    with pytest.raises(BadInput, match="start of a turn"):
        ScriptedPolicy.from_chain({"a": {"": 1.0}})
    with pytest.raises(BadInput, match="sum to 1"):
        ScriptedPolicy.from_chain({"": {"a": 1.0}, "a": {"a": 0.5}})


# -- rendering and identity -------------------------------------------------------------------


def test_deltas_add_up():
    policy = ScriptedPolicy.from_replies(["yes"])
    ask = {"role": "user", "content": "well?"}
    first = policy.render([], token_array([]), [ask])
    assert first.text == "well?\n"
    assert first.tokens[-1] == TURN
    yes = [*policy.encode("yes")]
    for said in (yes, [*yes, END]):
        context = token_array([*first.tokens, *said])
        delta = policy.render([ask, {"role": "assistant", "content": "yes"}], context, [ask])
        whole = policy.render([], token_array([]), [ask, {"role": "assistant", "content": "yes"}, ask])
        assert [*context, *delta.tokens] == list(whole.tokens)
        assert not delta.rewrites


def test_digests_tell_laws_apart():
    cards = [
        ScriptedPolicy.from_replies(["yes"]).card,
        ScriptedPolicy.from_replies({"yes": 2.0}).card,
        ScriptedPolicy.from_replies(["no!"]).card,
        ScriptedPolicy.from_chain(CHAIN).card,
        ScriptedPolicy.from_text(lambda t: COIN, COIN).card,
        ScriptedPolicy.from_text(lambda t: COIN, COIN, version="2").card,
    ]
    for one, two in itertools.combinations(cards, 2):
        assert one.weights != two.weights
    assert ScriptedPolicy.from_chain(CHAIN).card == cards[3]
    assert cards[0].tokenizer == cards[1].tokenizer != cards[2].tokenizer


def test_a_named_text_that_is_no_token():
    policy = ScriptedPolicy.from_text(lambda t: {"two words": 1.0})
    with pytest.raises(BadInput, match="not one token"):
        draws(policy, 1, Sampling())


# -- the same distribution as the models' --------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-4, 4), min_size=5, max_size=9, unique=True),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([None, 0.35, 0.9]),
    st.sampled_from([(), (0, 2)]),
    st.sampled_from(["inverse", "gumbel"]),
    st.integers(0, 2**32),
)
def test_the_law_and_the_draw_are_those_of_the_models(
    logits, temperature, top_k, top_p, banned, coupling, seed
):
    torch = pytest.importorskip("torch")
    models = pytest.importorskip("refork.sampling.distribution")
    bare = np.array(logits, dtype=np.float32).astype(np.float64)
    bare -= np.log(np.exp(bare).sum())
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, banned=banned, coupling=coupling)
    distribution = filtered(bare, sampling, banned)
    key = NoiseKey(seed, 0, 0)
    inverse = coupling == "inverse"
    noise = uniforms([key], 1)[:, 0] if inverse else gumbels([key], 0, len(distribution))
    theirs = models.draw(torch.tensor(bare, dtype=torch.float32)[None], sampling, torch.from_numpy(noise))
    if temperature == 0:
        token, tie = int(np.argmax(distribution)), False
    else:
        token, tie = (
            choose_inverse(distribution, float(noise[0]))
            if inverse
            else choose_gumbel(distribution, noise[0])
        )
    if tie or bool(theirs.ties[0]) or min(np.diff(np.sort(bare))) < 1e-5:
        return  # there rounding decides
    assert int(theirs.tokens[0]) == token
    assert float(theirs.logprobs[0]) == pytest.approx(distribution[token], abs=1e-5)
    assert float(theirs.logprobs_t1[0]) == pytest.approx(bare[token], abs=1e-5)
