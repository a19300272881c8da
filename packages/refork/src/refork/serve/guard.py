"""What stands before every application: gate, key, size, patience; who leaves takes his work along.

Pure ASGI, so that it holds for every route and for bodies of any coding. A request's body is read here, whole
and within its limits, before the application sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol, TypeAlias, final

from refork.serve.gate import Gate
from refork.serve.keys import ApiKeys
from refork.serve.refusal import Refused
from refork.serve.settings import ServerSettings

Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
App: TypeAlias = Callable[[Event, Receive, Send], Awaitable[None]]

#: Paths that need no key: what load balancers ask.
OPEN = frozenset({"/health", "/health/live", "/health/ready"})
#: How a request is counted whose client left before its answer began (nginx's number).
LEFT = 499
#: Seconds that the last event of a broken-off stream may take to be sent.
_PARTING_S = 1.0


class Counting(Protocol):
    """Who is told of every request."""

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """One request ended. Never raises."""
        ...


@final
class Guard:
    """ASGI middleware; :func:`~refork.serve.web.application` puts it before every application.

    In order: 403 and 415 for what another page may have sent (:class:`~refork.serve.gate.Gate`); 401
    without an accepted key (``/health`` needs none); 413 and 408 for a body that is too large or too slow;
    then the application, until it is done, its time is over (504, or an error as a stream's last event) or
    the client has left. In the last two cases the application's task is cancelled (by asyncio: a thread that
    it waits for goes on). ``request.state.holder`` names the key's holder.
    """

    def __init__(
        self, app: App, *, settings: ServerSettings, gate: Gate, counting: Counting | None = None
    ) -> None:
        self._app = app
        self._gate = gate
        self._settings = settings
        self._keys = ApiKeys(settings.keys)
        self._counting = counting

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Guard one connection. A WebSocket is refused: nothing here speaks it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began, out = time.perf_counter(), _Out(send, self._gate.headers)
        status = LEFT
        try:
            await self._admitted(scope, receive, out)
            status = out.status or LEFT
        except Refused as refusal:
            status = refusal.status
            await out.refuse(refusal)
        except Exception:
            status = out.status or 500
            raise
        finally:
            if self._counting is not None:
                self._counting.request(_route(scope), scope["method"], status, time.perf_counter() - began)

    async def _admitted(self, scope: Event, receive: Receive, out: _Out) -> None:
        # Before the key and the body: of what another page sends nothing is read.
        self._gate.check(scope)
        holder = self._keys.holder(_header(scope, b"authorization"))
        if holder is None and scope["path"] not in OPEN:
            raise Refused(401, "this server wants an API key", "authentication_error", "invalid_api_key")
        scope.setdefault("state", {})["holder"] = holder
        body = await self._body(scope, receive) if scope["method"] == "POST" else b""
        if body is not None:
            await self._patiently(scope, body, receive, out)

    async def _body(self, scope: Event, receive: Receive) -> bytes | None:
        """The whole body; None: the client left first. Raises Refused for one too large or too slow."""
        most, seconds = self._settings.max_body, self._settings.body_s
        length = _header(scope, b"content-length")
        too_long = Refused(
            413, f"the request is longer than {most:,} bytes", "invalid_request_error", "request_too_large"
        )
        # A length may be missing or lie, so what comes is counted too.
        # Python reads no number of thousands of digits, and needs not: any of so many is too large.
        if length is not None and length.isdecimal() and int(length.lstrip("0")[:20] or 0) > most:
            raise too_long
        parts, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                while True:
                    event = await receive()
                    if event["type"] == "http.disconnect":
                        return None
                    part = event.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise too_long
                    parts.append(part)
                    if not event.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            said = f"the request did not arrive within {seconds:g} s"
            raise Refused(408, said, "invalid_request_error", "request_timeout") from error

    async def _patiently(self, scope: Event, body: bytes, receive: Receive, out: _Out) -> None:
        """Run the application until it ends, its time is over, or the client leaves."""
        left = asyncio.Event()
        work = asyncio.ensure_future(self._app(scope, _replay(body, left), out.send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait(
                (work, leaving), timeout=self._settings.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            # Both may be done at once: an answer that is complete counts, also where its client has just
            # left.
            if work.done():
                return
            # From here on nothing of the application may follow the error that is sent.
            out.close()
            left.set()
            if not leaving.done():
                said = f"no complete answer within {self._settings.timeout_s:g} s"
                await out.part(Refused(504, said, "timeout_error", "timeout"))
        finally:
            leaving.cancel()
            await _ended(work)


async def _ended(work: asyncio.Future[None]) -> None:
    """Cancel the application's task where it still runs, and pass on what it raised."""
    cancelled = not work.done() and work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        if not cancelled:
            raise
    except Exception:
        if not cancelled:  # what a task raises while it is put down is of no use to anybody
            raise


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _replay(body: bytes, left: asyncio.Event) -> Receive:
    """What the application receives: the body, then, once the client has left, that he has."""
    given = False

    async def receive() -> Event:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    return receive


@final
class _Out:
    """The way to the client: knows how far the answer has come, and can be closed to the application."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers
        self._open = True
        self._stream = False
        self.status: int | None = None

    async def send(self, event: Event) -> None:
        """Pass an event of the application on, while it may speak."""
        if not self._open:
            return
        if event["type"] == "http.response.start":
            self.status = event["status"]
            kinds = [value for name, value in event.get("headers", ()) if name.lower() == b"content-type"]
            self._stream = any(kind.startswith(b"text/event-stream") for kind in kinds)
            event = {**event, "headers": self._with_ours(event.get("headers", ()))}
        await self._send(event)

    def _with_ours(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        # Ours replace the application's, so that no route sends the browser another policy than the gate's.
        ours = {name for name, _ in self._headers}
        return [*((name, value) for name, value in headers if name.lower() not in ours), *self._headers]

    def close(self) -> None:
        """Nothing of the application goes out from here on."""
        self._open = False

    async def part(self, refusal: Refused) -> None:
        """Say why it ends here: as an error where nothing was said, as a last event in a stream."""
        if self.status is None:
            await self.refuse(refusal)
        elif self._stream:
            with contextlib.suppress(TimeoutError):  # the client reads too slowly for that, too
                async with asyncio.timeout(_PARTING_S):
                    # Without `more_body` the event is the stream's last one, so the server ends the answer
                    # with it.
                    await self._send({"type": "http.response.body", "body": refusal.event})

    async def refuse(self, refusal: Refused) -> None:
        """The whole error answer."""
        self.status = refusal.status
        body = json.dumps(refusal.body).encode()
        told = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
        if refusal.status in (408, 413):
            told["connection"] = "close"  # the rest of the body is not read
        headers = self._with_ours((name.encode(), value.encode()) for name, value in told.items())
        await self._send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _header(scope: Event, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key.lower() == name:
            return str(value.decode("latin-1"))
    return None


def _route(scope: Event) -> str:
    """The route's pattern, so that names in paths do not become labels without end."""
    path = getattr(scope.get("route"), "path", None)
    return str(path) if path is not None else "other"
