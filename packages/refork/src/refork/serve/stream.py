"""Answers as server-sent events."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, final

from refork.errors import UserError
from refork.serve.refusal import error_event, status_and_body
from refork.serve.web import Response

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from refork.serve.service import Running

_log = logging.getLogger("refork.server")
DONE = b"data: [DONE]\n\n"


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
