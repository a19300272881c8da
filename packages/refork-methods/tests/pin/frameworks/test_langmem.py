import asyncio
from typing import Any

import pytest
from langchain_core.messages import AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from pin.frameworks.histories import MAIL as BUFFER
from pin.frameworks.histories import THREAD, numbering, talk, talker, told
from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import LangChainChat, from_langchain, to_langchain
from refork_methods.pin.frameworks.langgraph import checkpoint_calls

# langmem's own import warns of names that langgraph moved; the adapter imports it without that.
from refork_methods.pin.frameworks.langmem import (
    LangMemCompactor,
    SummarizationNode,
    pinned_node,
)
from refork_methods.pin.frameworks.rules_langchain import langmem_window, sized
from support.chat_histories import RULE, adversaries, plain, tokens


class Apart(MessagesState):
    summarized_messages: list[AnyMessage]
    context: dict[str, Any]


class Over(MessagesState):
    context: dict[str, Any]


def node(model, overwrite=False, budget=350):
    keys = {"output_messages_key": "messages"} if overwrite else {}
    return SummarizationNode(model=LangChainChat(model), max_tokens=budget, max_summary_tokens=60, **keys)


def agent_graph(shorten, agent, overwrite):
    """The package's own example: a summary before every turn of the agent."""
    key = "messages" if overwrite else "summarized_messages"
    graph = StateGraph(Over if overwrite else Apart)
    graph.add_node("shorten", shorten)
    graph.add_node("talk", lambda state: {"messages": [agent.invoke(state[key])]})
    graph.add_edge(START, "shorten")
    graph.add_edge("shorten", "talk")
    return graph.compile(checkpointer=InMemorySaver())


def test_it_answers_once_a_round():
    messages = plain(12)
    summariser = numbering()
    compactor = LangMemCompactor(summariser, 200, None, 60)
    result = compactor.compact(messages)
    assert result.summary == "summary 1"
    assert result.messages[0] == {
        "role": "system",
        "content": "Summary of the conversation so far: summary 1",
        "id": result.inserted[0],
    }
    assert [m["id"] for m in result.messages[1:]] == [m["id"] for m in messages[len(result.dropped) :]]
    assert result.calls[0].prompt[-1]["content"] == "Create a summary of the conversation above:"
    assert len(summariser.asked) == 1
    again = LangMemCompactor(numbering(), 200, None, 60).compact(messages)
    assert again == result


def test_rounds_are_those_of_a_graph_that_keeps_the_whole_history():
    """The compactor has no memory of its own, yet gives the contexts that the real node gives."""
    agent = talker("answer " + "word " * 30)
    talk(agent_graph(node(numbering()), agent, overwrite=False), 20, 40)
    compactor = LangMemCompactor(numbering(), 350, None, 60)
    context, fired = [], 0
    for number, (text, question) in enumerate(zip(told(20, 40), agent.asked, strict=True)):
        result = compactor.compact([*context, {"role": "user", "content": text, "id": f"u{number}"}])
        fired += result.fired
        real = from_langchain(question.messages)
        assert [(m["role"], m["content"]) for m in result.messages] == [
            (m["role"], m["content"]) for m in real
        ]
        answer = {"role": "assistant", "content": question.answer, "id": f"a{number}"}
        context = [*result.messages, answer]
    assert fired > 3


def test_the_protected_slot_survives_every_round():
    head = {"role": "system", "content": RULE, "id": "policy"}
    compactor = LangMemCompactor(numbering(), 200, None, 60)
    context = [head]
    for round_ in range(6):
        result = compactor.compact(
            [*context, *({**m, "id": f"{round_}.{i}"} for i, m in enumerate(plain(12)[1:]))]
        )
        assert result.fired
        assert result.messages[0] == head
        context = list(result.messages)


def test_what_is_refused():
    with pytest.raises(BadInput, match="must be less than"):
        LangMemCompactor(ScriptedChat([]), 100).compact(plain(12))


# -- pinned -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("placement", ["head", "tail"])
@pytest.mark.parametrize("name", sorted(adversaries(BUFFER)))
def test_a_pinned_node_in_a_graph(name, placement, overwrite):
    buffer = PinnedBuffer(BUFFER.constraints, placement=placement)
    summariser = ScriptedChat(adversaries(buffer)[name])
    agent = talker("answer " + "word " * 30)
    graph = agent_graph(pinned_node(node(summariser, overwrite), buffer), agent, overwrite)
    talk(graph, 20, 40)
    assert len(agent.asked) == 20
    assert len(summariser.asked) > 3
    for question in agent.asked:
        assert buffer.check(from_langchain(question.messages)).ok
    assert not any(buffer.text in str(m) for asked in summariser.asked for m in asked)


def test_without_the_pin_the_rule_is_gone():
    agent = talker()
    talk(agent_graph(node(numbering()), agent, overwrite=False), 20, 40)
    assert RULE in agent.asked[0].messages[0].text
    assert not any(RULE in m.text for m in agent.asked[-1].messages)


class Typed(BaseModel):
    messages: list[AnyMessage]
    context: dict[str, Any] = {}


def test_a_pinned_node_of_a_pydantic_state():
    out = pinned_node(node(numbering(), budget=200), BUFFER).invoke(Typed(messages=to_langchain(plain(12))))
    assert BUFFER.check(from_langchain(out["summarized_messages"])).ok
    assert out["context"]["running_summary"].summary == "summary 1"


def test_a_pinned_node_leaves_a_state_without_messages_to_the_package():
    with pytest.raises(ValueError, match="Missing required field"):
        pinned_node(node(numbering()), BUFFER).invoke({"context": {}})


def test_a_pinned_node_runs_asynchronously():
    pinned = pinned_node(node(numbering()), BUFFER)
    out = asyncio.run(pinned.ainvoke({"messages": to_langchain(plain(12)), "context": {}}))
    assert BUFFER.check(from_langchain(out["summarized_messages"])).ok
    assert out["context"]["running_summary"].summary == "summary 1"


@pytest.mark.filterwarnings("ignore:Failed to trim messages:RuntimeWarning")
def test_a_summary_over_the_budget():
    """langmem then has no room for messages: shown uncut as long as it keeps them apart, else never again."""
    apart, over = (ScriptedChat(lambda messages: "long " * 400) for _ in range(2))
    agent = talker("answer " + "word " * 30)
    talk(agent_graph(node(apart), agent, overwrite=False), 20, 40)
    talk(agent_graph(node(over, overwrite=True), agent, overwrite=True), 20, 40)
    assert len(apart.asked) > 3
    assert len(over.asked) == 1
    messages = plain(20)
    window = langmem_window(sized(messages, tokens), max_tokens=350, max_summary_tokens=60, summary=400)
    assert (window.start, window.stop) == (0, window.kept_messages)


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_calls_of_a_pinned_thread_are_read_back(overwrite):
    agent = talker("answer " + "word " * 30)
    graph = agent_graph(pinned_node(node(numbering(), overwrite), BUFFER), agent, overwrite)
    talk(graph, 12, 40)
    calls = checkpoint_calls(graph, THREAD)
    read = [[m["content"] for m in shown] for shown, _ in calls]
    assert read == [[m.text for m in question.messages] for question in agent.asked]


def test_parallel_results_may_be_parted():
    calls = [{"id": k, "type": "function", "function": {"name": "f", "arguments": "{}"}} for k in "ab"]
    messages = [
        {"role": "user", "content": "go", "id": "u"},
        {"role": "assistant", "content": "", "tool_calls": calls, "id": "c"},
        *({"role": "tool", "content": "r", "tool_call_id": k, "id": k} for k in "ab"),
    ]
    count = LangMemCompactor(numbering(), 4, 3, 1, counter=len).compact(messages)
    assert [m["role"] for m in count.messages] == ["system", "tool"]
    call = LangMemCompactor(numbering(), 4, 2, 1, counter=len).compact(messages)
    assert [m["role"] for m in call.messages] == ["system"]
