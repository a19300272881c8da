"""Histories that the tests of the framework adapters share."""

from __future__ import annotations

import numpy as np
from langchain_core.tools import tool

from refork.chat import ScriptedChat
from refork.compaction import with_ids
from refork_methods.pin import Constraint, PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import LangChainChat, to_langchain
from support.chat_histories import RULE as MAIL_RULE

RULE = "Deploy only to region us-west-2."
BUFFER = PinnedBuffer((Constraint("region", RULE), Constraint("spend", "Buy nothing above 100 USD.")))


def call(*keys, name="look"):
    calls = [
        {"id": key, "type": "function", "function": {"name": name, "arguments": '{"x": 1}'}} for key in keys
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(key, text="found it"):
    return {"role": "tool", "tool_call_id": key, "content": text}


def chat(length, rule_at=0, prefix="m"):
    """User and assistant in turn, the rule at one index."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": f"message {i} of the task"} for i in range(length)]
    if 0 <= rule_at < length:
        said[rule_at] = {"role": "user", "content": f"House rule: {RULE}"}
    return with_ids(said, prefix)


def drawn(seed, length, system=0.1, stray=0.0):
    """A history drawn at random: text, calls with one to three results, system messages, late results."""
    rng = np.random.default_rng(seed)
    said, late, number = [], [], 0
    while len(said) < length:
        kind = rng.random()
        if kind < system:
            said.append({"role": "system", "content": f"note {number} " + "s " * int(rng.integers(1, 6))})
        elif kind < 0.4:
            keys = [f"c{number}.{k}" for k in range(int(rng.integers(1, 4)))]
            said.append(call(*keys))
            for key in keys:
                if rng.random() < stray:
                    late.append(key)
                else:
                    said.append(result(key, "r " * int(rng.integers(1, 9)) + str(number)))
        elif late and kind < 0.5:
            said.append(result(late.pop(0), f"late {number}"))
        else:
            role = "user" if rng.random() < 0.5 else "assistant"
            said.append({"role": role, "content": f"text {number} " + "w " * int(rng.integers(1, 12))})
        number += 1
    return with_ids(said)


def words(messages):
    """A count of tokens that adds up over messages."""
    return sum(len(str(m.get("content") or "").split()) + 2 for m in messages)


# -- for the packages that build on langchain ---------------------------------------------------------

#: The rule that the plain histories of ``support.chat_histories`` tell, and another.
MAIL = PinnedBuffer((Constraint("mail", MAIL_RULE), Constraint("spend", "No purchase above 100 USD.")))
THREAD = {"configurable": {"thread_id": "1"}}


def numbering():
    """A summariser that says which summary this is."""
    count = iter(range(1, 1000))
    return ScriptedChat(lambda messages: f"summary {next(count)}")


def talker(text="answer"):
    """An agent that says the same every turn."""
    return LangChainChat(ScriptedChat(lambda messages: text))


@tool
def look(at: str) -> str:
    """Look at something."""
    return f"{at} is there. {MAIL.text}"


def caller():
    """An agent that calls its tool once a turn; a block of rules behind the turn is not the turn's."""

    def say(messages):
        spoken = [m for m in messages if m["role"] != "system" and m["content"] != MAIL.text]
        if spoken[-1]["role"] == "tool":
            return "answer"
        function = {"name": "look", "arguments": '{"at": "x"}'}
        calls = [{"id": f"c{len(messages)}", "type": "function", "function": function}]
        return {"role": "assistant", "content": "", "tool_calls": calls}

    return LangChainChat(ScriptedChat(say))


def told(count, words=0):
    """What a user says in so many turns, the rule first."""
    return [MAIL_RULE, *(f"turn {n}" + " word" * words for n in range(1, count))]


def talk(graph, count, words=0):
    """So many turns of a user with a graph or agent."""
    for number, text in enumerate(told(count, words)):
        asked = to_langchain([{"role": "user", "content": text, "id": f"u{number}"}])
        graph.invoke({"messages": asked}, THREAD)
