"""The way to an MCP server behind a URL, which reads no more of an answer than one message may be long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, final

from refork.errors import MissingExtra

try:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

from refork_worlds.tools.mcp_child import GRACE, LONGEST, MOST
from refork_worlds.tools.mcp_client import Server


@asynccontextmanager
async def remote(
    server: Server, headers: dict[str, str], statuses: list[int], why: list[str]
) -> AsyncIterator[Any]:
    """The streams of a server behind a URL.

    The statuses with which it refused are noted, and why an answer of it was broken off.
    """

    async def note(response: Any) -> None:
        # What else the client asks (to listen, to leave) a server may well refuse.
        if response.status_code >= 400 and response.request.method == "POST":
            statuses.append(response.status_code)

    longest = max(server.timeout, server.start_timeout)
    limits = httpx2.Timeout(server.start_timeout, read=longest + 5)
    # Packed answers would grow on this side of what is counted.
    plain = headers | {"Accept-Encoding": "identity"}
    async with httpx2.AsyncClient(
        headers=plain, timeout=limits, event_hooks={"response": [note]}, transport=_Bounded(why)
    ) as http:
        streams: AbstractAsyncContextManager[Any] = streamable_http_client(server.url, http_client=http)
        async with streams as pair:
            try:
                yield pair
            finally:
                # Taking leave is a request too, which a server that hangs does not answer.
                http.timeout = httpx2.Timeout(GRACE)


@final
class _Bounded(httpx2.AsyncBaseTransport):
    """HTTP whose answers end where a message is too long, or where there are too many of them."""

    def __init__(self, why: list[str]) -> None:
        self._inner, self._why = httpx2.AsyncHTTPTransport(), why

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; its answer is read through a counter."""
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            raise _broken_off(self._why, "its answer is packed, and plain text was asked for")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Counted(response.stream, self._why),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


@final
class _Counted(httpx2.AsyncByteStream):
    """A body that breaks off; of a stream of events each is a message, and an empty line ends it."""

    def __init__(self, inner: httpx2.AsyncByteStream, why: list[str]) -> None:
        self._inner, self._why = inner, why

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = ends = 0
        async for part in self._inner:
            # Lines of an event stream may end in one character or in two.
            lines = part.replace(b"\r", b"").split(b"\n\n")
            ends += len(lines) - 1
            if max(length + len(lines[0]), *map(len, lines)) > LONGEST:
                raise _broken_off(self._why, f"it sent a message of more than {LONGEST >> 20} MiB")
            if ends > MOST:
                raise _broken_off(self._why, f"it answered in more than {MOST:,} messages")
            length = len(lines[-1]) if len(lines) > 1 else length + len(lines[0])
            yield part

    async def aclose(self) -> None:
        """Close the body."""
        await self._inner.aclose()


def _broken_off(why: list[str], what: str) -> httpx2.RemoteProtocolError:
    """An error that is noted too, for the client drops those of streams of events."""
    why.append(what)
    return httpx2.RemoteProtocolError(what)
