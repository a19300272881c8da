"""Sub-agents: pinned, or stopped before their first model call."""

from __future__ import annotations

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.tools import tool

from pin.frameworks.histories import MAIL as BUFFER
from pin.frameworks.histories import numbering, talker
from refork.chat import ScriptedChat
from refork.errors import BadInput, CannotDo, PinBroken
from refork_methods.pin.frameworks.langchain import PinningMiddleware
from refork_methods.pin.frameworks.langchain_messages import LangChainChat, from_langchain
from refork_methods.pin.frameworks.langchain_model import pinned_model


def caller_of(name, **arguments):
    """A model that calls a tool once and then is done."""
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return LangChainChat(
        ScriptedChat(
            lambda m: (
                "Done." if any(one["role"] == "tool" for one in m) else {"content": "", "tool_calls": [call]}
            )
        )
    )


def run(agent, awaited):
    given = {"messages": [("user", "go")]}
    return asyncio.run(agent.ainvoke(given)) if awaited else agent.invoke(given)


def pinned(model):
    return bool(model.asked) and all(BUFFER.check(from_langchain(q.messages)).ok for q in model.asked)


def boss(inner, **more):
    """An agent with a tool that asks another agent."""

    @tool
    def ask(question: str) -> str:
        """Ask."""
        return inner.invoke({"messages": question})["messages"][-1].text

    @tool
    async def ask_later(question: str) -> str:
        """Ask."""
        return (await inner.ainvoke({"messages": question}))["messages"][-1].text

    return lambda name: create_agent(
        caller_of(name, question="how many?"),
        [ask, ask_later],
        middleware=[PinningMiddleware(BUFFER, **more)],
    )


@pytest.mark.parametrize("name", ["ask", "ask_later"])
def test_an_agent_inside_a_tool_is_stopped_unless_it_is_pinned(name):
    awaited = name == "ask_later"
    model = talker()
    with pytest.raises(PinBroken, match="a sub-agent would run without the pinned rules mail, spend"):
        run(boss(create_agent(model))(name), awaited)
    assert model.asked == []
    for inner in (
        create_agent(model, middleware=[PinningMiddleware(BUFFER)]),
        create_agent(pinned_model(model, BUFFER)),
    ):
        run(boss(inner)(name), awaited)
    assert len(model.asked) == 2
    assert pinned(model)
    run(boss(create_agent(model), subagents="ignore")(name), awaited)
    assert not pinned(model)


def test_a_model_that_a_tool_asks_and_a_sub_agents_summary_need_no_rules():
    helper, model, writer = talker(), talker(), LangChainChat(numbering())

    @tool
    def look(where: str) -> str:
        """Look."""
        return helper.invoke(where).text

    shorten = SummarizationMiddleware(writer, trigger=("messages", 3), keep=("messages", 1))
    inner = create_agent(
        caller_of("look", where="room"), [look], middleware=[shorten, PinningMiddleware(BUFFER)]
    )
    run(boss(inner)("ask"), False)
    assert len(helper.asked) == 1
    assert len(writer.asked) == 1
    assert not pinned(helper)
    assert model.asked == []


def test_a_setting_that_is_none_is_refused():
    with pytest.raises(BadInput, match="subagents is 'pin'"):
        PinningMiddleware(BUFFER, subagents="pin")


# -- deepagents ---------------------------------------------------------------------------------------


@pytest.fixture
def deepagents():
    return pytest.importorskip(
        "deepagents", reason="deepagents is not installed: make test-agents installs it"
    )


def task(kind):
    return caller_of("task", description="Count the desks.", subagent_type=kind)


@pytest.mark.parametrize("awaited", [False, True])
def test_a_deep_agents_sub_agents_are_stopped_or_pinned(deepagents, awaited):
    from refork_methods.pin.frameworks import pinned_subagents

    model, pins = task("general-purpose"), [PinningMiddleware(BUFFER)]
    with pytest.raises(PinBroken, match="the sub-agent 'general-purpose' would run without"):
        run(deepagents.create_deep_agent(model, middleware=pins), awaited)
    assert len(model.asked) == 1
    run(deepagents.create_deep_agent(model, middleware=pins, subagents=pinned_subagents(BUFFER)), awaited)
    assert len(model.asked) > 3
    assert pinned(model)


def test_sub_agents_of_ones_own_are_pinned_once_and_compiled_ones_watched(deepagents):
    from refork_methods.pin.frameworks import pinned_subagents

    model = talker()
    own = {"name": "own", "description": "d", "system_prompt": "s", "tools": [], "model": model}
    twice = pinned_subagents(BUFFER, pinned_subagents(BUFFER, [own]), general=None)
    assert [spec["name"] for spec in twice] == ["general-purpose", "own"]
    assert [len(spec["middleware"]) for spec in twice] == [1, 1]
    run(
        deepagents.create_deep_agent(task("own"), middleware=[PinningMiddleware(BUFFER)], subagents=twice),
        False,
    )
    assert pinned(model)

    bare = {"name": "made", "description": "d", "runnable": create_agent(talker())}
    subagents = pinned_subagents(BUFFER, [bare], general={"skills": ["/skills/"]})
    assert subagents[0]["skills"] == ["/skills/"]
    with pytest.raises(PinBroken, match="the sub-agent 'made'"):
        run(
            deepagents.create_deep_agent(
                task("made"),
                middleware=[PinningMiddleware(BUFFER)],
                subagents=pinned_subagents(BUFFER, [bare]),
            ),
            False,
        )


def test_an_agent_on_another_server_is_refused_in_words(deepagents):
    from refork_methods.pin.frameworks import pinned_subagents

    remote = {"name": "far", "description": "d", "graph_id": "g", "url": "http://127.0.0.1:1"}
    with pytest.raises(CannotDo, match="'far' runs on another server"):
        pinned_subagents(BUFFER, [remote])
    agent = deepagents.create_deep_agent(
        caller_of("start_async_task", description="Count.", subagent_type="far"),
        middleware=[PinningMiddleware(BUFFER)],
        subagents=[remote],
    )
    with pytest.raises(PinBroken, match="on another server"):
        run(agent, False)


def test_a_pinned_model_reaches_the_sub_agents_too(deepagents):
    model = task("general-purpose")
    run(deepagents.create_deep_agent(pinned_model(model, BUFFER)), False)
    assert len(model.asked) > 2
    assert pinned(model)
