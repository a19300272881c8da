"""Audits of the logs of real agents that compact their history by themselves."""

from __future__ import annotations

import html
import json

import pytest

from refork.chat import ScriptedChat
from refork_methods.pin import Constraint
from refork_methods.rot.audit import audit
from refork_methods.rot.readers import checkpoint_session, read_sessions

pytest.importorskip("langchain", reason="the extra 'harness' is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from refork_methods.pin.frameworks import CallLog, LangChainChat

RULES = [
    "Never buy for more than 100 USD.",
    "Buy only if price < 100 & stock > 3.",
    'Say "no":\n- to x < 5\n- to O\'Brien €',
]
CONFIG = {"configurable": {"thread_id": "1"}}


def plain(summary, keep):
    shorten = SummarizationMiddleware(
        LangChainChat(ScriptedChat(lambda m: summary)), trigger=("messages", 4), keep=("messages", keep)
    )
    return create_agent(
        LangChainChat(ScriptedChat(lambda m: "Noted.")), middleware=[shorten], checkpointer=InMemorySaver()
    )


def deep(summary, keep):
    deepagents = pytest.importorskip(
        "deepagents", reason="deepagents is not installed: make test-agents installs it"
    )
    from deepagents.backends import StateBackend
    from deepagents.middleware.summarization import SummarizationMiddleware as Deep

    shorten = Deep(
        LangChainChat(ScriptedChat(lambda m: summary)),
        backend=StateBackend(), trigger=("messages", 4), keep=("messages", keep),
    )  # fmt: skip
    return deepagents.create_deep_agent(
        LangChainChat(ScriptedChat(lambda m: "Noted.")), middleware=[shorten], checkpointer=InMemorySaver()
    )


def talk(graph, rule, path, calls=7):
    for i in range(calls):
        text = f"Note {i}: parcel {i} is in room {i}." if i else f"One rule: {rule}"
        graph.invoke({"messages": [("user", text)]}, {**CONFIG, "callbacks": [CallLog(path)]})


def unmarked(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(json.dumps({k: v for k, v in line.items() if k != "by"}) + "\n" for line in lines)
    )


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("make", [plain, deep])
def test_a_rule_that_the_summariser_was_shown_is_omitted_and_no_call_is_lost(
    make, rule, keep, marked, tmp_path
):
    path = tmp_path / "log.jsonl"
    talk(make("Parcels lie in rooms.", keep), rule, path)
    if not marked:
        unmarked(path)
    told = audit(read_sessions(path)[0], [Constraint("r", rule)])
    assert len(told.calls) == 7
    assert (told.rules[0].lost_at, told.rules[0].loss) == (3, "omitted")


@pytest.mark.parametrize("make", [plain, deep])
def test_a_rule_that_the_summariser_copies_escaped_is_there(make, tmp_path):
    rule = RULES[1]
    graph = make(f"The user said: {html.escape(rule)}", 2)
    talk(graph, rule, tmp_path / "log.jsonl")
    told = audit(read_sessions(tmp_path / "log.jsonl")[0], [Constraint("r", rule)])
    assert not told.has_loss
    assert any("at call 3 the context holds it only in an escaped spelling" in one for one in told.warnings)
    assert [call.rules[0].copies for call in told.calls[:3]] == [1, 1, 0]


@pytest.mark.parametrize("make", [plain, deep])
def test_a_threads_checkpoints_give_what_was_sent(make, tmp_path):
    graph = make("Parcels lie in rooms.", 2)
    talk(graph, RULES[1], tmp_path / "log.jsonl")
    (logged,) = read_sessions(tmp_path / "log.jsonl")
    read = checkpoint_session(graph, CONFIG)
    assert [[m["content"] for m in call.context] for call in read.calls] == [
        [m["content"] for m in call.context if m["role"] != "system"] for call in logged.calls
    ]
    assert audit(read, [Constraint("r", RULES[1])]).rules[0].lost_at == 3


def test_what_a_tool_asks_is_a_session_of_its_own(tmp_path):
    helper = LangChainChat(ScriptedChat(lambda m: "It is in room 3."))

    @tool
    def look(where: str) -> str:
        """Look."""
        return helper.invoke(where).text

    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"where": "room"}'}}
    agent = LangChainChat(
        ScriptedChat(lambda m: {"content": "", "tool_calls": [call]} if m[-1]["role"] == "user" else "Done.")
    )
    graph = create_agent(agent, [look])
    graph.invoke(
        {"messages": [("user", f"One rule: {RULES[0]}")]}, {"callbacks": [CallLog(tmp_path / "l.jsonl")]}
    )
    main, inner = sorted(read_sessions(tmp_path / "l.jsonl"), key=lambda log: -len(log.calls))
    assert (len(main.calls), len(inner.calls)) == (2, 1)
    assert inner.name.startswith("tool ")
    assert not audit(main, [Constraint("r", RULES[0])]).has_loss
