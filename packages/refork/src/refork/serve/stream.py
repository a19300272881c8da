"""Answers as they go out: whole, as server-sent events, and errors in OpenAI's form, whatever failed."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

from refork.errors import UserError
from refork.serve.refusal import error_body, error_event, headers_of, status_and_body, validation_error
from refork.serve.web import HTTPException, Request, RequestValidationError, Response
from refork.types import Json

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from refork.serve.exchange import Choice
    from refork.serve.served import ActiveRequest, Delta
    from refork.serve.service import Running, Service

_log = logging.getLogger("refork.server")
DONE = b"data: [DONE]\n\n"
Handler: TypeAlias = Callable[[Request, Any], Coroutine[Any, Any, Response]]


def json_answer(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON in ASCII: what a client sent and gets back need not be text that can be encoded."""
    return Response(json.dumps(data, allow_nan=False), status, headers, "application/json")


@final
class ChunkHead:
    """The beginning of every chunk of an answer, written once."""

    def __init__(self, **fields: Any) -> None:
        self._head = f"data: {json.dumps(fields)[:-1]}, "

    def chunk(self, choice: str) -> bytes:
        """A chunk with one choice, given as JSON."""
        return f'{self._head}"choices": [{choice}]}}\n\n'.encode()

    def usage(self, usage: Any) -> bytes:
        """The last chunk, with the counts."""
        return f'{self._head}"choices": [], "usage": {json.dumps(usage)}}}\n\n'.encode()


@final
class EventStream(Response):
    """Sends events while they come. Whatever ends it, the request is closed, and its work with it.

    What fails on the way is the last event, in OpenAI's form of an error; its client then raises it.
    """

    def __init__(
        self, running: Running, events: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        told = {"cache-control": "no-cache", "x-accel-buffering": "no", **(headers or {})}
        super().__init__(None, headers=told, media_type="text/event-stream")
        # How long it will be is not known yet.
        del self.headers["content-length"]
        self._running = running
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything."""
        failed: BaseException | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                async for chunk in self._events:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:
                failed = error
                if not isinstance(error, UserError):
                    _log.exception("a stream failed")
                last = error_event(status_and_body(error)[1])
                await send({"type": "http.response.body", "body": last, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except BaseException as error:
            failed = failed or error
            raise
        finally:
            await self._events.aclose()
            await self._running.close(failed)


class AnswerWriter(Protocol):
    """Writes an answer in the form of one endpoint, from what its choices say."""

    def put(self, number: int, delta: Delta) -> str:
        """Add what is new of prompt ``number``; the text that may be sent now."""
        ...

    def ended(self, running: Running) -> Sequence[Sequence[Choice]] | None:
        """All is said: the choices of every prompt as they are recorded; None: as they came."""
        ...

    def whole(self, running: Running) -> Json:
        """The whole answer."""
        ...

    def events(self, running: Running) -> AsyncGenerator[bytes]:
        """The answer as events, which ends ``running`` before its last one goes out."""
        ...


async def answer(
    service: Service, call: ActiveRequest, writer: AnswerWriter, headers: Mapping[str, str]
) -> Response:
    """Begin a request and write its answer, whole or as a stream.

    Raises: as :meth:`~refork.serve.service.Service.open`.
    """
    running = await service.open(call)
    if call.stream:
        return EventStream(running, writer.events(running), headers)
    try:
        async for number, deltas in running.parts():
            for delta in deltas:
                writer.put(number, delta)
        await running.end(writer.ended(running))
    except BaseException as error:
        await running.close(error)
        raise
    await running.close()
    return json_answer(writer.whole(running), headers=headers)


def error_handlers(
    refuse: Callable[[Exception], tuple[int, Json]] = status_and_body, *, name_paths: bool = False
) -> dict[int | type[Exception], Handler]:
    """Handlers for FastAPI. ``refuse`` gives an error's status and body.

    ``name_paths``: where nothing answers, the message names what was asked for in place of what was raised.
    """

    async def refused(request: Request, error: Exception) -> Response:
        status, body = refuse(error)
        return json_answer(body, status, headers_of(error))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await refused(request, validation_error(list(error.errors())))

    async def elsewhere(request: Request, error: Exception) -> Response:
        """No such path, not by this method, or a body that cannot be read."""
        status = getattr(error, "status_code", 404)
        said = str(getattr(error, "detail", ""))
        if name_paths and status in (404, 405):
            said = f"nothing answers {request.method} {request.url.path} here"
        body = error_body(said, "invalid_request_error")
        return json_answer(body, status, getattr(error, "headers", None))

    return {RequestValidationError: invalid, HTTPException: elsewhere, UserError: refused, Exception: refused}
