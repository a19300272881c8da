"""The application: models by name, one lane each, errors in OpenAI's form."""

from __future__ import annotations

import hmac
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ramify.app.server import wire
from ramify.core.chat import ChatModel, Reply
from ramify.core.errors import BadInput, MissingExtra, ServerError, UserError
from ramify.core.types import Json

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

#: Bytes of a request; longer ones are refused unread.
LONGEST = 16 << 20


def create_app(models: Mapping[str, ChatModel], *, key: str | None = None, lanes: int = 1) -> Starlette:
    """An ASGI application that answers ``/v1/models``, ``/v1/chat/completions`` and ``/health``.

    ``key``: what clients must send as their API key; None: nothing. ``lanes``: questions a model is asked
    at the same time; 1 suits models that run in this process.

    Raises:
        BadInput: no model, or fewer than one lane.
        MissingExtra: starlette is not installed (``pip install 'ramify[serve]'``).
    """
    if not models or lanes < 1:
        raise BadInput("a server needs at least one model and one lane", where="server")
    try:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("starlette", "serve") from error
    desk = _Desk(models, key, lanes)

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/health", health),
        Route("/v1/models", _guarded(desk, desk.names)),
        Route("/v1/chat/completions", _guarded(desk, desk.chat), methods=["POST"]),
    ]
    return Starlette(routes=routes)


Handler = Callable[["Request"], Awaitable["Response"]]


def _guarded(desk: _Desk, handler: Handler) -> Handler:
    """The handler behind the key, its errors as bodies that OpenAI's clients understand."""
    from starlette.responses import JSONResponse

    def refuse(status: int, message: str, kind: str, code: str | None = None) -> Response:
        body = {"message": message, "type": kind, "param": None, "code": code}
        return JSONResponse({"error": body}, status)

    async def guarded(request: Request) -> Response:
        if not desk.admits(request.headers.get("authorization")):
            return refuse(401, "this server wants an API key", "authentication_error", "invalid_api_key")
        try:
            return await handler(request)
        except UnknownModel as error:
            return refuse(404, str(error), "invalid_request_error", "model_not_found")
        except ServerError as error:
            return refuse(502, str(error), "upstream_error")
        except UserError as error:
            return refuse(400, str(error), "invalid_request_error")

    return guarded


class UnknownModel(BadInput):
    """No model of that name is served here."""


class _Desk:
    """Takes questions in, keeps each model's lanes, hands answers out."""

    def __init__(self, models: Mapping[str, ChatModel], key: str | None, lanes: int) -> None:
        from anyio import CapacityLimiter

        self._models = dict(models)
        self._key = key
        self._began = int(time.time())
        self._draws = itertools.count()
        self._lanes = {name: CapacityLimiter(lanes) for name in models}

    def admits(self, header: str | None) -> bool:
        """Whether a request may come in."""
        if self._key is None:
            return True
        scheme, _, given = (header or "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), self._key.encode())

    async def names(self, request: Request) -> Response:
        """What is served."""
        from starlette.responses import JSONResponse

        rows = [
            {"id": name, "object": "model", "created": self._began, "owned_by": "ramify"}
            for name in sorted(self._models)
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def chat(self, request: Request) -> Response:
        """One chat completion, whole or as a stream."""
        from starlette.responses import JSONResponse, StreamingResponse

        asked = wire.read_asked(await _body(request))
        replies = [await self._reply(asked, i) for i in range(asked.n)]
        head: Json = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": asked.model,
        }
        told = {"ramify-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        if asked.stream:
            events = wire.chunks(head, replies, asked.stream_options.include_usage)
            return StreamingResponse(events, media_type="text/event-stream", headers=told)
        return JSONResponse(wire.completion(head, replies), headers=told)

    async def _reply(self, asked: wire.Asked, number: int) -> Reply:
        from anyio import to_thread

        model = self._models.get(asked.model)
        if model is None:
            known = ", ".join(sorted(self._models))
            raise UnknownModel(f"there is no model {asked.model!r}", hint=f"served here: {known}")
        draw = asked.seed + number if asked.seed is not None else next(self._draws)
        return await to_thread.run_sync(
            lambda: model.reply(asked.messages, tools=asked.tools, draw=draw),
            limiter=self._lanes[asked.model],
        )


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LONGEST:
            raise BadInput(f"the request is longer than {LONGEST} bytes", where="request")
        parts.append(part)
    return b"".join(parts)
