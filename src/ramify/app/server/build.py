"""The application: models by name, one lane each, errors in OpenAI's form."""

from __future__ import annotations

import asyncio
import hmac
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ramify.app.server import wire
from ramify.core.chat import ChatModel, Reply
from ramify.core.errors import BadInput, CannotDo, MissingExtra, ServerError, UserError
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
    at the same time; 1 suits models that run in this process. What a model notes of a reply stands in its
    choice as ``ramify``.

    Raises:
        BadInput: no model, an empty key, or fewer than one lane.
        MissingExtra: starlette is not installed (``pip install 'ramify[serve]'``).
    """
    if not models or lanes < 1:
        raise BadInput("a server needs at least one model and one lane", where="server")
    if key == "":
        raise BadInput("the API key is empty", where="server", hint="leave it out to serve without one")
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
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
        Route("/v1/models/{name:path}", _guarded(desk, desk.name)),
        Route("/v1/chat/completions", _guarded(desk, desk.chat), methods=["POST"]),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: _elsewhere, Exception: _broken})


Handler = Callable[["Request"], Awaitable["Response"]]


def _refuse(status: int, message: str, kind: str, code: str | None = None) -> Response:
    """An error as a body that OpenAI's clients understand."""
    from starlette.responses import JSONResponse

    body = {"message": message, "type": kind, "param": None, "code": code}
    return JSONResponse({"error": body}, status)


async def _elsewhere(request: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    status = getattr(error, "status_code", 404)
    return _refuse(
        status, f"nothing answers {request.method} {request.url.path} here", "invalid_request_error"
    )


async def _broken(request: Request, error: Exception) -> Response:
    """A fault of ours: the client learns that much, the traceback stays in the server's log."""
    return _refuse(500, "the server failed; its log says how", "server_error")


def _guarded(desk: _Desk, handler: Handler) -> Handler:
    """The handler behind the key."""

    async def guarded(request: Request) -> Response:
        if not desk.admits(request.headers.get("authorization")):
            said = "this server wants an API key"
            return _refuse(401, said, "authentication_error", "invalid_api_key")
        try:
            return await handler(request)
        except UnknownModel as error:
            return _refuse(404, str(error), "invalid_request_error", "model_not_found")
        except ServerError as error:
            return _refuse(502, str(error), "upstream_error")
        except (BadInput, CannotDo) as error:
            return _refuse(400, str(error), "invalid_request_error")
        except UserError as error:  # a full disk, a log that another process writes: not the client's doing
            return _refuse(500, str(error), "server_error")

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
        # Headers come decoded as Latin-1; these are the bytes that were sent.
        return scheme.lower() == "bearer" and hmac.compare_digest(given.encode("latin-1"), self._key.encode())

    async def names(self, request: Request) -> Response:
        """What is served."""
        from starlette.responses import JSONResponse

        return JSONResponse({"object": "list", "data": [self._row(name) for name in sorted(self._models)]})

    async def name(self, request: Request) -> Response:
        """One of them."""
        from starlette.responses import JSONResponse

        asked = request.path_params["name"]
        self._model(asked)
        return JSONResponse(self._row(asked))

    def _row(self, name: str) -> Json:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "ramify"}

    async def chat(self, request: Request) -> Response:
        """One chat completion, whole or as a stream."""
        from starlette.responses import JSONResponse, StreamingResponse

        asked = wire.read_asked(await _body(request))
        model = self._model(asked.model)
        replies = await asyncio.gather(*(self._reply(model, asked, i) for i in range(asked.n)))
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

    def _model(self, name: str) -> ChatModel:
        model = self._models.get(name)
        if model is None:
            known = ", ".join(sorted(self._models))
            raise UnknownModel(f"there is no model {name!r}", hint=f"served here: {known}")
        return model

    async def _reply(self, model: ChatModel, asked: wire.Asked, number: int) -> Reply:
        from anyio import to_thread

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
