"""A simulated world as an MCP server: its tools are the task's, its answers the simulator's.

One episode per MCP session: over streamable HTTP that of the session id, over standard input and output (or
in memory) that of the one client. At ``.../sessions/ID/mcp`` it is the episode of that id, whatever protocol
version the client speaks; version 2026-07-28 has no sessions of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final

from refork.errors import BadInput, MissingExtra, UserError
from refork.schemas import mismatch
from refork.serve.refusal import Refused
from refork.types import Json
from refork.worlds.open import task_to_json
from refork_methods.simulate.serve.sessions import Session, Worlds
from refork_methods.simulate.serve.tools import ActionTool, tools_for

try:
    import anyio.to_thread
    import mcp_types as types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

if TYPE_CHECKING:
    from starlette.requests import Request

TASK, TRANSCRIPT = "world://task", "world://transcript"
_RESET: Json = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "description": "id of a task; none: the same task again"},
        "seed": {"type": "integer"},
        "session": {"type": "string", "description": "go on in this episode, as fork gave it"},
    },
    "additionalProperties": False,
}
_FORK: Json = {
    "type": "object",
    "properties": {"draw": {"type": "integer", "minimum": 0, "description": "other chance"}},
    "additionalProperties": False,
}


@final
class WorldTools:
    """The handlers of one world's MCP server: which episode a request means, and what it gets."""

    def __init__(
        self, worlds: Worlds, name: str, *, task: str | Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        self._worlds, self._name = worlds, name
        self._task, self._seed = task, seed
        self._episodes: dict[str, str] = {}

    # -- episodes -----------------------------------------------------------------------------

    def _place(self, context: Any) -> tuple[str, str | None, str | None]:
        """What names a client's episode, the id that its address fixes, and whose key it is."""
        request: Request | None = context.request
        if request is None:
            return "", None, None
        holder = getattr(request.state, "holder", None)
        fixed = request.path_params.get("session")
        return request.headers.get("mcp-session-id", ""), fixed, holder

    def _session(self, context: Any) -> Session:
        link, fixed, holder = self._place(context)
        known = fixed or self._episodes.get(link)
        if known is None:
            session = self._worlds.reset(self._name, holder, self._task, self._seed)
            self._link(link, session)
            return session
        try:
            return self._worlds.find(self._name, known, holder)
        except Refused:
            self._episodes.pop(link, None)  # told once; the client's next call begins another
            raise

    def _link(self, link: str, session: Session) -> None:
        self._episodes[link] = session.id
        most = 2 * self._worlds.settings.world_sessions
        while len(self._episodes) > most:  # the links of clients that never came back
            self._episodes.pop(next(iter(self._episodes)))

    def ended(self, link: str) -> None:
        """An MCP session ended: so does its episode."""
        known = self._episodes.pop(link, None)
        if known is not None:
            self._worlds.drop(known)

    def _tools(self, session: Session) -> tuple[dict[str, ActionTool], str, str]:
        """The task's tools by name, and how ours are called beside them."""
        base = self._worlds.world(self._name).world.base
        mine = {tool.name: tool for tool in tools_for(base, session.task, session.episode.brief)}
        reset, fork = ("world_" * (name in mine) + name for name in ("reset", "fork"))
        return mine, reset, fork

    # -- handlers -----------------------------------------------------------------------------

    async def listed(self, context: Any, params: Any) -> types.ListToolsResult:
        """The task's tools, and those that begin and fork episodes."""
        session = _told(lambda: self._session(context))
        mine, reset, fork = self._tools(session)
        tools = [
            types.Tool(
                name=one.name, description=one.description, input_schema=one.schema, _meta={"simulated": True}
            )
            for one in mine.values()
        ]
        tools.append(types.Tool(name=reset, description="Begin again, or another task.", input_schema=_RESET))
        said = "Another episode in the same state; reset with its session goes on there."
        tools.append(types.Tool(name=fork, description=said, input_schema=_FORK))
        return types.ListToolsResult(tools=tools)

    async def called(self, context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        """One action, answered by the simulator."""
        session = _told(lambda: self._session(context))
        mine, reset, fork = self._tools(session)
        given = params.arguments or {}
        schemas = {name: tool.schema for name, tool in mine.items()} | {reset: _RESET, fork: _FORK}
        if params.name not in schemas:
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:100]!r}")
        try:
            # A task that a client sent brings schemas of his.
            wrong = await anyio.to_thread.run_sync(mismatch, schemas[params.name], given)
            if wrong is not None:
                raise BadInput(f"the arguments do not fit the tool's schema: {wrong}")
            if params.name == reset:
                return await self._reset(context, session, given)
            if params.name == fork:
                twin = self._worlds.fork(session, _whole(given, "draw"))
                return _result(f"session {twin.id}", self._worlds.about(twin))
            told = await self._worlds.step(session, mine[params.name].action(given))
        except UserError as error:
            return _result(error.what, {"simulated": True, "error": error.what}, failed=True)
        return _result(told["observation"], told)

    async def _reset(self, context: Any, session: Session, given: Mapping[str, Any]) -> types.CallToolResult:
        link, fixed, holder = self._place(context)
        if given.get("session") is not None:
            chosen = self._worlds.find(self._name, given["session"], holder)
        else:
            chosen = await self._worlds.again(session, given.get("task"), _whole(given, "seed"))
        if fixed is None:
            self._link(link, chosen)
        return _result(chosen.task.prompt, self._worlds.about(chosen))

    async def resources(self, context: Any, params: Any) -> types.ListResourcesResult:
        """The task, and all that was said."""
        kinds = ((TASK, "task", "What is to be done."), (TRANSCRIPT, "transcript", "All turns so far."))
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=uri, name=name, description=said, mime_type="application/json")
                for uri, name, said in kinds
            ]
        )

    async def read(self, context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """One of the two."""
        session = _told(lambda: self._session(context))
        tell = {TASK: self._worlds.about, TRANSCRIPT: self._worlds.transcript}.get(str(params.uri))
        if tell is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {str(params.uri)[:100]!r}")
        text = json.dumps(tell(session), ensure_ascii=False)
        body = types.TextResourceContents(uri=str(params.uri), text=text, mime_type="application/json")
        return types.ReadResourceResult(contents=[body])


def _whole(given: Mapping[str, Any], name: str) -> int | None:
    """A whole number among a tool's arguments, which may be spelled 1.0; None where it is not given."""
    return int(given[name]) if name in given else None


def _told(find: Any) -> Session:
    """The session, or why there is none as MCP says it."""
    try:
        found: Session = find()
    except UserError as error:
        code = types.INVALID_REQUEST if isinstance(error, Refused) else types.INVALID_PARAMS
        raise MCPError(code, error.what) from error
    return found


def _result(text: str, told: Json, *, failed: bool = False) -> types.CallToolResult:
    meta: Json = {key: told[key] for key in ("simulated", "simulator", "session") if key in told}
    return types.CallToolResult(
        content=[types.TextContent(text=text)], structured_content=told, is_error=failed, _meta=meta
    )


def mcp_server(tools: WorldTools, name: str, prompt: str | None = None) -> Server[Any]:
    """The MCP server of one world. In memory and over standard input it serves one client."""
    said = "Everything here is simulated by a language model; nothing real is read or changed."
    return Server(
        f"refork-world-{name}",
        instructions=said if prompt is None else f"{said}\n\n{prompt}",
        on_list_tools=tools.listed,
        on_call_tool=tools.called,
        on_list_resources=tools.resources,
        on_read_resource=tools.read,
    )


async def serve_stdio(worlds: Worlds, name: str, *, task: str | None = None, seed: int = 0) -> None:
    """Serve one world over standard input and output until the client closes; BadInput for no such task."""
    from mcp.server.stdio import stdio_server

    served = worlds.world(name)
    chosen = served.task(task, seed)
    tools = WorldTools(worlds, name, task=task_to_json(chosen), seed=seed)
    server = mcp_server(tools, name, chosen.prompt)
    try:
        async with stdio_server() as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())
    finally:
        await worlds.stop()
