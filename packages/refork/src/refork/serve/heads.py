"""Connections whose requests must begin in time: no silent ones, no endless heads."""

from __future__ import annotations

import asyncio
from typing import Any, final

#: Bytes that the head of a request (its line and headers) may take.
LONGEST_HEAD = 64 << 10
#: Seconds that a connection may be idle: longer than clients keep one (httpx: 5), so that none of them sends
#: a request into one that is just being closed.
IDLE_S = 30
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@final
class Bounded(asyncio.Protocol):
    """The HTTP protocol of uvicorn, which closes a connection that keeps it waiting.

    The head of every request must be there ``seconds`` after the connection was made or the head began, and
    within :data:`LONGEST_HEAD`. What follows the head is the guard's to bound, idleness between requests
    uvicorn's.
    """

    def __init__(self, seconds: float, **given: Any) -> None:
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

        self._seconds = seconds
        self._inner: Any = AutoHTTPProtocol(**given)
        self._transport: Any = None
        self._late: asyncio.TimerHandle | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        self._transport = transport
        self._inner.connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Pass data on, and count what belongs to a head that is not whole."""
        self._inner.data_received(data)
        cycle = self._inner.cycle
        if cycle is not None and not cycle.response_complete:  # a head is whole, and being answered
            self._rest()
            return
        self._size += len(data)
        if self._size > LONGEST_HEAD and not self._transport.is_closing():
            self._transport.write(_TOO_LONG)
            self._transport.close()
        if self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing comes any more."""
        self._rest()
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        """The client has said all."""
        found: bool | None = self._inner.eof_received()
        return found

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """He has caught up."""
        self._inner.resume_writing()

    def _wait(self) -> None:
        self._late = asyncio.get_running_loop().call_later(self._seconds, self._transport.close)

    def _rest(self) -> None:
        self._size = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None
