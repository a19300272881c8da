"""What the servers for people and for programs share: a socket, its address, and the one HTTP server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, final

from refork.errors import CannotDo, MissingExtra

if TYPE_CHECKING:
    import uvicorn

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


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        CannotDo: the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error}"
        raise CannotDo(said, hint="name another --port or --host") from error


def address_of(host: str, open_: socket.socket, path: str = "/") -> str:
    """The URL of what listens on a socket."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{open_.getsockname()[1]}{path}"


def http_server(
    app: Callable[[], Any], *, head_s: float, connections: int, drain_s: int, level: str = "warning"
) -> uvicorn.Server:
    """The server of an application, which is made once the extra is known to be there.

    ``head_s``: seconds that the head of a request may take; ``drain_s``: those that running answers get.
    Requests are logged at ``level`` "info" alone.

    Raises:
        MissingExtra: uvicorn is not installed (extra ``serve``).
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error

    config = uvicorn.Config(
        app(),
        log_level=level,
        access_log=level == "info",
        server_header=False,
        http=partial(Bounded, head_s),  # type: ignore[arg-type]  # it calls it, no more
        ws="none",
        limit_concurrency=connections,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=drain_s,
    )
    return uvicorn.Server(config)


def run_server(
    server: uvicorn.Server, host: str, port: int, ready: Callable[[str], None] | None, path: str = "/"
) -> None:
    """Serve until Ctrl-C. ``ready`` is told the address once it is taken; port 0 takes a free one.

    Raises:
        CannotDo: the address cannot be had.
    """
    with listening(host, port) as open_:
        if ready is not None:
            ready(address_of(host, open_, path))
        try:
            server.run(sockets=[open_])
        except KeyboardInterrupt:
            return  # the server has ended by now; it only passes the signal on


@contextmanager
def running(server: uvicorn.Server, host: str, port: int, path: str = "/") -> Iterator[str]:
    """Serve from a thread of this program while inside; gives the address.

    Raises:
        CannotDo: the address cannot be had.
    """
    with listening(host, port) as open_:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [open_]}, daemon=True)
        thread.start()
        try:
            # A server that cannot begin ends its thread and never says that it has started.
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield address_of(host, open_, path)
        finally:
            server.should_exit = True
            thread.join()
