"""Simulated worlds served: the same episode through chat, plain HTTP and MCP, on a socket or in memory."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import httpx
import httpx2
import mcp
import openai
import pytest
from mcp.client.streamable_http import streamable_http_client

from refork.errors import BadInput
from refork.policies.open import open_policy
from refork.serve import serving
from refork.serve.settings import ServerSettings
from refork.worlds.base import Task
from refork.worlds.environment import Brief
from refork.worlds.open import open_world, task_to_json
from refork_methods.simulate.serve.http import brief_from_text
from refork_methods.simulate.serve.mcp import WorldTools, mcp_server, tools_for
from refork_methods.simulate.serve.sessions import Worlds
from refork_methods.simulate.world import WorldModel
from refork_testbed.trials.planted_simulator import PlantedSimulator

KEY = "secret"


@pytest.fixture(scope="module")
def planted():
    """A simulator that answers as the real tools world does."""
    world = open_world("tools:library")
    tasks = [*world.tasks("held-out", 64), *world.tasks("train", 64)]
    model = WorldModel(open_policy("scripted:coin"))
    model.predict = PlantedSimulator(world, tasks).predict
    return world, tasks, model.world(world)


@pytest.fixture(scope="module")
def address(planted):
    settings = ServerSettings(port=0, keys=frozenset({KEY, "other"}), world_sessions=40)
    with serving({}, settings, worlds={"tools": planted[2]}) as found:
        yield found


def solved(world, tasks):
    """A task and the actions that solve it, all of them listed tools."""
    for task in tasks:
        episode, actor, seen = world.start(task, 0), world.agent(task, 0), []
        while (action := actor.act(seen)) is not None:
            shown = episode.step(action)
            seen.append((action, shown.text))
            if shown.done:
                break
        if shown.reward == 1.0 and "no such tool" not in str(seen) and "not a call" not in str(seen):
            return task, seen
    raise AssertionError("no task was solved")


@pytest.fixture(scope="module")
def post(address):
    """Plain HTTP, and ``get`` of the same client."""
    with httpx.Client() as client:

        def send(path, key=KEY, **body):
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            return client.post(f"{address}/worlds/tools/{path}", content=json.dumps(body), headers=headers)

        send.get = lambda path, **headers: client.get(f"{address}/worlds{path}", headers=headers)
        yield send


def test_plain_http_acts_and_forks(planted, post):
    world, tasks, _ = planted
    task, seen = solved(world, tasks)
    begun = post("reset", task=task.id).json()
    assert begun["simulated"] is True
    assert begun["simulator"]["model"] == "scripted:coin"
    session, half = begun["session"], len(seen) // 2
    for number, (action, text) in enumerate(seen[:half]):
        told = post("step", session=session, action=action, turn=number).json()
        assert told["observation"] == text
        assert told["simulated"] is True
        assert told["done"] is False
    again = post("step", session=session, action=action, turn=number).json()
    assert again == told  # a step that is sent again is not made twice
    assert post("step", session=session, action="x", turn=0).status_code == 400
    for one in (session, post("fork", session=session).json()["session"]):
        for action, text in seen[half:]:
            told = post("step", session=one, action=action).json()
            assert told["observation"] == text
        assert told["done"]
        assert told["reward"] == 1.0
    over = post("step", session=session, action="x")
    assert over.status_code == 400
    assert "over" in over.json()["error"]["message"]
    assert post("step", key="other", session=session, action="x").status_code == 404
    assert post.get("").status_code == 401
    assert post("close", session=session).json() == {"closed": session}
    assert post("close", session=session).status_code == 404


def test_chat_is_the_same_world_and_many_clients_share_rounds(planted, address):
    world, tasks, _ = planted
    task, seen = solved(world, tasks)
    with openai.OpenAI(api_key=KEY, base_url=address, max_retries=0) as client:
        assert [row.id for row in client.models.list()] == ["world/tools"]

        def play(system):
            talk = [{"role": "system", "content": system}]
            for action, _ in seen:
                talk.append({"role": "user", "content": action})
                answer = client.chat.completions.create(model="world/tools", messages=talk, seed=0)
                talk.append({"role": "assistant", "content": answer.choices[0].message.content})
            return talk[2::2], answer.choices[0].refork

        with ThreadPoolExecutor(6) as many:
            played = list(many.map(play, [task.id] * 5 + [world.brief(task).text]))
        for talk, note in played:
            assert [message["content"] for message in talk] == [text for _, text in seen]
            assert note["simulated"] is True
        assert played[0][1]["reward"] == 1.0
        assert played[-1][1]["reward"] is None
        for bad in ([{"role": "user", "content": "x"}], [{"role": "system", "content": task.id}]):
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(model="world/tools", messages=bad)


async def acted(client, task, seen):
    """A whole task through MCP tools; the last result."""
    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"reset", "fork", "submit"} < names
    begun = await client.call_tool("reset", {"task": task.id})
    assert begun.structured_content["task"] == task.id
    for action, text in seen:
        call = json.loads(action)
        found = await client.call_tool(call["name"], call["arguments"])
        assert found.content[0].text == text
        assert found.meta["simulated"] is True
    return found


def test_an_mcp_client_acts_a_task_in_its_own_session(planted, address, post):
    world, tasks, _ = planted
    task, seen = solved(world, tasks)

    def connect(http):
        return mcp.Client(streamable_http_client(f"{address}/worlds/tools/mcp", http_client=http))

    async def two(http):
        async with connect(http) as one, connect(http) as other:
            first = await acted(one, task, seen)
            second = await acted(other, task, seen)
            assert first.structured_content["reward"] == second.structured_content["reward"] == 1.0
            assert first.meta["session"] != second.meta["session"]
            over = await one.call_tool("submit", {})
            assert over.is_error
            assert "over" in over.content[0].text
            held = f"/tools/sessions/{first.meta['session']}"
            told = post.get(held, authorization=f"Bearer {KEY}").json()
            assert told["turns"][0] == {"action": seen[0][0], "observation": seen[0][1]}

    async def run():
        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as http:
            await two(http)

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_in_memory_mcp_forks(planted, mode):
    world, tasks, simulated = planted
    task, seen = solved(world, tasks)

    async def play():
        worlds = Worlds({"tools": simulated}, ServerSettings())
        server = mcp_server(WorldTools(worlds, "tools"), "tools")
        async with mcp.Client(server, mode=mode) as client:
            last = await acted(client, task, seen[:-1])
            twin = (await client.call_tool("fork", {})).structured_content["session"]
            assert twin != last.meta["session"]
            await client.call_tool("reset", {"session": twin})
            call = json.loads(seen[-1][0])
            end = await client.call_tool(call["name"], call["arguments"])
            assert end.structured_content["reward"] == 1.0
            assert end.meta["session"] == twin
            with pytest.raises(mcp.MCPError, match="no tool"):
                await client.call_tool("nothing", {})
        await worlds.stop()

    asyncio.run(play())


def test_sessions_are_bounded_and_forgotten_when_idle(planted):
    now = [0.0]
    settings = ServerSettings(world_sessions=2, world_idle_s=10)
    worlds = Worlds({"tools": planted[2]}, settings, clock=lambda: now[0])
    first = worlds.reset("tools")
    worlds.reset("tools")
    with pytest.raises(Exception, match="no more may be"):
        worlds.reset("tools")
    now[0] = 11.0
    with pytest.raises(Exception, match="idle too long"):
        worlds.find("tools", first.id)
    assert len(worlds) == 0
    assert worlds.reset("tools").turn == 0
    with pytest.raises(BadInput, match="not offered"):
        worlds.reset("tools", task="nowhere")


def test_what_no_text_or_task_is_is_refused_and_harms_no_session(planted, post):
    _, tasks, simulated = planted
    session = post("reset", task=tasks[0].id).json()["session"]
    whole = task_to_json(tasks[0])
    half = "\ud800"
    wrong = [{"action": half, "session": session}, {"task": whole | {"id": half}}]
    wrong += [{"brief": {"initial_state": half}}]
    for data in (None, 3, [], {}, {"database": half}, {"rows": -1}):
        wrong.append({"task": whole | {"data": data}})
    for body in wrong:
        told = post("step" if "action" in body else "reset", **body)
        assert told.status_code == 400, body
        assert told.json()["error"]["message"]
    assert post("step", session=session, action="submit()", turn=0).status_code == 200

    async def begin_again():
        worlds = Worlds({"tools": simulated}, ServerSettings(world_sessions=1))
        held = worlds.reset("tools", task=tasks[0].id)
        with pytest.raises(BadInput, match="not offered"):
            await worlds.again(held, "nowhere", None)
        await worlds.step(held, "nonsense")
        again = await worlds.again(held, tasks[1].id, 3)  # no second place is needed for it
        assert (again.id, again.turn, again.task.id, len(worlds)) == (held.id, 0, tasks[1].id, 1)
        async with mcp.Client(mcp_server(WorldTools(worlds, "tools"), "tools")) as client:
            worlds.close(held)
            first = (await client.call_tool("reset", {})).structured_content["session"]
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            typed = next(one for one in listed.values() if "id" in one.input_schema["properties"])
            for name, arguments in (
                *(("reset", one) for one in ({"seed": "abc"}, {"task": 3}, {"session": []}, {"sed": 1})),
                *(("fork", one) for one in ({"draw": -1}, {"draw": 1.5}, {"draw": None})),
                (typed.name, {"id": ["no id"]}),
            ):
                refused = await client.call_tool(name, arguments)
                assert refused.is_error
                assert "do not fit the tool's schema" in refused.content[0].text
            assert (await client.call_tool("reset", {"seed": 4.0})).structured_content["turn"] == 0
            worlds.drop(first)
            with pytest.raises(mcp.MCPError, match="idle too long"):
                await client.list_tools()
            assert (await client.list_tools()).tools  # told once, and then another episode

    asyncio.run(begin_again())
    with pytest.raises(BadInput, match="command, a text"):
        tools_for(open_world("terminal"), tasks[0], Brief())[0].action({"command": 3})


def test_a_round_takes_all_who_wait(planted):
    _, tasks, simulated = planted

    async def steps():
        worlds = Worlds({"tools": simulated}, ServerSettings(width=8))
        held = [worlds.reset("tools", task=task.id) for task in tasks[:20]]
        await asyncio.gather(*(worlds.step(one, "nonsense") for one in held))
        return worlds.worlds["tools"].rounds

    rounds = asyncio.run(steps())
    assert (rounds.rounds, rounds.steps) == (3, 20)


def test_tools_of_a_task_and_briefs_from_text():
    world = open_world("terminal")
    task = world.tasks("train", 1)[0]
    (shell,) = tools_for(world, task, world.brief(task))
    assert shell.name == "shell"
    assert shell.action({"command": "ls"}) == "ls"
    brief = Brief(action_space="look()\nmove(x y [fast])", initial_state="a\n\n# not a part")
    look, move = tools_for(world, Task("t", "w", "train", "p"), brief)
    assert look.schema["properties"] == {}
    assert move.schema["required"] == ["x", "y"]
    assert move.action({"x": 1}) == '{"name":"move","arguments":{"x":1}}'
    assert brief_from_text(brief.text) == brief
    assert brief_from_text("just a state") == Brief(initial_state="just a state")
