"""Answers from the tape: what counts as the same request, and what is said where none fits."""

from __future__ import annotations

import asyncio
import json

import pytest

from agents import provider as fake
from refork.agents.dialects import canonical, dialect_of
from refork.agents.replay import FromTape
from refork.agents.tape import TapeEvent, Wire

CHAT = "openai/chat/completions"


def wire(body, path=CHAT, **more):
    answer = json.dumps(fake.chat("yes")[0]).encode()
    return Wire(
        "POST",
        path,
        "",
        json.dumps(body).encode(),
        200,
        {"content-type": "application/json"},
        (answer,),
        **more,
    )


def said(*texts, **more):
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts], **more}


class Sent:
    """What a reply sent."""

    def __init__(self):
        self.status, self.body, self.whole, self.began, self.gone = None, b"", False, False, False

    async def begin(self, status, headers):
        self.status = status

    async def piece(self, data, more=True):
        self.body, self.whole = self.body + data, not more

    async def whole_(self, status, headers, body):
        self.status, self.body, self.whole = status, body, True


def ask(tape, body, path=CHAT):
    reply = Sent()
    reply.whole, ended = reply.whole_, reply
    asyncio.run(tape.answer(wire(body, path), {}, reply))
    return ended


def tape_of(*bodies):
    return FromTape([TapeEvent(number, "", 0, wire(body)) for number, body in enumerate(bodies)])


def test_equal_requests_get_their_answers_in_order_whenever_they_come():
    tape = tape_of(said("a"), said("b"), said("a"))
    for body in (said("b"), said("a"), said("a")):
        assert ask(tape, body).status == 200
    assert [event.number for event in tape.answered] == [1, 0, 2]
    assert (tape.divergence, tape.byte_equal) == (None, 3)
    assert ask(tape, said("a")).status == 400
    assert "asked more often" in str(tape.divergence)


def test_what_the_model_does_not_hear_is_no_difference():
    recorded = said("a", user="anna", metadata={"run": "1"})
    recorded["messages"] += [
        {"role": "assistant", "tool_calls": [{"id": "call_x", "type": "function", "function": fake.CALL}]},
        {"role": "tool", "tool_call_id": "call_x", "content": "wood"},
    ]
    again = json.loads(json.dumps(recorded).replace("call_x", "call_y").replace("anna", "bert"))
    tape = tape_of(recorded)
    assert ask(tape, dict(reversed(again.items()))).status == 200
    assert (tape.divergence, tape.byte_equal) == (None, 0)
    # Which result belongs to which call is heard.
    crossed = json.loads(json.dumps(recorded))
    crossed["messages"][-1]["tool_call_id"] = "call_z"
    assert canonical(CHAT, crossed) != canonical(CHAT, recorded)


@pytest.mark.parametrize(
    ("before", "now", "cause"),
    [
        ("id 1b4e28ba-2fa1-11d2-883f-0016d3cca427", "id 6fa459ea-ee8a-3ca4-894e-db77e160355e", "a random id"),
        ("today is 2026-08-01", "today is 2026-11-28", "the clock"),
        ("in /tmp/tmpa1b2/x", "in /tmp/tmpc3d4/x", "a temporary folder"),
        ("a.py\nb.py\nc.py", "c.py\na.py\nb.py", "the order of a listing"),
        ("{'x', 'y'}", "{'y', 'x'}", "the order of a set"),
        ("took 3.1 s", "took 2.9 s", "another number"),
        ("a.py\nb.py", "a.py\nb.py\nout.txt", "what an earlier run left"),
        ("go north", "go south", "another text"),
    ],
)
def test_the_first_difference_is_named_with_a_likely_cause(before, now, cause):
    tape = tape_of(said("start"), said("start", before, "end"))
    assert ask(tape, said("start")).status == 200
    refused = ask(tape, said("start", now, "end"))
    assert refused.status == 400
    where = tape.divergence
    assert (where.request, where.nearest, where.where) == (1, 1, "$.messages[1].content")
    assert (json.loads(where.recorded), json.loads(where.asked)) == (before, now)
    assert cause in where.cause
    # From there on nothing is a replay, and nothing is answered.
    assert ask(tape, said("start", before, "end")).status == 400
    assert tape.divergence is where


def test_settings_and_missing_parts_are_differences():
    tape = tape_of(said("a", temperature=0.5, top_p=1))
    ask(tape, said("a", temperature=0.7))
    assert (tape.divergence.where, tape.divergence.recorded, tape.divergence.asked) == (
        "$.temperature",
        "0.5",
        "0.7",
    )
    tape = tape_of(said("a", top_p=1))
    ask(tape, said("a"))
    assert (tape.divergence.where, tape.divergence.asked) == ("$.top_p", None)
    assert "missing" in tape.divergence.cause


def test_another_kind_of_request_is_like_none():
    tape = tape_of(said("a"))
    ask(tape, {"input": "a"}, "openai/embeddings")
    assert tape.divergence.nearest is None
    assert "another kind" in str(tape.divergence)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("openai/chat/completions", "chat"), ("azure/openai/deployments/x/chat/completions", "chat"),
        ("openai/completions", "completions"), ("openai/responses", "responses"),
        ("anthropic/v1/messages", "messages"), ("anthropic/v1/messages/count_tokens", "other"),
        ("gemini/v1beta/models/g-2:generateContent", "gemini"),
        ("gemini/v1beta/models/g-2:streamGenerateContent", "gemini"), ("ollama/api/chat", "ollama"),
        ("openai/models", "other"),
    ],
)  # fmt: skip
def test_dialects_by_path(path, name):
    assert dialect_of(path) == name
