"""An MCP server of admitted tools, over standard input and output; each call runs in the sandbox."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refork.errors import BadInput, CannotDo, MissingExtra, UserError
from refork.sandbox import Call, Limits, Sandbox, SandboxResult
from refork.schemas import mismatch
from refork.visible import visible
from refork_methods.memory.export.package import write_files
from refork_methods.memory.registry import ToolRegistry, invoke
from refork_methods.memory.runtime import variable
from refork_methods.memory.secrets import names_in, refuse_secrets

if TYPE_CHECKING:
    import mcp_types
    from mcp.server import Server


# Tools as a folder that ``python -m refork_methods.memory.export.mcp_server`` serves.

TOOLS = "tools.json"
MODULE = "refork_methods.memory.export.mcp_server"


def export_mcp(
    registry: ToolRegistry,
    folder: str | Path,
    *,
    call: str | None = None,
    name: str = "memory-tools",
    allow_secrets: bool = False,
) -> list[Path]:
    """Write what an MCP server of a registry's tools needs, and the entry for a client's settings.

    ``call`` is "module:function": the function of (name, arguments) that answers for the environment.

    Raises:
        BadInput: no tools, or a folder that is not empty.
        CannotDo: something looks like a secret, unless ``allow_secrets``.
    """
    if not registry.tools:
        raise BadInput("there is no tool to export")
    if not allow_secrets:
        refuse_secrets(registry.tools)
    folder = Path(folder)
    arguments = ["-m", MODULE, str(folder.resolve() / TOOLS)]
    arguments += ["--call", call or "MODULE:FUNCTION"] if environment_needs(registry) else []
    entry = {"mcpServers": {name: {"command": sys.executable, "args": arguments}}}
    files = {
        TOOLS: registry.to_bytes().decode() + "\n",
        "mcp.json": json.dumps(entry, indent=1) + "\n",
        "README.md": _readme(registry, name, call),
    }
    return write_files(folder, files)


def environment_needs(registry: ToolRegistry) -> list[str]:
    """The environment functions that the tools call."""
    return sorted({need for tool in registry.tools for need in tool.functions})


def _readme(registry: ToolRegistry, name: str, call: str | None) -> str:
    needs = environment_needs(registry)
    lines = [
        f"# {name}",
        "",
        f"An MCP server of {len(registry.tools)} tools: {', '.join(registry.names)}.",
        "",
    ]
    lines += ["Every call runs in Refork's sandbox. `mcp.json` is the entry for a client's settings.", ""]
    if needs:
        target = f"`{call}`" if call else "the function you name after `--call` (module:function)"
        lines += [f"The tools ask {target} for: {', '.join(needs)}.", ""]
        lines += [
            "It is called as `function(name, arguments)`; its module must be importable: set PYTHONPATH.",
            "",
        ]
    named = sorted({variable(name) for tool in registry.tools for name in names_in(tool)})
    if named:
        lines += [f"Secrets are taken from the server's environment: {', '.join(named)}.", ""]
    return "\n".join(lines)


# An MCP server of admitted tools, over standard input and output; each call runs in the sandbox.
#
# python -m refork_methods.memory.export.mcp_server tools.json --call module:function


def environment(target: str | None, registry: ToolRegistry) -> Call | None:
    """The function that a "module:function" names; None where no tool needs one.

    Raises:
        CannotDo: tools need one and none is named. BadInput: it cannot be imported, or is no function.
    """
    needs = environment_needs(registry)
    if target is None:
        if needs:
            told = ", ".join(needs[:3]) + (", ..." if len(needs) > 3 else "")
            raise CannotDo(
                f"the tools call {told}, and nothing answers for them",
                hint="--call module:function names the function of (name, arguments) that does",
            )
        return None
    module, colon, function = target.partition(":")
    if not colon or not module or not function:
        raise BadInput(f"{target!r} is no module:function", where="--call")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise BadInput(
            f"{module!r} cannot be imported: {error}", where="--call", hint="set PYTHONPATH"
        ) from error
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise BadInput(f"{module!r} has no function {function!r}", where="--call")
    answer: Call = found
    return answer


def build_server(
    registry: ToolRegistry, sandbox: Sandbox, call: Call | None = None, *, name: str = "memory-tools"
) -> Server[Any]:
    """The server: lists the registry's tools and runs each call that fits its schema in the sandbox.

    Raises:
        MissingExtra: the ``mcp`` package is not installed.
    """
    try:
        import anyio.to_thread
        import mcp_types as types
        from mcp.server import Server
        from mcp.shared.exceptions import MCPError
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error

    async def listed(context: Any, params: Any) -> types.ListToolsResult:
        tools = [
            types.Tool(name=tool.name, description=tool.doc, input_schema=_schema(tool.parameters))
            for tool in registry.tools
        ]
        return types.ListToolsResult(tools=tools)

    async def called(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in registry.names:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")
        given = params.arguments or {}

        def run() -> types.CallToolResult:
            wrong = mismatch(_schema(registry.tool(params.name).parameters), given)
            if wrong is not None:
                return _failed(f"the arguments do not fit the tool's schema: {wrong}")
            return _tool_result(invoke(registry, sandbox, params.name, given, call))

        # A call waits for its sandbox: in a thread of its own the server goes on answering.
        return await anyio.to_thread.run_sync(run)

    return Server(name, on_list_tools=listed, on_call_tool=called)


def _schema(parameters: dict[str, Any]) -> dict[str, Any]:
    """What a call may hold: a tool takes the keywords of its parameters and no others."""
    return {"type": "object", "properties": {}, "additionalProperties": False, **parameters}


def _failed(text: str) -> mcp_types.CallToolResult:
    import mcp_types as types

    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _tool_result(result: SandboxResult) -> mcp_types.CallToolResult:
    import mcp_types as types

    if not result.ok:
        return _failed(f"{result.kind}: {result.error}")
    content: list[types.ContentBlock] = [types.TextContent(text=json.dumps(result.value, ensure_ascii=False))]
    # Older protocol versions take objects only.
    return types.CallToolResult(content=content, structured_content={"result": result.value})


async def serve(server: Server[Any]) -> None:
    """Serve standard input and output until the client closes."""
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the tools of a file; 2 where something is missing, with the reason on standard error."""
    parser = argparse.ArgumentParser(
        description="Serve admitted tools over MCP; each call runs in a sandbox."
    )
    parser.add_argument("tools", type=Path, help="tools.json of an export")
    parser.add_argument("--call", help="module:function that answers for the environment")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="wall time of a call")
    parser.add_argument("--unconfined", action="store_true", help="run where no sandbox holds the tools back")
    given = parser.parse_args(arguments)
    try:
        try:
            registry = ToolRegistry.from_bytes(given.tools.read_bytes())
        except OSError as error:
            raise BadInput(f"{given.tools} cannot be read: {error.strerror}") from error
        call = environment(given.call, registry)
        with Sandbox(Limits(seconds=given.seconds), unconfined=given.unconfined) as sandbox:
            server = build_server(registry, sandbox, call)
            sandbox.layers  # noqa: B018  a sandbox that cannot run says so before the first call
            import anyio

            anyio.run(serve, server)
    except UserError as error:
        print(visible(str(error)), file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
