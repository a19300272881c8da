"""MCP over streamable HTTP: per world a session manager for clients' own sessions, one for given episodes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, final

from refork.errors import MissingExtra
from refork_methods.simulate.serve.mcp import WorldTools, mcp_server
from refork_methods.simulate.serve.sessions import Worlds

try:
    import mcp_types as types
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

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from refork.serve.settings import ServerSettings

_SESSION, _VERSION = "mcp-session-id", "mcp-protocol-version"


@final
class McpEndpoints:
    """All worlds' MCP endpoints; :meth:`running` while the application lives."""

    def __init__(self, worlds: Worlds) -> None:
        settings = worlds.settings
        self._tools = {name: WorldTools(worlds, name) for name in worlds.worlds}
        self._own = {name: self._manager(name, settings, False) for name in worlds.worlds}
        self._given = {name: self._manager(name, settings, True) for name in worlds.worlds}

    def _manager(self, name: str, settings: ServerSettings, stateless: bool) -> StreamableHTTPSessionManager:
        return StreamableHTTPSessionManager(
            mcp_server(self._tools[name], name),
            json_response=True,
            stateless=stateless,
            session_idle_timeout=settings.world_idle_s,
            max_request_body_size=settings.max_body,
            max_sessions=settings.world_sessions,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The managers' own life."""
        async with AsyncExitStack() as stack:
            for manager in (*self._own.values(), *self._given.values()):
                await stack.enter_async_context(manager.run())
            yield

    def routes(self) -> list[Route]:
        """Where clients find them."""
        return [
            Route("/v1/worlds/{world}/mcp", _Endpoint(self, fixed=False)),
            Route("/v1/worlds/{world}/sessions/{session}/mcp", _Endpoint(self, fixed=True)),
        ]

    async def answer(self, scope: Scope, receive: Receive, send: Send, fixed: bool) -> None:
        """One request of a client."""
        request = Request(scope, receive)
        name = request.path_params["world"]
        manager = (self._given if fixed else self._own).get(name)
        refused = await _refusal(request, manager is not None, fixed)
        if refused is not None or manager is None:
            await (refused or Response(status_code=404))(scope, receive, send)
            return
        holder = getattr(request.state, "holder", None)
        if holder is not None:
            # A session belongs to the key that began it; the manager compares.
            token = AccessToken(token=str(holder), client_id=str(holder), scopes=[])
            scope["user"] = AuthenticatedUser(token)
        await manager.handle_request(scope, receive, send)
        if request.method == "DELETE" and not fixed:
            self._tools[name].ended(request.headers.get(_SESSION, ""))


@final
class _Endpoint:
    """An ASGI application, so that the route passes every method on."""

    def __init__(self, endpoints: McpEndpoints, fixed: bool) -> None:
        self._endpoints, self._fixed = endpoints, fixed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoints.answer(scope, receive, send, self._fixed)


async def _refusal(request: Request, known: bool, fixed: bool) -> Response | None:
    """What is not passed on to the MCP package."""
    if not known:
        return _error(types.INVALID_REQUEST, "there is no such world", 404)
    if request.method == "GET":  # a stream for what the server says unasked: it says nothing
        return Response(status_code=405, headers={"allow": "POST, DELETE"})
    version = request.headers.get(_VERSION)
    if fixed or version is None or version in HANDSHAKE_PROTOCOL_VERSIONS:
        return None
    # Newer versions have no sessions, and without one nobody knows which episode is meant.
    try:
        asked: Any = (await request.json()).get("id")
    except (ValueError, AttributeError):
        asked = None
    data = {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version}
    said = "an episode needs a session: initialize one, or use .../sessions/ID/mcp"
    return _error(types.UNSUPPORTED_PROTOCOL_VERSION, said, 400, asked, data)


def _error(code: int, said: str, status: int, asked: Any = None, data: Any = None) -> Response:
    body = {"code": code, "message": said} | ({} if data is None else {"data": data})
    return JSONResponse(json.loads(json.dumps({"jsonrpc": "2.0", "id": asked, "error": body})), status)
