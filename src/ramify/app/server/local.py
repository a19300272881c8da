"""What the servers for people and for programs share: a socket, its address, and a page's HTTP server."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ramify.core.errors import CannotDo, MissingExtra

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


def page_server(app: Callable[[], Any], *, head_s: float, connections: int, drain_s: int) -> uvicorn.Server:
    """A server of a local page, made once the extra is known to be there; no visitor is logged.

    ``head_s``: seconds that the head of a request may take; ``drain_s``: those that running answers get.

    Raises:
        MissingExtra: uvicorn is not installed (extra ``serve``).
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    from ramify.app.server.heads import IDLE_S, Bounded

    config = uvicorn.Config(
        app(),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=partial(Bounded, head_s),  # type: ignore[arg-type]  # it calls it, no more
        ws="none",
        limit_concurrency=connections,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=drain_s,
    )
    return uvicorn.Server(config)
