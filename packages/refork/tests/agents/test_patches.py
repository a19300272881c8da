"""Tools of packages that nobody edits: patched where their calls go through, from within and from outside."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from agents import provider as fake
from refork import agents
from refork.agents import patches
from refork.agents.endpoint import listening
from refork.agents.program_side import VARIABLE
from refork.agents.replay import FromTape
from refork.agents.tape import Tape
from refork.agents.tool_calls import ToolCalls, tool_events
from refork.tree import Tree

from .test_tools import END, Nobody, look

#: LangChain's own tool, called as LangGraph calls it. It leaves a file where it runs.
GRAPH = """
import json, os, sys, urllib.request as web
from pathlib import Path
from langchain_core.tools import tool
import sitecustomize

@tool
def look(at: str) -> str:
    "Look somewhere."
    Path("ran").open("a").write(at)
    return "you see a " + at

body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
request = web.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
request.add_header("content-type", "application/json")
(call,) = json.load(web.urlopen(request))["choices"][0]["message"]["tool_calls"]
asked = {"name": "look", "args": json.loads(call["function"]["arguments"])}
said = look.invoke({**asked, "id": call["id"], "type": "tool_call"})
print(said.content, said.tool_call_id, sitecustomize.OWN)
"""


def test_a_program_that_nobody_edits_shows_its_tools_and_keeps_its_own_beginning(tmp_path, monkeypatch):
    pytest.importorskip("langchain_core")
    (tmp_path / "graph.py").write_text(GRAPH)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("OWN = 'own'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "own"))
    with Tree.open(tmp_path / "tape.db") as tree, fake.serving([look("door"), END]) as (_, to):
        command = [sys.executable, "graph.py"]
        run = agents.record(
            tree, command, to=to, folder=tmp_path, quiet=True, settings=agents.RecordSettings(patch=True)
        )
        assert (run.patched, run.output) == (True, "you see a door call_1 own\n")
        (event,) = tool_events(tree, run)
        assert (event.name, event.by, event.arguments) == ("look", "langchain", {"at": "door"})
        told = agents.replay(tree, agents.find_run(tree, None), quiet=True)
    assert (told.identical, told.output_equal, told.tools_given) == (True, True, 1)
    assert (tmp_path / "ran").read_text() == "door"  # once


@pytest.fixture
def patched(monkeypatch, tmp_path):
    """Patched in this process while a function runs twice: recorded, and from the tape."""
    base = pytest.importorskip("langchain_core.tools.base").BaseTool
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name in ("run", "arun"):
        monkeypatch.setattr(base, name, getattr(base, name))

    def both(program):
        with Tree.open(tmp_path / "tape.db") as tree:
            tape = Tape(tree, ["program"], tmp_path)
            found = []
            source = FromTape([])
            for make in (
                lambda: ToolCalls(tape),
                lambda: ToolCalls(None, tool_events(tree, tape.run), source=source),
            ):
                with listening(Nobody(), make()) as (address, _):
                    monkeypatch.setenv(VARIABLE, f"{address}/tools")
                    agents.patch()
                    agents.patch()  # once is enough, and twice does no harm
                    found.append(program())
            return *found, tool_events(tree, tape.run)

    return both


def test_a_command_of_a_tool_to_its_graph_is_kept(patched):
    pytest.importorskip("langgraph.types")
    from typing import Annotated

    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import InjectedToolCallId, tool
    from langgraph.types import Command, Send

    ran = []

    def booked(to, call):
        """Book."""
        ran.append(to)
        if to == "odd":
            return Command(goto=[Send("a node", {})])
        told = [ToolMessage("booked", tool_call_id=call), HumanMessage("go on")]
        return Command(update={"messages": told, "seat": 3}, goto="pay", graph=Command.PARENT)

    booked.__annotations__ = {"to": str, "call": Annotated[str, InjectedToolCallId], "return": Command}
    book = tool(booked)

    def program(to="Rome"):
        return book.invoke(
            {"name": "book", "args": {"to": to}, "id": f"call_{len(ran)}", "type": "tool_call"}
        )

    first, second, (event,) = patched(program)
    assert ran == ["Rome"]
    assert (second.goto, second.graph, second.update["seat"]) == ("pay", "__parent__", 3)
    answer, more = second.update["messages"]
    # The call of the second run has an id of its own.
    assert (answer.content, answer.tool_call_id, more) == ("booked", "call_1", first.update["messages"][1])
    assert event.replayable
    _, _, events = patched(lambda: None if ran.count("odd") else program("odd"))
    assert not events[-1].replayable
    assert "JSON" in events[-1].result["unkept"]


def test_langchain_gives_messages_texts_and_errors_in_both_ways(patched):
    from langchain_core.tools import StructuredTool, ToolException

    ran = []

    def measure(at: str, often: int = 1) -> dict:
        """Measure."""
        ran.append(at)
        if at == "wall":
            raise ToolException("no wall")
        return {"at": at, "sizes": [1.5] * often}

    async def wait(at: str) -> str:
        """Wait."""
        ran.append(at)
        return "waited"

    tools = StructuredTool.from_function(measure), StructuredTool.from_function(coroutine=wait, name="wait")

    def program():
        plain = tools[0].invoke({"at": "door"})
        call = {"name": "measure", "args": {"at": "roof"}, "id": "call_7", "type": "tool_call"}
        message = tools[0].invoke(call)
        with pytest.raises(ToolException, match="no wall"):
            tools[0].invoke({"at": "wall"})
        later = asyncio.run(
            tools[1].ainvoke({"name": "wait", "args": {"at": "x"}, "id": "c", "type": "tool_call"})
        )
        return plain, message, later

    first, second, events = patched(program)
    assert first == second
    assert first[0] == {"at": "door", "sizes": [1.5]}
    assert (second[1].tool_call_id, second[1].name, second[2].content) == ("call_7", "measure", "waited")
    assert ran == ["door", "roof", "wall", "x"]
    assert [event.name for event in events] == ["measure", "measure", "measure", "wait"]


def test_a_package_whose_place_is_gone_is_said(monkeypatch, capsys):
    empty = types.ModuleType("smolagents.tools")
    monkeypatch.setitem(sys.modules, "smolagents.tools", empty)
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9/tools")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr(patches, "PATCHES", {"smolagents.tools": patches.PATCHES["smolagents.tools"]})
    monkeypatch.setattr(patches, "_TOLD", set())
    assert agents.patch() == ("smolagents",)
    assert "tools of this smolagents are not on the tape, their place is gone" in capsys.readouterr().err
    monkeypatch.delenv(VARIABLE)
    agents.patch()
    assert capsys.readouterr().err == ""
