"""The chat seam: policies as chat models, and the scripted one."""

from __future__ import annotations

import pytest

from refork.chat import ChatModel, PolicyChat, ScriptedChat
from refork.errors import BadInput, ServerError
from refork.policies.base import Continuation, Sampling
from refork.policies.open import open_policy
from refork.types import token_array

HELLO = [{"role": "user", "content": "Once upon a"}]


def test_the_script_answers_in_order_and_keeps_what_it_was_asked() -> None:
    chat = ScriptedChat(["one", {"role": "assistant", "content": None, "tool_calls": []}])
    assert isinstance(chat, ChatModel)
    assert chat.reply(HELLO).text == "one"
    assert chat.reply(HELLO).text == ""
    assert chat.asked == [tuple(HELLO)] * 2
    with pytest.raises(BadInput, match="no reply number 3"):
        chat.reply(HELLO)


def test_a_function_answers_from_the_messages() -> None:
    reply = ScriptedChat(lambda messages: str(len(messages)), name="count").reply(HELLO)
    assert (reply.text, reply.cost.tokens_in) == ("1", 3)


def test_a_policy_gives_the_same_answer_to_the_same_draw() -> None:
    chat = PolicyChat(open_policy("scripted:coin"), Sampling(max_tokens=40), seed=3)
    first = [chat.reply(HELLO, draw=draw).text for draw in range(20)]
    assert first == [chat.reply(HELLO, draw=draw).text for draw in range(20)]
    assert len(set(first)) > 1
    assert chat.name == chat.policy.card.name


def test_no_message_and_no_answer_are_told() -> None:
    policy = open_policy("scripted:coin")
    with pytest.raises(BadInput, match="no message"):
        PolicyChat(policy).reply([])

    class Failing:
        card = policy.card
        render = policy.render

        def sample(self, requests, settings):
            yield Continuation(0, token_array([]), "", "error", error="gone")

    with pytest.raises(ServerError, match="gone"):
        PolicyChat(Failing()).reply(HELLO)
