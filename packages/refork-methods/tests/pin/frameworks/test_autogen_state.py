import asyncio
import json

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_ext.models.replay import ReplayChatCompletionClient

from pin.frameworks.histories import BUFFER, RULE, call
from refork.chat import ScriptedChat
from refork.compaction import holds
from refork.errors import BadInput, CannotDo
from refork_methods.pin.frameworks.autogen import PinnedContext
from refork_methods.pin.frameworks.autogen_client import AutoGenChatClient
from refork_methods.pin.frameworks.autogen_messages import from_autogen
from refork_methods.pin.frameworks.autogen_state import read_autogen_state


def bare(messages):
    return [{k: v for k, v in m.items() if k != "id"} for m in messages]


@pytest.mark.parametrize(
    "make", [lambda: BufferedChatCompletionContext(3), lambda: HeadAndTailChatCompletionContext(1, 3)]
)
def test_the_calls_are_rebuilt_exactly(tmp_path, make):
    client = ReplayChatCompletionClient([f"done {i}" for i in range(6)])

    async def session():
        agent = AssistantAgent("agent", client, model_context=make(), system_message="You deploy.")
        for number in range(6):
            await agent.run(task=f"House rule: {RULE}" if number == 0 else f"task {number}")
        return await agent.save_state()

    path = tmp_path / "state.json"
    path.write_text(json.dumps(asyncio.run(session())))
    calls = read_autogen_state(path, make(), system="You deploy.")["agent"]
    real = [from_autogen(one["messages"]) for one in client.create_calls]
    assert [bare(one.context) for one in calls] == real
    assert [one.answer["content"] for one in calls] == [f"done {i}" for i in range(6)]
    fired = [one.compaction is not None for one in calls]
    assert fired == [
        len(one) - 1 != 2 * i + 1 or any("Skipped" in str(m) for m in one) for i, one in enumerate(real)
    ]
    first = calls[0].context[1]["id"]
    lost = [i for i, one in enumerate(calls) if not holds(one.context, RULE)]
    assert [i for i, one in enumerate(calls) if one.compaction and first in one.compaction.dropped] == lost


def test_an_agent_that_calls_tools(tmp_path):
    def look(x: int) -> str:
        """Look it up."""
        return f"found {x}"

    model = ScriptedChat(lambda messages: call("k", "l") if messages[-1]["role"] == "user" else "done")

    async def session():
        agent = AssistantAgent(
            "agent",
            AutoGenChatClient(model),
            tools=[look],
            reflect_on_tool_use=True,
            model_context=BufferedChatCompletionContext(4),
            system_message=None,
        )
        for number in range(4):
            await agent.run(task=f"task {number}")
        return await agent.save_state()

    path = tmp_path / "state.json"
    path.write_text(json.dumps(asyncio.run(session())))
    calls = read_autogen_state(path, BufferedChatCompletionContext(4))["agent"]
    assert [bare(one.context) for one in calls] == [list(shown) for shown in model.asked]


def test_a_team_s_state_gives_every_agent(tmp_path):
    async def session():
        agents = [
            AssistantAgent(name, ReplayChatCompletionClient(["a", "b", "c"]), system_message=None)
            for name in ("planner", "coder")
        ]
        team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(5))
        await team.run(task="go")
        return await team.save_state()

    path = tmp_path / "team.json"
    path.write_text(json.dumps(asyncio.run(session())))
    found = read_autogen_state(path, UnboundedChatCompletionContext())
    assert {name: len(calls) for name, calls in found.items()} == {"planner": 2, "coder": 2}
    assert all(one.compaction is None for calls in found.values() for one in calls)


def test_a_context_s_own_state(tmp_path):
    path = tmp_path / "context.json"
    path.write_text(
        json.dumps(
            {
                "messages": [
                    {"type": "UserMessage", "content": "hi", "source": "user"},
                    {"type": "AssistantMessage", "content": "yes", "source": "a"},
                ]
            }
        )
    )
    (one,) = read_autogen_state(path, UnboundedChatCompletionContext())["agent"]
    assert one.context == ({"role": "user", "content": "hi", "id": "m0"},)
    assert one.answer == {"role": "assistant", "content": "yes", "name": "a", "id": "m1"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("not json", "cannot read this as JSON"),
        ('{"type": "TeamState"}', "holds no messages"),
        ("[]", "holds no messages"),
        ('{"messages": [{"type": "Nonsense"}]}', "no messages of AutoGen"),
    ],
)
def test_what_is_no_state_is_refused(tmp_path, text, why):
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=why):
        read_autogen_state(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(BadInput, match="cannot read"):
        read_autogen_state(tmp_path / "none.json")


def saved(tmp_path, **beside):
    """A file of two turns, with what is saved beside the state."""
    said = [("UserMessage", f"House rule: {RULE}"), ("AssistantMessage", "yes")] * 2
    messages = [{"type": kind, "content": text, "source": "s"} for kind, text in said]
    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"state": {"llm_context": {"messages": messages}}, **beside}))
    return path


def test_a_state_that_does_not_say_what_was_shown_is_refused(tmp_path):
    with pytest.raises(CannotDo, match="does not say what the model of 'agent' was shown"):
        read_autogen_state(saved(tmp_path))


@pytest.mark.parametrize(
    ("context", "shown"),
    [
        (UnboundedChatCompletionContext(), 3),
        (BufferedChatCompletionContext(1), 1),
        (HeadAndTailChatCompletionContext(1, 1), 3),
        (PinnedContext(BufferedChatCompletionContext(1), BUFFER), 2),
    ],
)
def test_the_context_may_be_dumped_beside_the_state(tmp_path, context, shown):
    dumped = context.dump_component().model_dump()
    path = saved(tmp_path, model_context=dumped, system_message="You deploy.")
    last = read_autogen_state(path)["agent"][-1]
    assert len(last.context) == shown + 1
    assert last.context[0]["content"] == "You deploy."
    assert read_autogen_state(path) == read_autogen_state(path, context, "You deploy.")


def test_an_agent_may_be_dumped_beside_its_state(tmp_path):
    agent = AssistantAgent(
        "deployer",
        ReplayChatCompletionClient([]),
        model_context=BufferedChatCompletionContext(1),
        system_message="You deploy.",
    )
    path = saved(tmp_path, agent=agent.dump_component().model_dump())
    (calls,) = read_autogen_state(path).values()
    assert list(read_autogen_state(path)) == ["deployer"]
    assert [len(one.context) for one in calls] == [2, 2]


def test_a_team_may_be_dumped_beside_its_state(tmp_path):
    async def session():
        agents = [
            AssistantAgent(
                name,
                ReplayChatCompletionClient(["a", "b", "c"]),
                model_context=BufferedChatCompletionContext(size),
                system_message=None,
            )
            for name, size in (("planner", 1), ("coder", 2))
        ]
        team = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(5))
        await team.run(task="go")
        return {"state": await team.save_state(), "team": team.dump_component().model_dump()}

    path = tmp_path / "team.json"
    path.write_text(json.dumps(asyncio.run(session())))
    found = read_autogen_state(path)
    assert {name: len(calls[-1].context) for name, calls in found.items()} == {"planner": 1, "coder": 2}


@pytest.mark.parametrize(
    ("dumped", "error", "why"),
    [
        ({"provider": "os.system", "config": {}}, CannotDo, "kind 'os.system'"),
        ({"provider": "mine.BufferedChatCompletionContext", "config": {}}, CannotDo, "kind 'mine"),
        (
            {"provider": "autogen_core.model_context.BufferedChatCompletionContext", "config": {}},
            BadInput,
            "no dumped Buffered",
        ),
        ("text", CannotDo, "cannot be told"),
    ],
)
def test_only_autogen_s_own_contexts_are_made_from_a_file(tmp_path, dumped, error, why):
    with pytest.raises(error, match=why):
        read_autogen_state(saved(tmp_path, model_context=dumped))


def test_a_token_limit_cannot_be_told_from_a_file(tmp_path):
    limited = TokenLimitedChatCompletionContext(ReplayChatCompletionClient([]), token_limit=5)
    path = saved(tmp_path, model_context=limited.dump_component().model_dump())
    with pytest.raises(CannotDo, match="TokenLimited"):
        read_autogen_state(path)
    assert len(read_autogen_state(path, limited)["agent"]) == 2
