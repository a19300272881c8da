"""The tools of a small database as an MCP server: ``python -m refork_worlds.tools.server shop``.

Its rows are those of a task of the tools world; every server process begins with them anew. With
``tools:mcp?command=...`` this is an MCP world that needs nothing else.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from refork.errors import MissingExtra
from refork.worlds.base import Split
from refork_worlds.tools.schema import DATABASES, Database, Rows
from refork_worlds.tools.service import Service
from refork_worlds.tools.store import Store
from refork_worlds.tools.world import ToolsWorld, goal_of

if TYPE_CHECKING:
    from mcp.server import Server


def server(database: Database, rows: Rows) -> Server[Any]:
    """An MCP server whose tools are those of a database with these rows.

    Raises:
        MissingExtra: the package mcp is not installed.
    """
    try:
        import mcp_types as types
        from mcp.server import Server
    except ImportError as error:
        raise MissingExtra("mcp", "mcp") from error
    service = Service(Store(database, rows))

    async def listed(_: Any, __: Any) -> types.ListToolsResult:
        found = [
            types.Tool(name=tool.name, description=tool.doc, input_schema=tool.parameters)
            for tool in service.tools.values()
        ]
        return types.ListToolsResult(tools=found)

    async def called(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        answer = service.call(asked.name, asked.arguments or {})
        text = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[text], is_error=not answer.ok)

    return Server(f"refork-{database.name}", version="1", on_list_tools=listed, on_call_tool=called)


def main(arguments: list[str] | None = None) -> None:
    """Serve on standard input and output until the client leaves."""
    import anyio
    from mcp.server.stdio import stdio_server

    parser = argparse.ArgumentParser(description="The tools of a small database over MCP.")
    parser.add_argument("database", choices=sorted(DATABASES))
    parser.add_argument("--split", choices=["train", "held-out"], default="train")
    parser.add_argument("--task", type=int, default=0, help="whose rows it begins with")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    split: Split = "train" if given.split == "train" else "held-out"
    task = ToolsWorld((given.database,)).tasks(split, given.task + 1, given.seed)[given.task]
    goal = goal_of(task)
    made = server(goal.database, goal.rows)

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    anyio.run(serve)


if __name__ == "__main__":
    main()
