"""What the servers for people and for programs share: a socket, its address, and the one HTTP server."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from refork.errors import CannotDo, MissingExtra

if TYPE_CHECKING:
    import uvicorn


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
    from refork.serve.heads import IDLE_S, Bounded

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
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield address_of(host, open_, path)
        finally:
            server.should_exit = True
            thread.join()
