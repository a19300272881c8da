"""An MCP server behind us: byte for byte while it is recorded, and not started where the tape answers."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys

import pytest

from refork.agents.mcp_wrap import Wrapped, wrap
from refork.agents.program_side import VARIABLE
from refork.agents.replay import FromTape
from refork.agents.tape import Tape
from refork.agents.tool_calls import ToolCalls, of_tools, tool_events
from refork.errors import BadInput
from refork.tree import Tree

from .test_tools import a_run

#: A server of few words and odd spaces: it says in a file that it began, and what it heard.
SERVER = """
import json, sys
log = open("log", "a")
log.write("began ")
for line in sys.stdin:
    told = json.loads(line)
    log.write(told["method"] + " ")
    log.flush()
    if "id" not in told:
        continue
    sys.stdout.write('{"jsonrpc":  "2.0", "method": "notifications/progress", "params": {}}\\n')
    at = told.get("params", {}).get("arguments", {}).get("at")
    if at == "wall":
        answer = '"error": {"code": -1, "message": "no wall"}'
    else:
        answer = '"result":   {"at": "%s \\u00e9"}' % (at or told["method"])
    sys.stdout.write('{"id": %s,  "jsonrpc": "2.0", %s}\\n' % (json.dumps(told["id"]), answer))
    sys.stdout.flush()
"""


def line(method, number=None, **parameters):
    told = {"jsonrpc": "2.0", "method": method, "params": parameters}
    return json.dumps(told if number is None else told | {"id": number}).encode() + b"\n"


def look(number, at, **more):
    return line("tools/call", number, name="look", arguments={"at": at}, **more)


OPENING = [line("initialize", 0, clientInfo={"name": "x"}), line("notifications/initialized")]


@pytest.fixture
def talks(tmp_path, monkeypatch):
    """What a client is told that says some lines, and the server's log of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text(SERVER)

    def talk(tools, *lines):
        (tmp_path / "log").write_text("")
        out = io.BytesIO()
        with a_run(monkeypatch, tools):
            status = Wrapped([sys.executable, "server.py"], io.BytesIO(b"".join(lines)), out).run()
        assert status == 0
        return out.getvalue(), (tmp_path / "log").read_text()

    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["program"], tmp_path)
        lines = [*OPENING, look("a", "door", _meta={"progressToken": 5}), look(2, "wall")]
        first, log = talk(ToolCalls(tape), *lines)
        assert log == "began initialize notifications/initialized tools/call tools/call "
        plain = subprocess.run(
            [sys.executable, "server.py"], input=b"".join(lines), capture_output=True, check=True
        )
        assert first == plain.stdout  # as if nobody stood between
        yield talk, tool_events(tree, tape.run)


def answers(out):
    return {told["id"]: told.get("result") or told["error"] for told in map(json.loads, out.splitlines())}


def test_recorded_byte_for_byte_and_given_without_the_server(talks):
    talk, events = talks
    assert [(event.name, event.by) for event in events] == [
        ("initialize", "mcp-protocol"),
        ("look", "mcp"),
        ("look", "mcp"),
    ]
    tools = ToolCalls(None, events, source=FromTape([]))
    out, log = talk(tools, *OPENING, look(8, "wall"), look("z", "door"), look(9, "door"))
    assert log == ""  # never started
    told = answers(out)
    assert (told[0], told[8]) == ({"at": "initialize é"}, {"code": -1, "message": "no wall"})
    assert told["z"] == {"at": "door é"}
    assert "once more than when it was recorded" in told[9]["message"]
    assert tools.given == len(of_tools(events)) == 2


def test_a_server_that_is_needed_late_hears_how_the_client_began(talks):
    talk, events = talks
    point = []
    tools = ToolCalls(
        None, events, source=FromTape([]), rule="live", reached=lambda: bool(point),
        before=lambda one: one.number < 2,
    )  # fmt: skip
    answer = tools.answer

    async def then_the_point(path, told):
        came = await answer(path, told)
        if told.get("arguments") == {"at": "door"}:
            point.append(path)
        return came

    tools.answer = then_the_point
    out, log = talk(tools, *OPENING, look(1, "door"), look(2, "roof"))
    assert log == "began initialize notifications/initialized tools/call "
    told = {one["id"]: one["result"] for one in map(json.loads, out.splitlines()) if "id" in one}
    # Its own answer to the beginning is not said a second time.
    assert told == {0: {"at": "initialize é"}, 1: {"at": "door é"}, 2: {"at": "roof é"}}
    assert out.count(b'"id": 0') == 1


def test_a_client_and_a_server_of_the_package_of_mcp(tmp_path, monkeypatch):
    pytest.importorskip("mcp")
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    (tmp_path / "server.py").write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "open('ran', 'a').write('began ')\n"
        "server = MCPServer('s')\n"
        "@server.tool()\n"
        "def look(at: str) -> str:\n"
        "    'Look.'\n"
        "    open('ran', 'a').write(at)\n"
        "    return 'you see a ' + at\n"
        "server.run('stdio')\n"
    )

    async def talk():
        command = ["-m", "refork", "agent", "mcp-wrap", "--", sys.executable, "server.py"]
        given = {name: os.environ[name] for name in (VARIABLE, "PYTHONPATH") if name in os.environ}
        server = StdioServerParameters(command=sys.executable, args=command, env=given, cwd=tmp_path)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            names = [one.name for one in (await session.list_tools()).tools]
            return names, (await session.call_tool("look", {"at": "door"})).content[0].text

    with Tree.open(tmp_path / "tape.db") as tree:
        tape = Tape(tree, ["program"], tmp_path)
        with a_run(monkeypatch, ToolCalls(tape)):
            first = asyncio.run(talk())
        with a_run(monkeypatch, ToolCalls(None, tool_events(tree, tape.run), source=FromTape([]))):
            assert asyncio.run(talk()) == first == (["look"], "you see a door")
    assert (tmp_path / "ran").read_text() == "began door"


def test_the_address_is_found_where_a_client_keeps_the_environment_to_itself():
    inner = "from refork.agents.mcp_wrap import _of_parents; print(_of_parents())"
    begin = f"[sys.executable, '-c', {inner!r}]"
    outer = f"import subprocess, sys; subprocess.run({begin}, env=eval(sys.argv[1]))"
    kept = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-S", "-c", outer, repr(kept)]
    told = subprocess.run(
        command, env={**kept, VARIABLE: "http://here"}, capture_output=True, text=True, check=True
    )
    assert told.stdout == "http://here\n", told.stderr


def test_no_command_is_said():
    with pytest.raises(BadInput, match="no command"):
        wrap([])
