"""Tools that come, change and go during an episode."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mcp")

import mcp_types as types

from refork.worlds import resume
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp import McpAgent, McpWorld
from refork_worlds.tools.mcp_client import Listed, Server, after, describe_changes

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = st.dictionaries(
    st.text(max_size=5),
    st.builds(lambda doc, n: (doc, {"n": n}), st.text(max_size=5), st.integers(0, 3)),
    max_size=5,
)


def listed(tools):
    return {name: Listed(name, doc, schema) for name, (doc, schema) in tools.items()}


@given(TOOLS, TOOLS, st.text(max_size=9))
def test_what_is_told_is_what_is_read(before, now, answer):
    old, new = listed(before), listed(now)
    text = describe_changes(old, new)
    assert (text == "") is (old == new)
    assert {tool.name: tool for tool in after(list(old.values()), [f"{answer}\n{text}"])} == new


def test_the_order_of_a_servers_list_does_not_matter():
    one = {name: Listed(name, "", {}) for name in ("b", "a")}
    other = {name: one[name] for name in ("a", "b")}
    assert describe_changes(one, other) == ""
    assert (
        describe_changes({}, one)
        == describe_changes({}, other)
        == ('tools came :\n{"name":"a","arguments":{}}\n{"name":"b","arguments":{}}')
    )
    assert describe_changes(one, {"a": Listed("a", "now", {})}) == (
        'tools changed :\n{"name":"a","description":"now","arguments":{}}\ntools went :\n"b"'
    )


def opening(world):
    """What an episode says to a fixed list of calls."""
    episode = world.start(world.tasks("train", 1)[0], 0)
    names = ("look", "open", "open", "walk", "never")
    try:
        return [(seen.text, seen.info) for seen in (episode.step(call_text(name)) for name in names)]
    finally:
        episode.close()


CAME = 'tools came :\n{"name":"walk","arguments":{"type":"object"}}\ntools went :\n"open"'


@pytest.mark.parametrize("how", ["declares", "only tells"])
def test_the_next_observation_says_which_tools_came_and_went(rough, how):
    world = rough(how)
    said = opening(world)
    assert said == opening(world)
    texts = [text for text, _ in said]
    assert texts[0] == "ok"
    assert texts[1] == f"ok\n{CAME}"
    assert texts[2:4] == ["""{"error":"the server has no tool 'open' any more"}""", "ok"]
    assert [info["ok"] for _, info in said[:4]] == [True, True, False, True]
    # What was never listed may still be there: the server is asked.
    assert texts[4] == "ok"


def test_a_replay_reads_the_same(rough):
    world = rough("declares")
    task = world.tasks("train", 1)[0]
    actions = [call_text("open"), call_text("open")]
    episode = world.start(task, 0)
    texts = [episode.step(action).text for action in actions]
    episode.close()
    again, origin = resume(world, task, 0, actions, texts)
    assert (origin, again.step(call_text("walk")).text) == ("replayed", "ok")
    again.close()


def test_a_modern_server_is_asked_too():
    names = ["open"]

    async def listed(_, __):
        return types.ListToolsResult(
            tools=[types.Tool(name=one, input_schema={"type": "object"}) for one in names]
        )

    async def called(_, asked):
        names[:] = ["walk", "walk"]
        return types.CallToolResult(content=[])

    async def listening(_, __):
        raise AssertionError("nobody listens")

    from mcp.server import Server as Bare

    made = Bare("doors", on_list_tools=listed, on_call_tool=called, on_subscriptions_listen=listening)
    world = McpWorld(Server(command="unused"), target=made)
    episode = world.start(world.tasks("train", 1)[0], 0)
    assert episode.step(call_text("open")).text == (
        'tools came :\n{"name":"walk","arguments":{"type":"object"}}\ntools went :\n"open"'
    )
    assert episode.step(call_text("walk")).text == ""
    episode.close()


def test_an_exploring_actor_calls_what_is_there(rough):
    tools = tuple(Listed(name, "", {"type": "object"}) for name in ("open", "old"))
    seen = [("x", "ok\ntools came :\n" + Listed("walk", "", {}).line + '\ntools went :\n"open"\n"old"')]
    for seed in range(20):
        action = McpAgent(tools, "submit", None, (seed,), 10).act(seen)
        assert json.loads(action)["name"] == "walk"
