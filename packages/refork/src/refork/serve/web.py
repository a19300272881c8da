"""What the server takes of FastAPI and Starlette, and the one way to make an application of them.

Importing it without them names the extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from refork.errors import MissingExtra
from refork.serve.gate import Gate
from refork.serve.guard import Counting, Guard
from refork.serve.settings import ServerSettings

try:
    from fastapi import FastAPI
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
    from starlette.exceptions import HTTPException
    from starlette.middleware.cors import CORSMiddleware
    from starlette.requests import Request
    from starlette.responses import Response
except ImportError as error:
    raise MissingExtra("fastapi", "serve") from error

__all__ = [
    "APIRoute",
    "FastAPI",
    "HTTPException",
    "Request",
    "RequestValidationError",
    "Response",
    "application",
]


def application(
    title: str,
    *,
    gate: Gate,
    settings: ServerSettings,
    handlers: Mapping[Any, Any],
    counting: Counting | None = None,
    **more: Any,
) -> FastAPI:
    """An application behind its gate and guard; ``more`` is FastAPI's. It has no page of FastAPI's own.

    Those pages load scripts from elsewhere, which would then ask this server as its own page does.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, exception_handlers=dict(handlers), **more)
    app.add_middleware(Guard, settings=settings, gate=gate, counting=counting)
    if gate.origins:
        # Outside the guard: what a browser asks before it sends a key carries none.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=sorted(gate.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["refork-ignored", "retry-after", "mcp-session-id"],
            allow_private_network=True,
        )
    return app
