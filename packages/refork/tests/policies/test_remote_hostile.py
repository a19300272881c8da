"""Servers that break off, trickle, flood, or answer in shapes that nothing speaks: errors, never crashes."""

from __future__ import annotations

import json
import logging
import time

import numpy as np
import pytest

from refork.errors import BadInput, ServerError
from refork.policies.base import Request, Sampling, sample_all
from refork.policies.remote import endpoint
from refork.policies.remote.answers import Expected, read_completion, read_echo, read_message
from refork.policies.remote.calls import Patience, Unreadable, parsed
from refork.policies.remote.endpoint import Endpoint
from refork.sampling.noise import NoiseKey
from support.openai_server import CODEC, Refusal, Script

PREFIX = CODEC.encode("once upon")
ASK = ({"role": "user", "content": "Which colour?"},)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SECRET = "sk-very-secret-7"


def requests(count, **more):
    return [Request(PREFIX, NoiseKey(0, 1, draw), **more) for draw in range(count)]


def writes(*parts, pause=0.0):
    """A reply that is these bytes and the end of the connection."""

    def reply(handler):
        for part in parts:
            handler.wfile.write(part)
            handler.wfile.flush()
            time.sleep(pause)

    return reply


# -- the connection ---------------------------------------------------------------------------

CUT = {
    "in its body": writes(HEAD + b"Content-Length: 1000\r\n\r\n" + b'{"choices": ['),
    "in a chunk": writes(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"),
    "in its head": writes(b"HTTP/1.1 200 OK\r\nContent-"),
    "before it": writes(),
    "false gzip": writes(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"),
    "no HTTP": writes(b"SSH-2.0-OpenSSH_9.2\r\n"),
}


@pytest.mark.parametrize("kind", CUT)
def test_an_answer_that_breaks_off_is_asked_for_again(remote, kind):
    reasons = []
    policy = remote(tokenizer=CODEC, concurrency=1, on_wait=reasons.append)
    _ = policy.card
    policy.script.fail.append(CUT[kind])
    assert len(sample_all(policy, requests(1), Sampling(max_tokens=3))) == 1
    assert len(reasons) == 1
    policy.script.fail.extend([CUT[kind]] * 4)
    with pytest.raises(ServerError, match="at each of 4 tries"):
        sample_all(policy, requests(1), Sampling(max_tokens=3))


def test_an_answer_that_trickles_is_given_up(remote):
    """Each byte comes in time; the whole would take for ever."""
    policy = remote(tokenizer=CODEC, concurrency=1, timeout=0.25, patience=Patience(tries=1))
    policy._probed = remote(tokenizer=CODEC).abilities
    drop = writes(HEAD + b"Content-Length: 1000\r\n\r\n", *[b" "] * 40, pause=0.05)
    policy.script.fail.append(drop)
    with pytest.raises(ServerError, match="came too slowly"):
        sample_all(policy, requests(1), Sampling(max_tokens=1))


def test_a_flood_is_refused_at_once(remote, monkeypatch):
    monkeypatch.setattr(endpoint, "_LARGEST", 1 << 20)
    policy = remote(tokenizer=CODEC, concurrency=1)
    _ = policy.card
    flood = writes(HEAD + b"Connection: close\r\n\r\n", *[b" " * (1 << 16)] * 40)
    policy.script.fail.append(flood)
    with pytest.raises(ServerError, match="longer than 1 MiB"):
        sample_all(policy, requests(1), Sampling(max_tokens=1))
    assert policy.slept == []


def test_a_server_that_goes_away_ends_the_run_at_once_and_records_no_errors(remote):
    policy = remote(tokenizer=CODEC, concurrency=1, patience=Patience(tries=2))
    _ = policy.card
    before = len(policy.script.seen)
    stream = policy.sample(requests(50), Sampling(max_tokens=2))
    given = [next(stream) for _ in range(5)]
    policy.script.fail_when = lambda body: "drop"
    with pytest.raises(ServerError, match="no connection at each of 2 tries"):
        given.extend(stream)
    assert 5 <= len(given) < 50
    assert all(one.finish != "error" for one in given)
    # Two tries of the one that failed, the one that was under way, and the look whether a server is there.
    assert len(policy.script.seen) - before < 13
    policy.script.fail_when = None
    assert len(sample_all(policy, requests(50), Sampling(max_tokens=2))) == 50


def test_a_request_that_only_times_out_while_the_server_lives_is_data(remote):
    policy = remote(tokenizer=CODEC, patience=Patience(tries=2))
    _ = policy.card
    doomed = NoiseKey(0, 1, 2).call_seed(0)
    policy.script.fail_when = lambda body: "drop" if body.get("seed") == doomed else None
    ends = sample_all(policy, requests(5), Sampling(max_tokens=3))
    assert [one.finish == "error" for one in ends] == [False, False, True, False, False]
    assert "no connection at each of 2 tries" in ends[2].error


def test_an_error_that_comes_as_a_success_is_an_error_of_that_request(remote):
    policy = remote(tokenizer=CODEC)
    _ = policy.card
    told = json.dumps({"error": {"message": "upstream said no", "code": 400}}).encode()
    doomed = NoiseKey(0, 1, 2).call_seed(0)
    policy.script.fail_when = lambda body: (
        (lambda handler: handler.send(200, told)) if body.get("seed") == doomed else None
    )
    ends = sample_all(policy, requests(4), Sampling(max_tokens=3))
    assert [one.finish == "error" for one in ends] == [False, False, True, False]
    assert "upstream said no" in ends[2].error


# -- JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"{", b"<html>", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_what_is_no_json(data):
    with pytest.raises(Unreadable, match="no JSON"):
        parsed(data)


EXPECTED = Expected("http://host/v1", "request 0, draw 0", [4, 5], 8)
TWO = {"token_ids": [6, 7]}


@pytest.mark.parametrize(
    "choice",
    [
        {"logprobs": [1, 2]},
        {"logprobs": "no"},
        {"logprobs": {"content": [1, 2]}},
        {"logprobs": {"content": ["a"]}},
        {"logprobs": {"content": [{"logprob": -1, "top_logprobs": 3}]}},
        TWO | {"logprobs": {"token_logprobs": {"a": 1}}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, {"a": 1}]}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, [3]]}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, float("-inf")]}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, -(10**400)]}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, -1.0], "top_logprobs": [3, 4]}},
        TWO | {"logprobs": {"token_logprobs": [-1.0, -1.0], "top_logprobs": [{"a": "b"}, {}]}},
        {"token_ids": [-1]},
        {"token_ids": [1 << 31]},
        {"token_ids": [1 << 80]},
    ],
)
def test_choices_of_other_shapes_are_the_servers_fault(choice):
    with pytest.raises(ServerError) as caught:
        read_completion(choice, EXPECTED)
    assert "http://host/v1, request 0, draw 0" in str(caught.value)


def test_what_else_a_choice_may_hold():
    # A token that cannot come has no part in an entropy.
    tops = [{"a": -0.1, "b": float("-inf")}, {"a": -0.2, "b": None}]
    found = read_completion(
        TWO | {"logprobs": {"token_logprobs": [-0.1, -0.2], "top_logprobs": tops}}, EXPECTED
    )
    assert found.top == [[-0.1], [-0.2]]
    assert np.isfinite(found.values).all()
    none = read_completion({"text": None, "logprobs": None, "finish_reason": None}, EXPECTED)
    assert (none.ids, none.values, none.text) == (None, None, "")


@pytest.mark.parametrize("block", [[], "x", {"token_logprobs": [None, "a"]}, {"token_logprobs": 3}])
def test_echoes_of_other_shapes_are_the_servers_fault(block):
    with pytest.raises(ServerError):
        read_echo({"logprobs": block}, EXPECTED)


def test_messages_in_parts_are_text_and_other_shapes_an_error():
    parts = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert read_message({"message": {"content": parts}}, "host")["content"] == "ab"
    assert read_message({"message": {"content": None}}, "host")["content"] == ""
    assert read_message({"message": None}, "host")["content"] == ""
    for broken in ("text", {"content": {"a": 1}}, {"content": 3}, {"content": ["a"]}, [1]):
        with pytest.raises(ServerError, match=r"not understood.*host"):
            read_message({"message": broken}, "host")


@pytest.mark.parametrize("usage", [[], "x", 3, {"prompt_tokens": "many"}, {"prompt_tokens": None}])
def test_a_usage_that_makes_no_sense_is_no_cost(remote, usage):
    told = {"choices": [{"message": {"content": "Red"}, "finish_reason": "stop"}], "usage": usage}
    policy = remote(Script(dialect=None))
    _ = policy.card
    policy.script.fail.append(lambda handler: handler.send(200, json.dumps(told).encode()))
    one = sample_all(policy, requests(1, messages=ASK), Sampling())[0]
    assert (one.text, one.cost.tokens_in, one.cost.money) == ("Red", None, None)


# -- settings ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"tries": 0},
        {"pause": -1.0},
        {"pause": float("inf")},
        {"growth": 0.5},
        {"per_minute": 0},
        {"per_minute": -1},
    ],
)
def test_patience_that_makes_no_sense(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Patience(**wrong)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_a_timeout_that_makes_no_sense(timeout):
    with pytest.raises(BadInput, match="timeout"):
        Endpoint("http://127.0.0.1:9/v1", "m", timeout=timeout)


# -- keys -------------------------------------------------------------------------------------


def test_keys_are_in_no_log_at_any_level_and_in_no_error(remote, caplog):
    caplog.set_level(logging.DEBUG)
    policy = remote(Script(key=SECRET), api_key=SECRET, tokenizer=CODEC)
    sample_all(policy, requests(2), Sampling(max_tokens=2))
    policy.script.fail_when = lambda body: Refusal(400, f"you sent {SECRET}")
    with pytest.raises(ServerError) as caught:
        sample_all(policy, requests(1), Sampling(max_tokens=2))
    assert "you sent ***" in str(caught.value)
    policy.script.fail_when = lambda body: (
        lambda handler: handler.send(200, json.dumps({"error": f"you sent {SECRET}"}).encode())
    )
    with pytest.raises(ServerError, match=r"you sent \*\*\*"):
        sample_all(policy, requests(1), Sampling(max_tokens=2))
    assert SECRET not in caplog.text


def test_passwords_and_queries_of_an_address_are_in_no_error(remote):
    script = Script()
    policy = remote(script)
    private = policy.url.replace("http://", "http://user:pa55word@") + "?token=t0ken-t0ken&v=1"
    other = remote(script, url=private)
    script.fail_when = lambda body: Refusal(418, f"refused {private}")
    with pytest.raises(ServerError) as caught:
        _ = other.card
    assert "pa55word" not in str(caught.value)
    assert "t0ken" not in str(caught.value)
    assert "v=1" in str(caught.value)
