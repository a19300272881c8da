"""A simulated world as an MCP server: its tools are the task's, its answers the simulator's."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

from refork.calls import call_text
from refork.errors import BadInput, MissingExtra, UserError
from refork.schemas import mismatch
from refork.serve.refusal import Refused
from refork.types import Json
from refork.worlds.base import Task
from refork.worlds.environment import Brief, DomainName, Environment
from refork_methods.simulate.serve.sessions import Session, Worlds

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from refork.serve.settings import ServerSettings


# The tools of a simulated task: what may be done in it, as function schemas, and calls as actions.

_SIGNATURE = re.compile(r"^\s*([A-Za-z_][\w.-]*)\(([^()]*)\)\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"\[\s*([A-Za-z_]\w*)\s*\]|([A-Za-z_]\w*)")
_COMMAND: dict[str, tuple[str, str]] = {
    "terminal": ("shell", "command"),
    "swe": ("shell", "command"),
}


@runtime_checkable
class ListsTools(Protocol):
    """A world that says its tasks' tools itself."""

    def tool_schemas(self, task: Task) -> Sequence[Json]:
        """Each with ``name``, ``description`` and ``parameters`` (a JSON schema)."""
        ...


@final
@dataclass(frozen=True, slots=True)
class ActionTool:
    """A tool, and how its call is written as an action: canonical JSON, or the text of its ``argument``."""

    name: str
    description: str
    schema: Json
    argument: str | None = None

    def action(self, arguments: Mapping[str, Any]) -> str:
        """The call as the world's action. Raises BadInput where the one argument is missing or no text."""
        if self.argument is not None:
            text = arguments.get(self.argument)
            if not isinstance(text, str):
                raise BadInput(f"{self.name} needs its argument {self.argument}, a text", where=self.name)
            return text
        return call_text(self.name, arguments)


def tools_for(world: Environment, task: Task, brief: Brief) -> list[ActionTool]:
    """The tools of a task: those the world lists, or its action space spells as ``name(argument [option])``.

    Any other action space is one tool that takes the action as text.
    """
    listed = _listed(world, task)
    if not listed:
        listed = [_spelled(*found) for found in _SIGNATURE.findall(brief.action_space)]
    if listed:
        return [
            ActionTool(str(one["name"]), str(one.get("description", "")), _object(one.get("parameters")))
            for one in listed
        ]
    return [_one_tool(world.domain, brief.action_space)]


def _listed(world: Environment, task: Task) -> list[Json]:
    if isinstance(world, ListsTools):
        return list(world.tool_schemas(task))
    given = task.data.get("tools")
    functions = [one.get("function", one) for one in given if isinstance(one, dict)] if given else []
    return [one for one in functions if isinstance(one.get("name"), str)]


def _object(schema: Any) -> Json:
    return {"type": "object", "properties": {}, **(schema if isinstance(schema, dict) else {})}


def _spelled(name: str, inside: str) -> Json:
    """A signature as a schema; the types of arguments are not known."""
    properties: Json = {}
    required: list[str] = []
    for optional, needed in _ARGUMENT.findall(inside):
        properties[optional or needed] = {}
        required += [needed] if needed else []
    return {
        "name": name,
        "description": f"{name}({inside})",
        "parameters": {"type": "object", "properties": properties, "required": required},
    }


def _one_tool(domain: DomainName, space: str) -> ActionTool:
    name, argument = _COMMAND.get(domain, ("act", "action"))
    schema: Json = {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
    }
    return ActionTool(name, space or f"One {argument}, as text.", schema, argument)


# A simulated world as an MCP server: its tools are the task's, its answers the simulator's.
#
# One episode per MCP session: over streamable HTTP that of the session id, in memory that of the one client.

try:
    import anyio.to_thread
    import mcp_types as types
    from mcp.server import Server
    from mcp.shared.exceptions import MCPError
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

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

    def __init__(self, worlds: Worlds, name: str) -> None:
        self._worlds, self._name = worlds, name
        self._episodes: dict[str, str] = {}

    # -- episodes -----------------------------------------------------------------------------

    def _address(self, context: Any) -> tuple[str, str | None]:
        """What names a client's episode, and whose key it is."""
        request: Request | None = context.request
        if request is None:
            return "", None
        return request.headers.get("mcp-session-id", ""), getattr(request.state, "holder", None)

    def _session(self, context: Any) -> Session:
        link, holder = self._address(context)
        known = self._episodes.get(link)
        if known is None:
            session = self._worlds.reset(self._name, holder)
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
        # A world's own tool keeps its name.
        reset, fork = ("world_" * (name in mine) + name for name in ("reset", "fork"))
        return mine, reset, fork

    # -- handlers -----------------------------------------------------------------------------

    async def listed(self, context: Any, params: Any) -> types.ListToolsResult:
        """The task's tools, and those that begin and fork episodes."""
        session = _session_of(lambda: self._session(context))
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
        session = _session_of(lambda: self._session(context))
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
        link, holder = self._address(context)
        if given.get("session") is not None:
            chosen = self._worlds.find(self._name, given["session"], holder)
        else:
            chosen = await self._worlds.again(session, given.get("task"), _whole(given, "seed"))
        self._link(link, chosen)
        return _result(chosen.task.prompt, self._worlds.about(chosen))


def _whole(given: Mapping[str, Any], name: str) -> int | None:
    """A whole number among a tool's arguments, which may be spelled 1.0; None where it is not given."""
    return int(given[name]) if name in given else None


def _session_of(find: Any) -> Session:
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


def mcp_server(tools: WorldTools, name: str) -> Server[Any]:
    """The MCP server of one world. In memory it serves one client."""
    return Server(
        f"refork-world-{name}",
        instructions="Everything here is simulated by a language model; nothing real is read or changed.",
        on_list_tools=tools.listed,
        on_call_tool=tools.called,
    )


# MCP over streamable HTTP: a session manager per world.

try:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error
try:
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtra("starlette", "serve") from error

_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"


@final
class McpEndpoints:
    """All worlds' MCP endpoints; :meth:`running` while the application lives."""

    def __init__(self, worlds: Worlds) -> None:
        settings = worlds.settings
        self._tools = {name: WorldTools(worlds, name) for name in worlds.worlds}
        self._managers = {name: self._manager(name, settings) for name in worlds.worlds}

    def _manager(self, name: str, settings: ServerSettings) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            mcp_server(self._tools[name], name),
            json_response=True,
            session_idle_timeout=settings.world_idle_s,
            max_request_body_size=settings.max_body,
            max_sessions=settings.world_sessions,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The managers' own life."""
        async with AsyncExitStack() as stack:
            for manager in self._managers.values():
                await stack.enter_async_context(manager.run())
            yield

    def routes(self) -> list[Route]:
        """Where clients find them."""
        return [Route("/v1/worlds/{world}/mcp", _Endpoint(self))]

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a client."""
        request = Request(scope, receive)
        name = request.path_params["world"]
        manager = self._managers.get(name)
        refused = await _refusal(request, manager is not None)
        if refused is not None or manager is None:
            await (refused or Response(status_code=404))(scope, receive, send)
            return
        holder = getattr(request.state, "holder", None)
        if holder is not None:
            # A session belongs to the key that began it; the manager compares.
            token = AccessToken(token=str(holder), client_id=str(holder), scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await manager.handle_request(scope, receive, send)
        if request.method == "DELETE":
            self._tools[name].ended(request.headers.get(_SESSION, ""))


@final
class _Endpoint:
    """An ASGI application, so that the route passes every method on."""

    def __init__(self, endpoints: McpEndpoints) -> None:
        self._endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints.answer(scope, receive, send)


async def _refusal(request: Request, known: bool) -> Response | None:
    """What is not passed on to the MCP package."""
    if not known:
        return _error(types.INVALID_REQUEST, "there is no such world", 404)
    if request.method == "GET":  # a stream for what the server says unasked: it says nothing
        return Response(status_code=405, headers={"allow": "POST, DELETE"})
    version = request.headers.get(_VERSION)
    if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    # Newer versions have no sessions, and without one nobody knows which episode is meant.
    try:
        asked: Any = (await request.json()).get("id")
    except (ValueError, AttributeError):
        asked = None
    data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    said = "an episode needs a session: initialize one"
    return _error(types.UNSUPPORTED_PROTOCOL_VERSION, said, 400, asked, data)


def _error(code: int, said: str, status: int, asked: Any = None, data: Any = None) -> Response:
    body = {"code": code, "message": said} | ({} if data is None else {"data": data})
    return JSONResponse(json.loads(json.dumps({"jsonrpc": "2.0", "id": asked, "error": body})), status)
