"""MCP worlds: a server in this process and, once, a real one on its standard streams."""

from __future__ import annotations

import json
import sys
import threading

import pytest

from refork.errors import BadInput, CannotDo
from refork.worlds.base import Task
from refork.worlds.environment import Environment
from refork.worlds.open import open_world
from refork_worlds.tools.call import call_text
from refork_worlds.tools.mcp import McpAgent, McpWorld, read_goals
from refork_worlds.tools.mcp_client import Connection, Listed, Server, ServerBroken
from refork_worlds.tools.schema import DATABASES
from refork_worlds.tools.server import server

anyio = pytest.importorskip("anyio")
pytest.importorskip("mcp")

ROWS = {
    "books": [{"id": 1, "title": "fox", "copies": 2}, {"id": 2, "title": "owl", "copies": 5}],
    "members": [{"id": 1, "name": "ada", "level": "gold"}],
    "loans": [],
}
GOALS = [
    {
        "prompt": "set copies of fox to 7 and tell the copies of owl",
        "answer": "5",
        "checks": [
            {"name": "get_book", "arguments": {"id": 1}, "answer": '{"id":1,"title":"fox","copies":7}'}
        ],
        "solution": [
            {"name": "update_book", "arguments": {"id": 1, "copies": 7}},
            {"name": "get_book", "arguments": {"id": 2}},
            {"name": "submit", "arguments": {"answer": "5"}},
        ],
        "initial_state": "books fox 2 owl 5",
        "split": "train",
    },
    {"prompt": "look around", "split": "held-out"},
]


class Fresh:
    """A new server for every connection: what a command gives."""

    def __new__(cls):
        return server(DATABASES["library"], ROWS)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    goals = tmp_path_factory.mktemp("mcp") / "goals.jsonl"
    goals.write_text("\n".join(map(json.dumps, GOALS)))
    return McpWorld(Server(command="unused"), str(goals), target=server(DATABASES["library"], ROWS))


def test_goals_are_solved_and_graded_by_what_the_server_says(world):
    assert isinstance(world, Environment)
    (task,) = world.tasks("train", 1)
    assert '"get_book"' in task.prompt
    assert world.brief(task).initial_state == "books fox 2 owl 5"
    fresh = McpWorld(world.server, world.goals, target=Fresh())
    actor, episode, seen = world.agent(task, 0), fresh.start(task, 0), []
    wrong = fresh.start(task, 0)
    while (action := actor.act(seen)) is not None:
        shown = episode.step(action)
        seen.append((action, shown.text))
    assert [text for _, text in seen][1:] == ['{"id":2,"title":"owl","copies":5}', "accepted"]
    assert (shown.done, shown.reward) == world.standing(task, seen) == (True, 1.0)
    assert episode.snapshot() is None
    episode.close()
    assert wrong.step(call_text("submit", {"answer": "4"})).text == "rejected"
    wrong.close()
    with pytest.raises(CannotDo, match="no snapshots"):
        world.restore(task, b"")
    with pytest.raises(BadInput, match="1 goals"):
        world.tasks("train", 2)


def test_wrong_calls_are_answers_and_exploration_is_not_graded(world):
    (task,) = world.tasks("held-out", 1)
    episode = world.start(task, 0)
    try:
        assert episode.step("hello").text == '{"error":"not a call"}'
        missing = episode.step(call_text("get_book"))
        assert (missing.text, missing.info["ok"]) == ('{"error":"id is missing"}', False)
        assert "no such tool" in episode.step(call_text("fly")).text
        seen = []
        actor = world.agent(task, 1)
        while (action := actor.act(seen)) is not None:
            seen.append((action, episode.step(action).text))
        assert seen[-1] == (call_text("submit"), "ended")
        assert world.standing(task, seen) == (True, None)
        assert len({action for action, _ in seen}) > 3
    finally:
        episode.close()


def test_a_real_server_is_started_used_and_gone(tmp_path):
    command = f"{sys.executable}%20-m%20refork_worlds.tools.server%20shop"
    before = threading.active_count()
    world = open_world(f"tools:mcp?command={command}&turns=3")
    episode = world.start(Task("explore", world.name, "train", "", {}), 0)
    first = json.loads(episode.step(call_text("get_product", {"id": 1})).text)
    assert first["id"] == 1
    episode.close()
    assert threading.active_count() == before


def test_a_tool_that_never_answers_is_given_up():
    from mcp.server import Server as Bare

    async def called(context, asked):
        await anyio.sleep_forever()

    connection = Connection(Server(command="unused", timeout=0.1), Bare("slow", on_call_tool=called))
    for _ in range(2):
        with pytest.raises(ServerBroken, match=r"'wait' was not answered in 0.1 s"):
            connection.call("wait", {})
    connection.close()


def test_what_a_world_cannot_be_is_said(tmp_path):
    with pytest.raises(BadInput, match="of its own"):
        McpWorld(Server(command="x"), submit="get_book", target=Fresh()).tools()
    with pytest.raises(CannotDo, match="could not be listed: Method not found"):
        McpWorld(Server(command="x"), target=bare()).tools()


def bare():
    """A server without tools."""
    from mcp.server import Server as Bare

    return Bare("bare")


def test_the_prompt_tells_what_tools_are_for(world):
    (task,) = world.tasks("held-out", 1)
    listed = {tool.name: tool for tool in world.tools()}
    assert listed["get_book"].doc
    assert listed["get_book"].line in task.prompt.splitlines()


@pytest.mark.parametrize(
    ("goal", "match"),
    [
        ({"answer": "5"}, "no prompt"),
        ({"prompt": "a", "reward": 1}, "no 'reward'"),
        ({"prompt": "a", "split": "test"}, "no split 'test'"),
        ({"prompt": "a", "answer": ["5"]}, "a text or a number"),
        ({"prompt": "a", "checks": [{"name": "x"}]}, "a check has"),
        ({"prompt": "a", "checks": [{"name": "x", "answer": 5}]}, "a check has"),
        ({"prompt": "a", "checks": [{"name": "x", "answer": "5", "arguments": None}]}, "a check has"),
        ({"prompt": "a", "checks": {"name": "x", "answer": "5"}}, "a check has"),
        ({"prompt": "a", "solution": [{"tool": "x"}]}, "a solution is"),
        ({"prompt": "a", "id": 1}, "another goal has the id 1"),
    ],
)
def test_goals_that_could_never_be_reached_are_refused(tmp_path, goal, match):
    file = tmp_path / "goals.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"prompt": "fine", "id": "1"}, goal])))
    with pytest.raises(BadInput, match=match) as told:
        list(read_goals(file))
    assert told.value.where == f"{file}:2"


@pytest.mark.parametrize(
    ("schema", "low", "high"),
    [
        ({"minimum": 0.5, "maximum": 2}, 1, 2),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 3}, 1, 2),
        ({"exclusiveMinimum": 0.5, "exclusiveMaximum": 2.5}, 1, 2),
        ({"minimum": 3, "exclusiveMinimum": True}, 3, 12),
        ({"maximum": -5}, -5, -5),
        ({"minimum": None}, 0, 9),
        ({}, 0, 9),
    ],
)
def test_numbers_of_an_exploration_are_within_their_bounds(schema, low, high):
    tool = Listed("pick", "", {"properties": {"n": {"type": "number", **schema}}, "required": ["n"]})
    seen = [("x", "there are 2 and 700")]
    found = set()
    for seed in range(200):
        given = json.loads(McpAgent([tool], "submit", None, (seed,), 10).act(seen))["arguments"]
        found |= set(given.values())
    assert found <= set(range(low, high + 1))
    assert {low, high if high - low < 9 else low} <= found


FITTING = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "same": {"const": 7},
        "on": {"type": "boolean"},
        "text": {"type": ["null", "string"]},
        "one": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 2.5, "maximum": 5}]},
        "many": {"type": "array", "items": {"$ref": "#/$defs/place"}, "minItems": 2, "maxItems": 2},
    },
    "required": ["kind", "same", "on", "text", "one", "many"],
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"x": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2}},
            "required": ["x"],
            "additionalProperties": False,
        }
    },
}


def test_arguments_of_an_exploration_fit_their_schema():
    from jsonschema import Draft202012Validator

    full = Draft202012Validator(FITTING)
    partial = Draft202012Validator({**FITTING, "required": []})
    left_out = 0
    for seed in range(120):
        actor = McpAgent([Listed("do", "", FITTING)], "submit", None, (seed,), 10)
        given = json.loads(actor.act([("x", '{"name":"fig"} 4 70')]))["arguments"]
        partial.validate(given)
        left_out += not full.is_valid(given)
    assert 0 < left_out < 40


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": None, "required": None},
        {"required": ["a"], "properties": {"a": {"type": "array", "minItems": 10**9, "items": {}}}},
        {"required": ["a"], "properties": {"a": {"type": "object", "required": None}}},
        {"required": ["a"], "properties": {"a": {"$ref": "#/$defs/nowhere"}}},
        {"required": ["a"], "properties": {"a": {"$ref": "#/properties/a"}}},
        {"required": ["a"], "properties": {"a": True}},
    ],
)
def test_odd_schemas_do_not_break_an_exploration(schema):
    for seed in range(30):
        assert McpAgent([Listed("do", "", schema)], "submit", None, (seed,), 10).act([("x", "y")])
