import asyncio
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

from pin.frameworks.histories import MAIL as BUFFER
from pin.frameworks.histories import THREAD, caller, look, numbering, talk, talker
from refork.chat import ScriptedChat
from refork.compaction import fate
from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import (
    LangChainChat,
    from_langchain,
    pinned_messages,
    to_langchain,
)
from refork_methods.pin.frameworks.langchain_model import pinned_model
from refork_methods.pin.frameworks.langgraph import (
    LangGraphNodeCompactor,
    checkpoint_calls,
    pinned_hook,
    summary_context,
    summary_graph,
)
from support.chat_histories import RULE, adversaries, plain

moved = pytest.mark.filterwarnings(
    "ignore:create_react_agent has been moved:langgraph.warnings.LangGraphDeprecatedSinceV10"
)


# -- the compactor ------------------------------------------------------------------------------------


def test_the_recipe_from_a_checkpoint_before_it():
    messages = plain(9)
    result = LangGraphNodeCompactor(numbering()).compact(messages)
    assert [m["content"] for m in result.messages] == [
        "Summary of conversation earlier: summary 1",
        *(m["content"] for m in messages[-2:]),
    ]
    assert list(result.messages[1:]) == messages[-2:]
    assert result.seen == tuple(m["id"] for m in messages)
    assert list(result.calls[0].prompt[:-1]) == messages
    assert result.calls[0].prompt[-1]["content"] == "Create a summary of the conversation above:"
    assert fate(RULE, messages, result) == "omitted"
    assert result == LangGraphNodeCompactor(numbering()).compact(messages)


def test_rounds_are_those_of_the_whole_graph():
    """The contexts of a graph that talks all the way, by a compactor that is only shown contexts."""
    agent = talker()
    talk(summary_graph(agent, LangChainChat(numbering()), checkpointer=InMemorySaver()), 20)
    compactor = LangGraphNodeCompactor(numbering())
    context, fired = [], 0
    for number, question in enumerate(agent.asked):
        text = question.messages[-1].text
        shown = [*context, {"role": "user", "content": text, "id": f"u{number}"}]
        real = from_langchain(question.messages)
        assert [(m["role"], m["content"]) for m in shown] == [(m["role"], m["content"]) for m in real]
        result = compactor.compact([*shown, {"role": "assistant", "content": "answer", "id": f"a{number}"}])
        fired += result.fired
        context = list(result.messages)
    assert fired == 6


def test_the_recipe_parts_a_result_from_its_call():
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        *plain(6),
        {"role": "assistant", "content": "", "id": "c", "tool_calls": [call]},
        {"role": "tool", "content": "r", "tool_call_id": "t", "id": "r"},
        {"role": "assistant", "content": "done", "id": "d"},
    ]
    result = LangGraphNodeCompactor(numbering()).compact(messages)
    assert [m["role"] for m in result.messages] == ["system", "tool", "assistant"]


def test_a_tail_of_nothing_is_refused():
    with pytest.raises(BadInput, match="at least 1"):
        LangGraphNodeCompactor(ScriptedChat([]), keep=0)


# -- adoption -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["head", "tail"])
@pytest.mark.parametrize("name", sorted(adversaries(BUFFER)))
def test_a_pinned_model_in_the_recipe(name, placement):
    buffer = PinnedBuffer(BUFFER.constraints, placement=placement)
    agent, summariser = talker(), ScriptedChat(adversaries(buffer)[name])
    graph = summary_graph(
        pinned_model(agent, buffer), LangChainChat(summariser), checkpointer=InMemorySaver()
    )
    talk(graph, 20)
    assert len(agent.asked) == 20
    assert len(summariser.asked) == 6
    for question in agent.asked:
        assert buffer.check(from_langchain(question.messages)).ok
    assert not any(buffer.text in str(m) for asked in summariser.asked for m in asked)


def test_without_the_pin_the_rule_is_gone():
    agent = talker()
    talk(summary_graph(agent, LangChainChat(numbering()), checkpointer=InMemorySaver()), 20)
    assert RULE in agent.asked[0].messages[0].text
    assert not any(RULE in m.text for m in agent.asked[-1].messages)


def test_a_pinned_model_behind_a_prompt():
    agent = talker()
    prompt = ChatPromptTemplate.from_messages([("system", "Be kind."), ("user", "{text}")])
    chain = prompt | pinned_model(agent, BUFFER)
    asyncio.run(chain.ainvoke({"text": "hi"}))
    shown = from_langchain(agent.asked[0].messages)
    assert [m["content"] for m in shown] == ["Be kind.", BUFFER.text, "hi"]


def drop_all_but(count):
    """A user's own hook of the kind that the documentation shows, in both its forms."""
    return {
        "llm_input_messages": lambda state: {"llm_input_messages": state["messages"][-count:]},
        "messages": lambda state: {
            "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *state["messages"][-count:]]
        },
    }


@moved
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("own", [None, "llm_input_messages", "messages"])
def test_a_pinned_hook_of_the_prebuilt_agent(own, overwrite):
    model = caller()
    hook = None if own is None else drop_all_but(3)[own]
    graph = create_react_agent(
        model,
        [look],
        prompt="Be kind.",
        pre_model_hook=pinned_hook(BUFFER, hook, overwrite=overwrite),
        checkpointer=InMemorySaver(),
    )
    talk(graph, 8)
    assert len(model.asked) == 16
    for question in model.asked:
        shown = from_langchain(question.messages)
        assert BUFFER.check(shown).ok
        assert [m["content"] for m in shown[:2]] == ["Be kind.", BUFFER.text]
        if own is not None:
            assert len(shown) <= 2 + 3
    state = from_langchain(graph.get_state(THREAD).values["messages"])
    # Overwriting is what puts the block into the state; the tool's own copy of it lies there untouched.
    assert sum(m["content"] == BUFFER.text and m["role"] == "system" for m in state) == overwrite


class Typed(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages]
    remaining_steps: int = 10


@moved
def test_a_pinned_hook_of_an_agent_with_a_pydantic_state():
    model = caller()
    hook = pinned_hook(BUFFER, lambda state: {"llm_input_messages": state.messages[-3:]})
    graph = create_react_agent(
        model, [look], pre_model_hook=hook, state_schema=Typed, checkpointer=InMemorySaver()
    )
    talk(graph, 4)
    assert len(model.asked) == 8
    assert all(BUFFER.check(from_langchain(question.messages)).ok for question in model.asked)


def test_pinned_messages_for_a_node_of_ones_own():
    shown = pinned_messages(to_langchain(plain(3)), BUFFER)
    assert BUFFER.check(from_langchain(shown)).ok
    assert pinned_messages(shown, BUFFER) == shown


@moved
def test_a_pinned_hook_runs_asynchronously_and_after_a_runnable():
    model = talker()
    graph = create_react_agent(model, [], pre_model_hook=pinned_hook(BUFFER, pinned_hook(BUFFER)))
    asyncio.run(graph.ainvoke({"messages": "hi"}))
    assert BUFFER.check(from_langchain(model.asked[0].messages)).ok


# -- checkpoints --------------------------------------------------------------------------------------


def contexts(model):
    return [[(m["role"], m["content"]) for m in from_langchain(q.messages)] for q in model.asked]


def read(calls):
    return [[(m["role"], m["content"]) for m in shown] for shown, _ in calls]


def test_the_calls_of_the_recipe_are_read_back():
    agent = talker()
    graph = summary_graph(agent, LangChainChat(numbering()), checkpointer=InMemorySaver())
    talk(graph, 12)
    calls = checkpoint_calls(graph, THREAD)
    assert read(calls) == contexts(agent)
    assert {answer["content"] for _, answer in calls} == {"answer"}
    assert calls[0][0][0]["id"] == "u0"


@moved
@pytest.mark.parametrize("overwrite", [False, True])
def test_the_calls_of_the_prebuilt_agent_are_read_back(overwrite):
    model = caller()
    hook = pinned_hook(BUFFER, drop_all_but(3)["llm_input_messages"], overwrite=overwrite)
    graph = create_react_agent(model, [look], pre_model_hook=hook, checkpointer=InMemorySaver())
    talk(graph, 4)
    calls = checkpoint_calls(graph, THREAD)
    assert read(calls) == contexts(model)
    assert [bool(answer.get("tool_calls")) for _, answer in calls] == [True, False] * 4


def test_a_context_that_the_node_makes_is_given():
    model = talker()

    def context(values):
        return [SystemMessage("Be kind."), *values["messages"]]

    graph = StateGraph(MessagesState)
    graph.add_node("talk", lambda state: {"messages": model.invoke(context(state))})
    graph.add_edge(START, "talk")
    compiled = graph.compile(checkpointer=InMemorySaver())
    talk(compiled, 3)
    assert read(checkpoint_calls(compiled, THREAD, context)) == contexts(model)


def test_a_pin_inside_the_node_is_read_back_by_a_context():
    agent = talker()
    graph = summary_graph(
        pinned_model(agent, BUFFER), LangChainChat(numbering()), checkpointer=InMemorySaver()
    )
    talk(graph, 12)

    def context(values):
        return pinned_messages(summary_context(values), BUFFER)

    assert read(checkpoint_calls(graph, THREAD, context)) == contexts(agent)
    assert read(checkpoint_calls(graph, THREAD)) != contexts(agent)


def test_a_forked_thread_is_read_along_its_own_branch():
    agent = talker()
    graph = summary_graph(agent, LangChainChat(numbering()), checkpointer=InMemorySaver())
    talk(graph, 3)
    begun = [s for s in graph.get_state_history(THREAD) if s.next == ("conversation",)]
    assert len(begun) == 3
    second = begun[1].config
    other = graph.update_state(
        second, {"messages": [AIMessage("by hand", id="hand")]}, as_node="conversation"
    )
    graph.invoke({"messages": [HumanMessage("then", id="u9")]}, other)
    forked = checkpoint_calls(graph, THREAD)
    assert [m["content"] for m in forked[-1][0]] == [RULE, "answer", "turn 1", "by hand", "then"]
    assert len(forked) == 2
    (latest, *_) = [
        s for s in graph.get_state_history(THREAD) if "u2" in {m.id for m in s.values["messages"]}
    ]
    assert len(checkpoint_calls(graph, latest.config)) == 3


def test_a_thread_without_model_calls():
    graph = summary_graph(talker(), talker(), checkpointer=InMemorySaver())
    with pytest.raises(BadInput, match="no checkpoint") as caught:
        checkpoint_calls(graph, THREAD)
    assert caught.value.where == "1"


def test_an_assistant_message_that_was_there_before_is_no_call():
    graph = StateGraph(MessagesState)
    graph.add_node("echo", lambda state: {"messages": state["messages"][-1:]})
    graph.add_edge(START, "echo")
    compiled = graph.compile(checkpointer=InMemorySaver())
    compiled.invoke({"messages": [HumanMessage("hi", id="h"), AIMessage("said", id="a")]}, THREAD)
    with pytest.raises(BadInput, match="no checkpoint"):
        checkpoint_calls(compiled, THREAD)
