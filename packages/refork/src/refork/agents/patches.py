"""Tools of known packages, shown to the run's endpoint without a change to the program.

Each package has one place through which calls of its tools go. It is wrapped when the package is imported, or
at once where it is. The standard library alone, as in :mod:`refork.agents.program_side`.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from refork.agents.on_import import when_imported
from refork.agents.program_side import VARIABLE, athrough, intercepted, through
from refork.agents.step_names import step_patches

#: Modules of which it was said that their place is gone.
_TOLD: set[str] = set()


def patch() -> tuple[str, ...]:
    """Let the tools of known packages be on the tape, whether they are imported already or later.

    These are langchain-core (and so LangGraph), openai-agents, pydantic-ai, smolagents and the Python client
    of MCP. Steps of packages that have names for them are told by their names, too. Without a run of Refork
    around the program it does nothing. Gives the packages that it knows.
    """
    if os.environ.get(VARIABLE):
        for name in _PLACES:
            when_imported(name, _apply)
    return tuple(package for package, _ in PATCHES.values())


def _apply(module: ModuleType) -> None:
    package, wrap = _PLACES[module.__name__]
    try:
        wrap(module)
    except (AttributeError, ImportError) as error:
        if module.__name__ not in _TOLD:
            _TOLD.add(module.__name__)
            sys.stderr.write(
                f"refork: tools of this {package} are not on the tape, their place is gone: {error}\n"
            )


def _swap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put a wrapper in the place of a function, once."""
    old = inspect.getattr_static(owner, name)
    if not getattr(old, "of_refork", False):
        made: Any = functools.wraps(old)(make(old))
        made.of_refork = True
        setattr(owner, name, made)


# -- the places -----------------------------------------------------------------------------------


def _langchain(module: Any) -> None:
    """``BaseTool.run`` and ``arun``: what ``invoke`` and LangGraph's ToolNode call."""

    def call_of(tool: Any, given: Any, more: Any) -> dict[str, Any]:
        call = more.get("tool_call_id")
        told = tool._filter_injected_args(given) if isinstance(given, dict) else given
        keep, give = _as_message(module.ToolMessage, call) if call is not None else (None, None)
        return {"name": tool.name, "arguments": told, "by": "langchain", "keep": keep, "give": give}

    def run(old: Any) -> Any:
        def runs(tool: Any, tool_input: Any, *args: Any, **more: Any) -> Any:
            call = functools.partial(old, tool, tool_input, *args, **more)
            return through(run=call, **call_of(tool, tool_input, more)) if intercepted() else call()

        return runs

    def arun(old: Any) -> Any:
        async def waits(tool: Any, tool_input: Any, *args: Any, **more: Any) -> Any:
            call = functools.partial(old, tool, tool_input, *args, **more)
            if not intercepted():
                return await call()
            return await athrough(run=call, **call_of(tool, tool_input, more))

        return waits

    _swap(module.BaseTool, "run", run)
    _swap(module.BaseTool, "arun", arun)


def _as_message(kind: Any, call: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How a message of a tool, or a command to its graph, is kept, and made again for the call with an id."""

    def keep(value: Any) -> Any:
        command = getattr(sys.modules.get("langgraph.types"), "Command", None)
        if command is not None and isinstance(value, command):
            if value.resume is not None:
                raise ValueError("a command that resumes cannot be kept")
            return {"command": {name: _as_json(getattr(value, name)) for name in ("graph", "update", "goto")}}
        if not isinstance(value, kind):
            raise ValueError(f"a {type(value).__name__} is no message")
        return {name: getattr(value, name) for name in ("content", "artifact", "status", "name")}

    def give(kept: Any) -> Any:
        if "command" not in kept:
            return kind(tool_call_id=call, **kept)
        from langgraph.types import Command

        return Command(**_from_json(kept["command"], call))

    return keep, give


def _as_json(value: Any) -> Any:
    """What a command holds as JSON: messages of LangChain are named as such, and tuples are lists."""
    from langchain_core.messages import BaseMessage, message_to_dict

    if isinstance(value, BaseMessage):
        return {"message of langchain": message_to_dict(value)}
    if isinstance(value, dict):
        return {key: _as_json(one) for key, one in value.items()}
    return [_as_json(one) for one in value] if isinstance(value, (list, tuple)) else value


def _from_json(value: Any, call: str) -> Any:
    """The reverse of it; a message that answers a call answers this one."""
    from langchain_core.messages import ToolMessage, messages_from_dict

    if isinstance(value, dict) and value.keys() == {"message of langchain"}:
        (message,) = messages_from_dict([value["message of langchain"]])
        if isinstance(message, ToolMessage):
            message.tool_call_id = call
        return message
    if isinstance(value, dict):
        return {key: _from_json(one, call) for key, one in value.items()}
    return [_from_json(one, call) for one in value] if isinstance(value, list) else value


def _openai_agents(module: Any) -> None:
    """What the runner calls every function tool through. An agent as a tool asks models, and runs."""
    name = "_invoke_function_tool_with_metadata"
    result = module._FunctionToolInvocationResult

    def make(old: Any) -> Any:
        async def waits(*, function_tool: Any, context: Any, arguments: str) -> Any:
            run = functools.partial(old, function_tool=function_tool, context=context, arguments=arguments)
            if not intercepted() or getattr(function_tool, "_is_agent_tool", False):
                return await run()
            return await athrough(
                function_tool.name, _read(arguments), run, by="openai-agents",
                keep=lambda got: {"output": got.output, "made": got.is_sdk_generated_error},
                give=lambda kept: result(kept["output"], is_sdk_generated_error=kept["made"]),
            )  # fmt: skip

        return waits

    _swap(module, name, make)
    # Where the runner was imported before us, it holds the function by a name of its own.
    runner = sys.modules.get("agents.run_internal.tool_execution")
    if runner is not None and hasattr(runner, name):
        setattr(runner, name, getattr(module, name))


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _pydantic_ai(module: Any) -> None:
    """``FunctionToolset.call_tool``: tools of an agent, and of toolsets made of functions."""

    def make(old: Any) -> Any:
        async def waits(self: Any, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
            if not intercepted():
                return await old(self, name, tool_args, ctx, tool)
            return await athrough(
                name, tool_args, lambda: old(self, name, tool_args, ctx, tool), by="pydantic-ai"
            )

        return waits

    _swap(module.FunctionToolset, "call_tool", make)


def _smolagents(module: Any) -> None:
    """``Tool.__call__``: what agents of both kinds call."""

    def make(old: Any) -> Any:
        def runs(tool: Any, *args: Any, sanitize_inputs_outputs: bool = False, **named: Any) -> Any:
            clean = sanitize_inputs_outputs
            run = functools.partial(old, tool, *args, sanitize_inputs_outputs=clean, **named)
            if not intercepted():
                return run()
            # One dictionary is the named arguments, as the tool itself reads it.
            one = len(args) == 1 and not named and isinstance(args[0], dict)
            told = args[0] if one else {**dict(zip(tool.inputs, args, strict=False)), **named}
            return through(
                tool.name, told, run, by="smolagents",
                keep=lambda value: str(value) if isinstance(value, str) else value,
                give=lambda kept: module.handle_agent_output_types(kept, tool.output_type) if clean else kept,
            )  # fmt: skip

        return runs

    _swap(module.Tool, "__call__", make)


def _mcp(module: Any) -> None:
    """``ClientSession.call_tool`` of MCP's Python package."""
    from mcp.types import CallToolResult

    def keep(value: Any) -> Any:
        if not isinstance(value, CallToolResult):
            raise ValueError(f"a {type(value).__name__} is no result yet")
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)

    def make(old: Any) -> Any:
        async def waits(self: Any, name: str, arguments: Any = None, *args: Any, **more: Any) -> Any:
            if not intercepted():
                return await old(self, name, arguments, *args, **more)
            return await athrough(
                name, arguments or {}, lambda: old(self, name, arguments, *args, **more),
                by="mcp-client", keep=keep, give=CallToolResult.model_validate,
            )  # fmt: skip

        return waits

    _swap(module.ClientSession, "call_tool", make)


#: By the module that holds it: the package, and what wraps its place.
PATCHES: Final[dict[str, tuple[str, Callable[[Any], None]]]] = {
    "langchain_core.tools.base": ("langchain-core", _langchain),
    "agents.tool": ("openai-agents", _openai_agents),
    "pydantic_ai.toolsets.function": ("pydantic-ai", _pydantic_ai),
    "smolagents.tools": ("smolagents", _smolagents),
    "mcp.client.session": ("mcp", _mcp),
}
#: Those, and places by which steps have names.
_PLACES: Final = {**step_patches(_swap), **PATCHES}
