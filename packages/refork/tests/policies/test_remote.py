"""Remote policies against a real server on loopback: exact draws, refusals, patience."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from refork.errors import BadInput, CannotDo, ServerError
from refork.policies.base import Policy, Request, Sampling, sample_all
from refork.policies.remote import RemotePolicy
from refork.policies.remote.calls import Caller, Patience, retry_after
from refork.policies.remote.endpoint import server_name
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support.openai_server import CODEC, LETTERS, Refusal, Script, law

PREFIX = CODEC.encode("once upon")
ASK = ({"role": "user", "content": "Which colour?"},)


def requests(count, prefix=PREFIX, **more):
    return [Request(prefix, NoiseKey(0, 1, draw), **more) for draw in range(count)]


def scores_by_hand(prefix, said):
    ids = [*prefix, *said]
    return [law(ids[:i])[ids[i]] for i in range(len(prefix), len(ids))]


# -- the probe and the card -------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llama", "named"])
def test_a_server_with_token_ids(remote, dialect):
    policy = remote(Script(dialect=dialect), tokenizer=CODEC)
    card = policy.card
    assert isinstance(policy, Policy)
    assert card.capabilities == {"tokens", "logprobs", "scores", "paired"}
    assert card.extra["mode"] == "tokens"
    assert card.extra["logprobs_of"] == "t1"
    assert (card.context, card.vocabulary, card.tokenizer) == (512, CODEC.vocabulary, CODEC.digest)
    assert card.weights is None
    assert card.name == f"openai:{policy.url}#tiny"


def test_the_probe_happens_once_and_is_small(remote):
    policy = remote(tokenizer=CODEC)
    assert policy.script.seen == []
    assert policy.card == policy.card
    assert len(policy.script.seen) <= 30
    assert all(body.get("max_tokens", 0) <= 8 for _, body in policy.script.seen)


def test_what_the_probe_finds_missing(remote):
    assert not remote(Script(seeds=False), tokenizer=CODEC).card.can("paired")
    assert remote(Script(seeds=False)).card.extra["seed"].startswith("ignored: 0 of 10 seeds")
    assert not remote(Script(echo=False), tokenizer=CODEC).card.can("scores")
    assert remote(Script(law="sampled")).card.extra["logprobs_of"] == "sampled"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (Script(dialect=None), "refused a prompt of token ids"),
        (Script(dialect="text"), "without token ids"),
        (Script(strict=True), "Unrecognized request argument"),
    ],
)
def test_servers_that_only_chat(remote, script, reason):
    policy = remote(script)
    card = policy.card
    assert card.capabilities == {"paired"}
    assert card.extra["mode"] == "chat"
    assert reason in card.extra["why_not_tokens"]


def test_chat_models_with_their_own_limits(remote):
    policy = remote(Script(dialect=None, limit_name="max_completion_tokens", free_temperature=False))
    sample_all(policy, requests(1, messages=ASK), Sampling(max_tokens=3))
    body = policy.script.bodies("/chat/completions")[-1]
    assert body["max_completion_tokens"] == 3
    assert "temperature" not in body
    with pytest.raises(CannotDo, match="no temperature but 1"):
        sample_all(policy, requests(1, messages=ASK), Sampling(temperature=0.5))


def test_a_server_that_does_neither(remote):
    with pytest.raises(ServerError, match=r"neither token ids.*nor chat") as caught:
        _ = remote(Script(dialect=None, chat=False)).card
    assert "tiny" in caught.value.hint


# -- token-exact draws ------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llama", "named"])
def test_draws_are_token_exact(remote, dialect):
    policy = remote(Script(dialect=dialect), tokenizer=CODEC)
    said = sample_all(policy, requests(12), Sampling(max_tokens=6, entropy_top_k=3))
    for one in said:
        assert one.tokens.dtype == np.int32
        assert one.text == CODEC.decode(one.tokens)
        assert list(one.offsets) == list(CODEC.pieces(one.tokens)[1])
        assert one.finish == ("stop" if one.tokens[-1] == 1 else "length")
        np.testing.assert_allclose(one.logprobs, scores_by_hand(PREFIX, one.tokens), rtol=1e-5)
        np.testing.assert_array_equal(one.logprobs, one.logprobs_t1)
        top = np.sort(law(PREFIX))[::-1][:3]
        assert one.entropy[0] == pytest.approx(-(np.exp(top) * top).sum(), rel=1e-5)
        assert one.cost.tokens_in == len(PREFIX)
        assert one.cost.tokens_out == len(one.tokens)
        assert one.cost.seconds > 0
        assert one.cost.money is None
    body = policy.script.bodies("/completions")[-1]
    assert body["prompt"] == list(PREFIX)


def test_equal_keys_give_equal_draws(remote):
    first, again = remote(tokenizer=CODEC), remote(tokenizer=CODEC, concurrency=1)
    one = sample_all(first, requests(10), Sampling(max_tokens=5))
    two = sample_all(again, requests(10)[::-1], Sampling(max_tokens=5))[::-1]
    assert [list(s.tokens) for s in one] == [list(s.tokens) for s in two]
    seeds = {body["seed"] for body in first.script.bodies("/completions")[-10:]}
    assert seeds == {NoiseKey(0, 1, draw).call_seed(0) for draw in range(10)}


def test_which_logprobs_are_known_under_filters(remote):
    cool = Sampling(max_tokens=4, temperature=0.5)
    raw = sample_all(remote(tokenizer=CODEC), requests(3), cool)
    assert all(s.logprobs is None for s in raw)
    for one in raw:
        np.testing.assert_allclose(one.logprobs_t1, scores_by_hand(PREFIX, one.tokens), rtol=1e-5)
    sampled = sample_all(remote(Script(law="sampled"), tokenizer=CODEC), requests(3), cool)
    assert all(s.logprobs_t1 is None and s.logprobs is not None for s in sampled)
    plain = sample_all(remote(Script(law="sampled"), tokenizer=CODEC), requests(3), Sampling(max_tokens=4))
    assert all(s.logprobs_t1 is not None and s.logprobs is not None for s in plain)


def test_forced_tokens(remote):
    policy = remote(tokenizer=CODEC)
    forced = tuple(int(i) for i in CODEC.encode("hg"))
    for one in sample_all(policy, requests(4), Sampling(max_tokens=5, forced=forced)):
        assert tuple(one.tokens[:2]) == forced
        np.testing.assert_allclose(one.logprobs_t1, scores_by_hand(PREFIX, one.tokens), rtol=1e-5)
    without = sample_all(
        remote(Script(echo=False), tokenizer=CODEC), requests(1), Sampling(max_tokens=5, forced=forced)
    )
    assert without[0].logprobs is None
    ended = sample_all(policy, requests(1), Sampling(max_tokens=5, forced=(LETTERS[0], 1)))[0]
    assert (list(ended.tokens), ended.finish) == ([LETTERS[0], 1], "stop")


def test_bans_and_the_first_token(remote):
    policy = remote(tokenizer=CODEC)
    likely = int(np.argmax(law(PREFIX)))
    for one in sample_all(policy, requests(8), Sampling(max_tokens=5, banned_first=(likely,), banned=(1,))):
        assert one.tokens[0] != likely
        assert 1 not in one.tokens
        assert len(one.tokens) == 5
        assert one.logprobs is None
        np.testing.assert_allclose(one.logprobs_t1, scores_by_hand(PREFIX, one.tokens), rtol=1e-5)
    for one in sample_all(policy, requests(4, exclude_first=likely), Sampling(max_tokens=2)):
        assert one.tokens[0] != likely
    own = sample_all(policy, requests(2, max_tokens=2), Sampling(max_tokens=9, ignore_eos=True))
    assert {len(s.tokens) for s in own} == {2}


def test_stop_strings_and_ids(remote):
    policy = remote(tokenizer=CODEC)
    free = sample_all(policy, requests(1), Sampling(max_tokens=8, banned=(1,)))[0]
    stop = free.text[2:4]
    one = sample_all(policy, requests(1), Sampling(max_tokens=8, banned=(1,), stop=(stop,)))[0]
    assert one.finish == "stop"
    assert one.text == free.text[: free.text.index(stop) + 2]
    assert len(one.tokens) == len(one.offsets) == len(one.logprobs_t1)
    by_id = sample_all(
        policy, requests(1), Sampling(max_tokens=8, banned=(1,), stop_ids=(int(free.tokens[1]),))
    )
    assert by_id[0].tokens[-1] == free.tokens[1]
    # A stop string that the forced part completes, which the server cannot see; none ends it before.
    forced = tuple(int(i) for i in CODEC.encode("abc"))
    cut = sample_all(policy, requests(1), Sampling(max_tokens=8, forced=forced, stop=("bc",)))[0]
    assert (cut.text, cut.finish, len(cut.tokens)) == ("abc", "stop", 3)
    on = sample_all(policy, requests(1), Sampling(max_tokens=8, banned=(1,), forced=forced, stop=("ab",)))[0]
    assert on.text.startswith("abc")
    assert len(on.tokens) > 3


def test_a_stop_string_may_begin_in_what_the_turn_has_said(remote):
    """The server sees only what it says itself, so the turn is cut here."""
    policy = remote(tokenizer=CODEC)
    begun = np.concatenate([PREFIX, CODEC.encode("ab")])
    free = sample_all(policy, requests(1, begun, generated=2), Sampling(max_tokens=8, banned=(1,)))[0]
    stop = "b" + free.text[0]
    for generated, count in ((2, 1), (1, 1), (0, None)):
        asked = requests(1, begun, generated=generated)
        one = sample_all(policy, asked, Sampling(max_tokens=8, banned=(1,), stop=(stop,)))[0]
        if count is not None:
            assert (one.text, one.finish, len(one.tokens)) == (free.text[0], "stop", count)
        else:
            assert len(one.tokens) > 1, "the prompt is no part of a turn"


def test_scores_of_given_sequences(remote):
    policy = remote(tokenizer=CODEC)
    sequences = [CODEC.encode("abcab"), CODEC.encode("ab"), CODEC.encode("a")]
    found = policy.logprobs(sequences)
    for sequence, values in zip(sequences, found, strict=True):
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, scores_by_hand(sequence[:1], sequence[1:]), rtol=1e-5)
    with pytest.raises(CannotDo, match="no log-probs of given"):
        remote(Script(echo=False), tokenizer=CODEC).logprobs(sequences)


def test_without_a_tokenizer_the_servers_own_is_used(remote):
    policy = remote(Script(tokenizer=True))
    assert list(policy.encode("abc")) == list(CODEC.encode("abc"))
    assert policy.decode(CODEC.encode("abc")) == "abc"
    first = policy.render([], token_array([]), ASK)
    context = token_array([*first.tokens, *CODEC.encode("red<|im_end|>\n")])
    delta = policy.render([*ASK, {"role": "assistant", "content": "red"}], context, ASK)
    assert CODEC.raw(delta.tokens).startswith("<|im_start|>user")
    assert not delta.rewrites
    other = policy.render([*ASK, {"role": "assistant", "content": "blue"}], context, ASK)
    assert other.rewrites
    one = sample_all(policy, requests(1), Sampling(max_tokens=4))[0]
    assert one.offsets is None
    assert one.text == CODEC.decode(one.tokens)


def test_without_any_tokenizer(remote):
    policy = remote()
    for call in (
        lambda: policy.encode("a"),
        lambda: policy.decode(PREFIX),
        lambda: policy.render([], [], ASK),
    ):
        with pytest.raises(CannotDo, match="no tokenizer service") as caught:
            call()
        assert "tokenizer=" in caught.value.hint
    forced = Sampling(forced=(5,), stop=("a",))
    with pytest.raises(CannotDo, match="need the model's tokenizer"):
        sample_all(policy, requests(1), forced)


def test_with_a_tokenizer_rendering_is_the_codecs(remote):
    policy = remote(tokenizer=CODEC.tokenizer)
    assert list(policy.render([], token_array([]), ASK).tokens) == list(CODEC.render([], [], ASK).tokens)
    assert policy.decode(policy.encode("é🙂")) == "é🙂"


# -- chat -------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "go", "arguments": '{"to": "north"}'}}


def test_chat_replies(remote):
    policy = remote(Script(dialect=None), price=(2.0, 10.0))
    tool = {"type": "function", "function": {"name": "go"}}
    asked = (ASK[0] | {"tools": [tool], "id": "m0"},)
    one = sample_all(policy, requests(1, messages=asked), Sampling(max_tokens=9, stop=("x",), top_p=0.9))[0]
    assert one.text.startswith("colour ")
    assert one.message == {"role": "assistant", "content": one.text}
    assert len(one.tokens) == 0
    assert one.logprobs is None
    assert one.cost.money == pytest.approx((7 * 2 + 2 * 10) / 1e6)
    body = policy.script.bodies("/chat/completions")[-1]
    assert body["tools"] == [tool]
    assert "tools" not in body["messages"][0]
    assert "id" not in body["messages"][0]
    assert (body["max_tokens"], body["stop"], body["top_p"]) == (9, ["x"], 0.9)
    assert policy.render([], token_array([]), ASK).text == "Which colour?"


def test_tool_calls_and_reasoning_are_kept(remote):
    reply = {"content": None, "tool_calls": [CALL], "reasoning_content": "hm", "finish": "tool_calls"}
    policy = remote(Script(dialect=None, reply=reply))
    one = sample_all(policy, requests(1, messages=ASK), Sampling())[0]
    assert one.message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [CALL],
        "reasoning_content": "hm",
    }
    assert (one.text, one.finish) == ("", "stop")


def test_a_filtered_reply_is_an_error_of_its_own(remote):
    policy = remote(Script(dialect=None, reply={"content": "", "finish": "content_filter"}))
    one = sample_all(policy, requests(1, messages=ASK), Sampling())[0]
    assert one.finish == "error"
    assert "content_filter" in one.error


@pytest.mark.parametrize(
    ("more", "sampling", "reason"),
    [
        ({"messages": ASK, "mid_turn": True}, Sampling(), "inside a turn"),
        ({}, Sampling(), "no messages"),
        ({"messages": ASK}, Sampling(top_k=5, banned=(3,)), "top_k, banned need"),
        ({"messages": ASK, "exclude_first": 3}, Sampling(), "exclude_first"),
    ],
)
def test_token_exact_requests_to_a_chat_server_are_refused_before_any_call(remote, more, sampling, reason):
    policy = remote(Script(dialect=None))
    _ = policy.card
    before = len(policy.script.seen)
    with pytest.raises(CannotDo, match=reason) as caught:
        sample_all(policy, requests(2, **more), sampling)
    assert "refused a prompt of token ids" in str(caught.value)
    assert len(policy.script.seen) == before


def test_what_no_server_can_do_exactly(remote):
    policy = remote(tokenizer=CODEC)
    with pytest.raises(CannotDo, match="likeliest tokens at most"):
        sample_all(policy, requests(1), Sampling(entropy_top_k=50))


def test_bad_input(remote):
    policy = remote(tokenizer=CODEC)
    with pytest.raises(BadInput, match="prefix is empty"):
        sample_all(policy, requests(1, token_array([])), Sampling())
    with pytest.raises(BadInput, match="outside the vocabulary"):
        sample_all(policy, requests(1, token_array([10**6])), Sampling())
    with pytest.raises(BadInput, match="concurrency"):
        remote(concurrency=0)
    with pytest.raises(BadInput, match="cannot load a tokenizer"):
        RemotePolicy("http://127.0.0.1:9", "m", tokenizer="./no-such-folder-here")
    for bad in ("localhost:8000", "ftp://host/v1", "", "http://host:port"):
        with pytest.raises(BadInput, match="no server address"):
            server_name(bad)


# -- lies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("short", "3 log-probs for 4 tokens"),
        ("positive", "log-prob of token 0 is 0.7"),
        ("nan", "log-prob of token 0 is nan"),
        ("none", "log-prob of token 0 is None"),
        ("ids", "ids of its log-probs differ"),
        ("text", "its text is 'something else'"),
        ("vocabulary", "said token 1000000"),
        ("prompt", "other token ids"),
        ("count", "counted 10 prompt tokens"),
        ("no_ids", "no token ids this time"),
        ("no_logprobs", "no log-probs this time"),
        ("long", "gave 200 tokens"),
        ("empty", "no choice"),
    ],
)
def test_lies_are_named(remote, kind, reason):
    policy = remote(tokenizer=CODEC)
    _ = policy.card
    policy.script.lie = kind
    with pytest.raises(ServerError, match=reason) as caught:
        sample_all(policy, requests(3), Sampling(max_tokens=4, ignore_eos=True))
    assert policy.url in str(caught.value)
    assert "draw" in str(caught.value)


def test_a_ban_that_is_ignored_under_a_filter_is_a_lie(remote):
    policy = remote(tokenizer=CODEC)
    _ = policy.card
    policy.script.lie = "banned"
    with pytest.raises(ServerError, match=f"banned token {LETTERS[0]}"):
        sample_all(policy, requests(1), Sampling(max_tokens=4, banned=(LETTERS[0],), top_k=4))


@pytest.mark.parametrize("kind", ["short", "positive", "nan", "prompt"])
def test_lies_at_the_probe_are_named_too(remote, kind):
    with pytest.raises(ServerError, match=r"contradicts itself.*probe"):
        _ = remote(Script(lie=kind), tokenizer=CODEC).card


def test_a_lying_echo(remote):
    policy = remote(tokenizer=CODEC)
    _ = policy.card
    policy.script.lie = "echo"
    with pytest.raises(ServerError, match="echoed 2 log-probs"):
        policy.logprobs([CODEC.encode("abcd")])
    assert not remote(Script(lie="echo"), tokenizer=CODEC).card.can("scores")


# -- patience ---------------------------------------------------------------------------------


def test_retries_with_back_off_and_reasons(remote):
    reasons = []
    policy = remote(tokenizer=CODEC, on_wait=reasons.append, concurrency=1)
    _ = policy.card
    policy.script.fail.extend(["drop", Refusal(503, "loading"), Refusal(500, "oops")])
    one = sample_all(policy, requests(1), Sampling(max_tokens=3))[0]
    assert len(one.tokens) >= 1
    assert [reason.split(": ", 1)[1].split(",")[0] for reason in reasons] == [
        "no connection",
        "status 503",
        "status 500",
    ]
    assert all(policy.url in reason for reason in reasons)
    np.testing.assert_allclose(policy.slept, [1.0, 2.0, 4.0], atol=0.5)


def test_retry_after_is_honoured(remote):
    policy = remote(tokenizer=CODEC, concurrency=1)
    _ = policy.card
    policy.script.fail.append(Refusal(429, "slow down", {"Retry-After": "17"}))
    sample_all(policy, requests(1), Sampling(max_tokens=2))
    np.testing.assert_allclose(policy.slept, [17.0], atol=0.5)


def test_retry_after_dialects():
    assert retry_after({"retry-after": "3"}, 0.0) == 3.0
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}, 0.0) == 0.25
    assert retry_after({"retry-after-ms": "soon", "retry-after": "9"}, 0.0) == 9.0
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 30.0) == 30.0
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 90.0) is None
    assert retry_after({"retry-after": "later"}, 0.0) is None
    # "At once" would end all tries within a moment.
    assert retry_after({"retry-after": "0"}, 0.0) is None
    assert retry_after({"retry-after": "-3"}, 0.0) is None
    assert retry_after({"retry-after": "nan"}, 0.0) is None
    assert retry_after({}, 0.0) is None


def test_own_rate_limit_spaces_the_calls():
    now, slept, reasons = [0.0], [], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    caller = Caller("s", Patience(per_minute=30), sleep=sleep, clock=lambda: now[0], on_wait=reasons.append)
    assert [caller(lambda i=i: i, "x") for i in range(4)] == [0, 1, 2, 3]
    np.testing.assert_allclose(slept, [2.0, 2.0, 2.0])
    assert "own rate limit" in reasons[0]


def test_a_server_that_is_not_there(remote):
    policy = remote(url="http://127.0.0.1:1/v1", patience=Patience(tries=2))
    with pytest.raises(ServerError, match="no connection"):
        _ = policy.card


def test_a_slow_answer_times_out(remote):
    policy = remote(tokenizer=CODEC, timeout=0.3, patience=Patience(tries=2), concurrency=1)
    policy._probed = remote(tokenizer=CODEC).abilities
    policy.script.fail.extend(["slow", "slow"])
    with pytest.raises(ServerError, match="no answer in time"):
        sample_all(policy, requests(1), Sampling(max_tokens=1))


def test_one_failure_among_many_is_data(remote):
    policy = remote(tokenizer=CODEC)
    _ = policy.card
    doomed = NoiseKey(0, 1, 2).call_seed(0)
    policy.script.fail_when = lambda body: (
        Refusal(400, "the prompt is too long") if body.get("seed") == doomed else None
    )
    said = sample_all(policy, requests(5), Sampling(max_tokens=3))
    assert [s.finish == "error" for s in said] == [False, False, True, False, False]
    assert "too long" in said[2].error
    assert len(said[2].tokens) == 0


@pytest.mark.parametrize("dialect", ["vllm", None])
def test_a_refusal_of_a_lone_request_is_data_where_its_beginning_is_answered(remote, dialect):
    policy = remote(Script(dialect=dialect), tokenizer=CODEC if dialect else None)
    _ = policy.card
    messages = ({"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"},
                {"role": "user", "content": "on"})  # fmt: skip

    def too_long(body):
        long = len(body["prompt"]) > 1 if "prompt" in body else len(body.get("messages", ())) > 1
        return Refusal(400, "the context is full") if long else None

    policy.script.fail_when = too_long
    (said,) = sample_all(policy, requests(1, messages=messages), Sampling(max_tokens=3))
    assert (said.finish, len(said.tokens)) == ("error", 0)
    assert "the context is full" in said.error
    with pytest.raises(ServerError, match="the context is full"):
        sample_all(policy, requests(3, messages=messages), Sampling(max_tokens=3))
    policy.script.fail_when = None
    sample_all(policy, requests(1, messages=messages), Sampling(max_tokens=3))
    policy.script.fail_when = too_long
    last = sample_all(policy, requests(2, messages=messages), Sampling(max_tokens=3))
    assert [one.finish for one in last] == ["error", "error"], "the last ones of a fork, say"
    policy.script.fail_when = lambda body: Refusal(400, "no such setting")
    with pytest.raises(ServerError, match="no such setting"):
        sample_all(policy, requests(1, messages=messages), Sampling(max_tokens=3))


def test_concurrency_is_bounded(remote):
    policy = remote(tokenizer=CODEC, concurrency=3)
    _ = policy.card
    sample_all(policy, requests(30), Sampling(max_tokens=2))
    assert 1 <= policy.script.most_active <= 3


def test_a_reader_who_stops_leaves_no_thread(remote):
    policy = remote(tokenizer=CODEC, concurrency=2)
    _ = policy.card
    before = threading.active_count()
    stream = policy.sample(requests(200), Sampling(max_tokens=1))
    next(stream)
    stream.close()
    assert len(policy.script.bodies("/completions")) < 150
    assert threading.active_count() <= before + 4  # the server's own connection threads
    assert len(sample_all(policy, requests(2), Sampling(max_tokens=1))) == 2


def test_a_halt_stops_the_calls_that_heed_it_and_no_other():
    caller, halt = Caller("s", Patience()), threading.Event()
    halt.set()
    with ThreadPoolExecutor(1, initializer=caller.heed, initargs=(halt,)) as stopped:
        with pytest.raises(ServerError, match="stopped before it was sent"):
            stopped.submit(caller, lambda: 1, "x").result()
        assert caller(lambda: 1, "x") == 1
        halt.clear()
        assert stopped.submit(caller, lambda: 1, "x").result() == 1


def test_a_reader_who_stops_stops_no_other_reader(remote):
    policy = remote(tokenizer=CODEC, concurrency=2)
    _ = policy.card
    one, other = (policy.sample(requests(40), Sampling(max_tokens=1)) for _ in range(2))
    next(one)
    next(other)
    other.close()
    assert [said.finish for said in one].count("error") == 0


# -- keys -------------------------------------------------------------------------------------

SECRET = "sk-very-secret-7"


def test_the_key_is_sent_and_shown_nowhere(remote, monkeypatch):
    policy = remote(Script(key=SECRET), api_key=SECRET, tokenizer=CODEC)
    assert policy.card.can("tokens")
    sample_all(policy, requests(1), Sampling(max_tokens=1))
    shown = [repr(policy), repr(policy._endpoint), repr(policy.card), str(policy.card.to_json())]
    assert not any(SECRET in text for text in shown)
    monkeypatch.setenv("REFORK_API_KEY", SECRET)
    assert remote(Script(key=SECRET)).card.can("tokens")


def test_a_refused_key_is_an_error_without_the_key(remote):
    with pytest.raises(ServerError, match="refuses this key") as caught:
        _ = remote(Script(key="another"), api_key=SECRET).card
    assert SECRET not in str(caught.value)
    assert "REFORK_API_KEY" in caught.value.hint


def test_openais_key_goes_to_openai_only(remote, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with pytest.raises(ServerError, match="refuses this key"):
        _ = remote(Script(key=SECRET)).card


def test_addresses_are_stored_without_what_is_private():
    assert server_name("http://user:pass@host:8000/v1/?token=abc#x") == "http://host:8000/v1"
    assert server_name("https://host") == "https://host/v1"
    assert server_name("http://[::1]:80/api/") == "http://[::1]:80/api"
    with pytest.raises(BadInput) as caught:
        server_name("ftp://user:pass@host")
    assert "pass" not in str(caught.value)
