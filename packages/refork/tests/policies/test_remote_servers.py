"""What servers do unasked: filters of their own, other models' names, errors in their own forms, lists."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import ServerError
from refork.policies.base import Request, Sampling, sample_all
from refork.sampling.noise import NoiseKey
from refork.types import token_array
from support.openai_server import CODEC, LETTERS, Refusal, Script, law

PREFIX = CODEC.encode("once upon")
ASK = ({"role": "user", "content": "Which colour?"},)
#: What a model's generation_config.json may hold, which vLLM and SGLang apply where a request is silent.
DEFAULTS = {"top_k": 1, "min_p": 0.5, "repetition_penalty": 1.3, "top_p": 0.8}


def requests(count, **more):
    return [Request(PREFIX, NoiseKey(0, 1, draw), **more) for draw in range(count)]


def said(policy, count=12, **settings):
    return [
        list(one.tokens) for one in sample_all(policy, requests(count), Sampling(max_tokens=5, **settings))
    ]


# -- filters that nobody asked for ------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_the_servers_own_filters_do_not_act(remote, dialect):
    free = remote(Script(dialect=dialect), tokenizer=CODEC)
    filtering = remote(Script(dialect=dialect, defaults=DEFAULTS), tokenizer=CODEC)
    assert said(filtering) == said(free)
    assert len({tuple(one) for one in said(filtering)}) > 6


def test_filters_that_were_asked_for_act(remote):
    policy = remote(Script(defaults={"top_k": 5}), tokenizer=CODEC)
    best = int(np.argmax(law(PREFIX)))
    assert {one[0] for one in said(policy, top_k=1)} == {best}
    sent = policy.script.bodies("/completions")[-1]
    assert (sent["top_k"], sent["top_p"], sent["min_p"]) == (1, 1.0, 0.0)
    assert (sent["repetition_penalty"], sent["repeat_penalty"]) == (1.0, 1.0)


def test_chats_ask_for_no_filters_too(remote):
    policy = remote(Script(dialect=None))
    assert "filters" not in policy.card.extra
    sample_all(policy, requests(1, messages=ASK), Sampling(max_tokens=3))
    sent = policy.script.bodies("/chat/completions")[-1]
    assert (sent["top_k"], sent["top_p"], sent["min_p"]) == (1 << 30, 1.0, 0.0)


def test_a_chat_server_that_takes_no_such_words_is_asked_without_and_the_card_says_so(remote):
    script = Script(
        dialect=None, strict_chat=True, limit_name="max_completion_tokens", free_temperature=False
    )
    policy = remote(script)
    assert "the server's own" in policy.card.extra["filters"]
    sample_all(policy, requests(1, messages=ASK), Sampling(max_tokens=3))
    sent = policy.script.bodies("/chat/completions")[-1]
    assert set(sent) == {"model", "messages", "seed", "max_completion_tokens"}


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ["vllm", None])
def test_a_name_that_stands_for_another_model_is_refused(remote, dialect):
    listed = [{"id": name} for name in "abcdefg"]
    with pytest.raises(ServerError, match=r"no model 'tiny'.*answers to any name") as caught:
        _ = remote(Script(dialect=dialect, listed=listed)).card
    assert caught.value.hint == "it lists 'a', 'b', 'c', 'd', 'e' and more"


def test_a_name_that_is_not_listed_may_still_be_true(remote):
    # An alias, on a server that refuses the names it does not know.
    assert remote(Script(listed=[{"id": "other"}], any_name=False)).card.can("tokens")
    assert remote(Script(listed=[])).card.can("tokens")
    assert remote(Script(listed=[{"id": "file.gguf", "aliases": ["tiny"]}])).card.can("tokens")


@pytest.mark.parametrize(
    ("item", "context"),
    [
        ({"id": "tiny", "max_model_len": 9}, 9),
        ({"id": "tiny", "meta": {"n_ctx_train": 7}}, 7),
        ({"id": "tiny", "meta": {"n_ctx_train": 7, "n_ctx": 5}}, 5),
        ({"id": "tiny", "meta": None}, None),
        ({"id": "tiny", "meta": "x"}, None),
        ({"id": "tiny", "max_model_len": "long"}, None),
    ],
)
def test_the_context_length_in_several_dialects(remote, item, context):
    assert remote(Script(listed=[item])).card.context == context


@pytest.mark.parametrize("listed", [None, "x", [None, 3], [{}]])
def test_a_list_of_models_that_makes_no_sense_is_passed_over(remote, listed):
    policy = remote(Script(listed=listed, any_name=False))
    assert policy.card.context is None
    assert policy.card.can("tokens")


# -- errors and stops in the servers' forms ----------------------------------------------------


@pytest.mark.parametrize("flat", [False, True])
def test_errors_of_both_forms_are_told(remote, flat):
    policy = remote(Script(flat_errors=flat), tokenizer=CODEC)
    _ = policy.card
    doomed = NoiseKey(0, 1, 2).call_seed(0)
    policy.script.fail_when = lambda body: (
        Refusal(400, "maximum context length is 512 tokens") if body.get("seed") == doomed else None
    )
    ends = sample_all(policy, requests(4), Sampling(max_tokens=3))
    assert [one.finish == "error" for one in ends] == [False, False, True, False]
    assert "maximum context length is 512 tokens" in ends[2].error


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_stop_strings_are_kept_and_stop_ids_name_no_string(remote, dialect):
    policy = remote(Script(dialect=dialect), tokenizer=CODEC)
    free = sample_all(policy, requests(1), Sampling(max_tokens=8, banned=(1,)))[0]
    stop = free.text[2:4]
    one = sample_all(policy, requests(1), Sampling(max_tokens=8, banned=(1,), stop=(stop,)))[0]
    assert (one.finish, one.text) == ("stop", free.text[: free.text.index(stop) + 2])
    # Where the end came by a token, stop_reason and matched_stop are its id.
    ended = next(c for c in sample_all(policy, requests(40), Sampling(max_tokens=30)) if c.finish == "stop")
    assert ended.tokens[-1] == 1


@pytest.mark.parametrize(
    "settings", [{"stop": ("b", "gh")}, {"stop_ids": tuple(LETTERS[:2])}], ids=["strings", "ids"]
)
@pytest.mark.parametrize("own", [True, False], ids=["tokenizer", "none"])
def test_draws_end_alike_where_a_server_cuts_stop_strings_off_or_knows_no_stop_ids(remote, settings, own):
    codec = CODEC if own else None
    ends = Sampling(max_tokens=8, banned=(1,), **settings)
    cutting = remote(Script(dialect="llama", tokenizer=True), tokenizer=codec)
    keeping = remote(Script(dialect="vllm", tokenizer=True), tokenizer=codec)
    cut, kept = (sample_all(policy, requests(20), ends) for policy in (cutting, keeping))
    assert {one.finish for one in kept} == {"stop", "length"}
    for one, other in zip(cut, kept, strict=True):
        assert (list(one.tokens), one.text, one.finish) == (list(other.tokens), other.text, other.finish)
        np.testing.assert_array_equal(one.logprobs_t1, other.logprobs_t1)


def test_a_stop_string_that_cannot_be_had_again_is_an_error_of_its_draw(remote):
    policy = remote(Script(dialect="llama", seeds=False), tokenizer=CODEC)
    ends = sample_all(policy, requests(20), Sampling(max_tokens=8, banned=(1,), stop=("b", "gh")))
    errors = [one.error for one in ends if one.finish == "error"]
    assert errors
    assert all("did not say it again" in error for error in errors)
    assert all(one.text.endswith(("b", "gh")) for one in ends if one.finish == "stop")


def test_stop_ids_that_a_server_passes_over_need_somebody_to_decode(remote):
    policy = remote(Script(dialect="llama"))
    _ = policy.card
    with pytest.raises(ServerError, match="stop_token_ids are obeyed"):
        sample_all(policy, requests(9), Sampling(max_tokens=8, banned=(1,), stop_ids=tuple(LETTERS)))


def test_messages_are_rendered_where_llama_cpp_renders_them(remote):
    other = remote(Script(tokenizer=True)).render([], token_array([]), ASK)
    mine = remote(Script(dialect="llama", tokenizer=True)).render([], token_array([]), ASK)
    assert list(mine.tokens) == list(other.tokens) == list(CODEC.render([], token_array([]), ASK).tokens)


def test_a_server_that_fails_at_token_ids_is_asked_to_chat(remote):
    policy = remote(Script())
    policy.script.fail_when = lambda body: (
        Refusal(500, "'list' object has no attribute 'strip'") if "prompt" in body else None
    )
    assert policy.card.extra["mode"] == "chat"
    assert "no attribute 'strip'" in policy.card.extra["why_not_tokens"]
    down = remote(Script())
    down.script.fail_when = lambda body: Refusal(503, "loading") if "prompt" in body else None
    with pytest.raises(ServerError, match="status 503 at each"):
        _ = down.card


def test_a_sure_model_is_asked_about_seeds_at_a_higher_temperature(remote):
    def sure(body):
        cool = body.get("temperature", 1.0) <= 1.0 and "messages" in body
        return (lambda handler: handler.send(200, REPLY)) if cool else None

    policy = remote(Script(dialect=None, fail_when=sure))
    assert policy.card.can("paired")
    assert policy.card.extra["seed"].startswith("honoured")
    cold = remote(Script(dialect=None, fail_when=lambda body: sure(body | {"temperature": 0})))
    assert cold.card.extra["seed"].startswith("not known: 7 of 7")


REPLY = b'{"choices": [{"message": {"content": "Blue."}, "finish_reason": "stop"}]}'
