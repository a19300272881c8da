import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from pin.frameworks.histories import MAIL as BUFFER
from pin.frameworks.histories import THREAD, caller, look, numbering, talk, talker
from refork.chat import ScriptedChat
from refork.compaction import fate
from refork.errors import BadInput
from refork_methods.pin import PinnedBuffer
from refork_methods.pin.frameworks.langchain import LangChainMiddlewareCompactor, PinningMiddleware
from refork_methods.pin.frameworks.langchain_messages import LangChainChat, from_langchain
from refork_methods.pin.frameworks.langgraph import checkpoint_calls
from support.chat_histories import RULE, adversaries, plain

SIX, TWO = ("messages", 6), ("messages", 2)


def bodies(messages):
    return [(m["role"], m["content"]) for m in messages]


# -- the compactor ------------------------------------------------------------------------------------


def test_the_summary_takes_the_place_of_the_span():
    messages = plain(12)
    result = LangChainMiddlewareCompactor(numbering(), SIX, TWO).compact(messages)
    assert result.messages[0] == {
        "role": "user",
        "content": "Here is a summary of the conversation to date:\n\nsummary 1",
        "id": result.inserted[0],
    }
    assert list(result.messages[1:]) == messages[-2:]
    assert result.seen == tuple(m["id"] for m in messages[:-2])
    assert result == LangChainMiddlewareCompactor(numbering(), SIX, TWO).compact(messages)


def test_a_rule_with_xml_in_it_counts_as_shown():
    """The package sends the history escaped; a text is found in the question all the same."""
    summariser = numbering()
    messages = plain(12)
    result = LangChainMiddlewareCompactor(summariser, SIX, TWO).compact(messages)
    assert RULE not in summariser.asked[0][0]["content"]
    assert "send mail &lt;only&gt; to acme.com &amp; nobody" in summariser.asked[0][0]["content"]
    assert fate(RULE, messages, result) == "omitted"


def test_rounds_are_those_of_a_real_agent():
    """The contexts of an agent that talks all the way, by a compactor that is only shown contexts."""
    model = talker()
    settings = {"trigger": ("tokens", 200), "keep": ("messages", 3), "trim_tokens_to_summarize": 120}
    middleware = SummarizationMiddleware(LangChainChat(numbering()), **settings)
    agent = create_agent(
        model, system_prompt="Be kind.", middleware=[middleware], checkpointer=InMemorySaver()
    )
    talk(agent, 20, 20)
    compactor = LangChainMiddlewareCompactor(numbering(), ("tokens", 200), ("messages", 3), 120)
    context, fired = [{"role": "system", "content": "Be kind.", "id": "p"}], 0
    for number, question in enumerate(model.asked):
        asked = {"role": "user", "content": question.messages[-1].text, "id": f"u{number}"}
        result = compactor.compact([*context, asked])
        fired += result.fired
        assert bodies(result.messages) == bodies(from_langchain(question.messages))
        context = [*result.messages, {"role": "assistant", "content": "answer", "id": f"a{number}"}]
    assert fired > 3


def test_what_is_refused():
    with pytest.raises(BadInput, match="greater than 0"):
        LangChainMiddlewareCompactor(ScriptedChat([]), ("messages", 0)).compact(plain(12))
    with pytest.raises(BadInput, match="profile information"):
        LangChainMiddlewareCompactor(ScriptedChat([]), ("fraction", 0.5)).compact(plain(12))


# -- adoption -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["head", "tail"])
@pytest.mark.parametrize("prompt", [None, "Be kind."])
@pytest.mark.parametrize("name", sorted(adversaries(BUFFER)))
def test_the_middleware_pins_every_input(name, prompt, placement):
    buffer = PinnedBuffer(BUFFER.constraints, placement=placement)
    model, summariser = caller(), ScriptedChat(adversaries(buffer)[name])
    shorten = SummarizationMiddleware(LangChainChat(summariser), trigger=SIX, keep=TWO)
    edit = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=10, keep=0)])
    agent = create_agent(
        model,
        [look],
        system_prompt=prompt,
        middleware=[shorten, edit, PinningMiddleware(buffer)],
        checkpointer=InMemorySaver(),
    )
    talk(agent, 20, 20)
    assert len(model.asked) == 40
    assert len(summariser.asked) > 10
    for question in model.asked:
        shown = from_langchain(question.messages)
        assert buffer.check(shown).ok
        assert (shown[0]["content"] == prompt) == (prompt is not None)
    state = from_langchain(agent.get_state(THREAD).values["messages"])
    assert not any(m["content"] == buffer.text for m in state)


def test_the_block_in_the_prompt_itself_is_not_doubled():
    model = talker()
    agent = create_agent(model, system_prompt=BUFFER.text, middleware=[PinningMiddleware(BUFFER)])
    agent.invoke({"messages": "hi"})
    assert bodies(from_langchain(model.asked[0].messages)) == [("system", BUFFER.text), ("user", "hi")]


def test_a_pin_in_the_user_role():
    buffer = PinnedBuffer(BUFFER.constraints, role="user")
    model = talker()
    create_agent(model, middleware=[PinningMiddleware(buffer)]).invoke({"messages": "hi"})
    assert bodies(from_langchain(model.asked[0].messages)) == [("user", buffer.text), ("user", "hi")]


def test_an_asynchronous_agent():
    model = talker()
    agent = create_agent(model, middleware=[PinningMiddleware(BUFFER)])
    asyncio.run(agent.ainvoke({"messages": "hi"}))
    assert BUFFER.check(from_langchain(model.asked[0].messages)).ok


class Appends(AgentMiddleware):
    """A middleware that quotes the rules in the model's input."""

    def wrap_model_call(self, request, handler):
        return handler(request.override(messages=[*request.messages, HumanMessage(BUFFER.text)]))


def test_the_last_middleware_has_the_last_word():
    last, first = talker(), talker()
    create_agent(last, middleware=[Appends(), PinningMiddleware(BUFFER)]).invoke({"messages": "hi"})
    create_agent(first, middleware=[PinningMiddleware(BUFFER), Appends()]).invoke({"messages": "hi"})
    assert BUFFER.check(from_langchain(last.asked[0].messages)).ok
    assert BUFFER.check(from_langchain(first.asked[0].messages)).doubled == ("mail", "spend")


def test_without_the_pin_the_rule_is_gone():
    model = talker()
    shorten = SummarizationMiddleware(LangChainChat(numbering()), trigger=SIX, keep=TWO)
    agent = create_agent(model, middleware=[shorten], checkpointer=InMemorySaver())
    talk(agent, 20, 20)
    assert RULE in model.asked[0].messages[0].text
    assert not any(RULE in m.text for m in model.asked[-1].messages)


def test_the_calls_of_an_agent_are_read_back():
    model = caller()
    shorten = SummarizationMiddleware(LangChainChat(numbering()), trigger=SIX, keep=TWO)
    agent = create_agent(
        model,
        [look],
        system_prompt="Be kind.",
        middleware=[shorten, PinningMiddleware(BUFFER)],
        checkpointer=InMemorySaver(),
    )
    talk(agent, 6, 20)
    # The prompt and the pin are put in inside the model's node, so the reader is told of them.
    calls = checkpoint_calls(agent, THREAD, lambda values: [SystemMessage("Be kind."), *values["messages"]])
    pinned = [BUFFER.apply(shown) for shown, _ in calls]
    assert [bodies(m) for m in pinned] == [bodies(from_langchain(q.messages)) for q in model.asked]
