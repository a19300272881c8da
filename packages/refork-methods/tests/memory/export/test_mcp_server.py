"""The server, asked by the official client: over standard input and output, and in the same process."""

import asyncio
import json
import sys

import pytest

from refork.errors import BadInput, CannotDo, MissingExtra
from refork.sandbox import Limits, Sandbox
from refork_methods.memory.export import export_mcp
from refork_methods.memory.export.mcp_server import build_server, environment, main
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.tool import Tool

SEND = '''def send_all(apis, tools, *, names: list, text: str = "hello") -> object:
    """Send a text to everybody."""
    return [apis.mail.send(to=name, text=text) for name in names]
'''
SPIN = 'def spin(apis, tools) -> object:\n    """Never ends."""\n    while True: pass\n'
SHOUT = '''def shout(apis, tools, *, text: str) -> object:
    """In capitals."""
    return text.upper()
'''
ARRAY, TEXT = {"type": "array", "items": {"type": "string"}}, {"type": "string"}
SEND_TOOL = Tool("t1", "send_all", SEND, "Send a text to everybody.",
                 {"type": "object", "properties": {"names": ARRAY, "text": TEXT}, "required": ["names"]},
                 ("mail.send",), "p", ())  # fmt: skip
SPIN_TOOL = Tool("t2", "spin", SPIN, "Never ends.", {"type": "object", "properties": {}}, (), "p", ())
SHOUT_TOOL = Tool("t3", "shout", SHOUT, "In capitals.",
                  {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
                  (), "p", ())  # fmt: skip
REGISTRY = ToolRegistry((SEND_TOOL, SPIN_TOOL, SHOUT_TOOL))
ENVIRONMENT = """
import os
def call(name, arguments):
    print("a careless print", flush=True)
    if arguments["to"] == "nobody":
        raise LookupError("no such person")
    return {"sent": arguments, "process": os.getpid()}
"""


async def conversation(client):
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert sorted(listed) == ["send_all", "shout", "spin"]
    assert listed["send_all"].description == "Send a text to everybody."
    assert listed["send_all"].input_schema["required"] == ["names"]
    shouted = await client.call_tool("shout", {"text": "ünï"})
    assert not shouted.is_error
    assert json.loads(shouted.content[0].text) == "ÜNÏ"
    assert shouted.structured_content == {"result": "ÜNÏ"}
    sent = await client.call_tool("send_all", {"names": ["ann", "bo"]})
    assert not sent.is_error, sent
    assert [one["sent"]["to"] for one in json.loads(sent.content[0].text)] == ["ann", "bo"]
    for arguments, words in (
        ({"names": ["nobody"]}, "no such person"),
        ({}, "do not fit the tool's schema: $: 'names' is a required property"),
        ({"names": ["ann"], "who": 1}, "do not fit the tool's schema: $: Additional properties"),
        ({"names": ["ann", 5]}, "do not fit the tool's schema: $.names[1]: 5 is not of type 'string'"),
        ({"names": ["ann"], "text": None}, "do not fit the tool's schema: $.text: None is not of type"),
    ):
        failed = await client.call_tool("send_all", arguments)
        assert failed.is_error
        assert words in failed.content[0].text
    spun = await client.call_tool("spin", {})
    assert spun.is_error
    assert spun.content[0].text.startswith("timeout")
    return shouted


def test_the_official_client_over_standard_input_and_output(tmp_path):
    mcp = pytest.importorskip("mcp")
    (tmp_path / "shop.py").write_text(ENVIRONMENT)
    export_mcp(REGISTRY, tmp_path / "out", call="shop:call")
    entry = json.loads((tmp_path / "out/mcp.json").read_text())["mcpServers"]["memory-tools"]
    arguments = [*entry["args"], "--seconds", "1"]
    server = mcp.StdioServerParameters(
        command=entry["command"], args=arguments, env={"PYTHONPATH": str(tmp_path)}, cwd=tmp_path
    )

    async def talk():
        async with mcp.Client(server) as client:
            await conversation(client)
            with pytest.raises(mcp.MCPError, match="no tool 'gone'"):
                await client.call_tool("gone", {})

    asyncio.run(talk())


def test_in_the_same_process():
    mcp = pytest.importorskip("mcp")

    def call(name, arguments):
        if arguments["to"] == "nobody":
            raise LookupError("no such person")
        return {"sent": arguments}

    async def talk():
        with Sandbox(Limits(seconds=5)) as sandbox:
            async with mcp.Client(build_server(REGISTRY, sandbox, call)) as client:
                await conversation(client)

    asyncio.run(talk())


def test_the_environment_is_found_or_missed_in_words(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_here.py").write_text(
        "NUMBER = 1\nclass Shop:\n    def call(name, arguments): return 5\n"
    )
    assert environment("shop_here:Shop.call", REGISTRY)("x", {}) == 5
    assert environment(None, ToolRegistry((SHOUT_TOOL,))) is None
    with pytest.raises(CannotDo, match=r"the tools call mail\.send, and nothing answers"):
        environment(None, REGISTRY)
    for target, words in (
        ("shop_here", "no module:function"),
        ("no_such_module:call", "cannot be imported"),
        ("shop_here:NUMBER", "has no function 'NUMBER'"),
        ("shop_here:gone", "has no function 'gone'"),
    ):
        with pytest.raises(BadInput, match=words):
            environment(target, REGISTRY)
    (tmp_path / "tools.json").write_bytes(REGISTRY.to_bytes())
    assert main([str(tmp_path / "tools.json")]) == 2
    assert "nothing answers" in capsys.readouterr().err
    assert main([str(tmp_path / "gone.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    with Sandbox() as sandbox, pytest.raises(MissingExtra, match=r"pip install .*'mcp>="):
        build_server(REGISTRY, sandbox)
