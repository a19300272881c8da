"""Serve a study to people until it is stopped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from ramify.app.server.heads import IDLE_S, Bounded
from ramify.core.errors import CannotDo, MissingExtra
from ramify.discover.theory.people.conduct import Conduct

#: Seconds that the head of a request may take, and running answers get when the server stops.
_HEAD_S: Final = 20.0
_DRAIN_S: Final = 5
_CONNECTIONS: Final = 1024


def serve_people(
    conduct: Conduct,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page and take answers until Ctrl-C. ``ready`` is told the address; port 0 takes a free one.

    No address of a visitor is logged: it may name a person.

    Raises:
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn or fastapi is not installed (``pip install 'ramify[serve]'``).
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    from ramify.app.server.people import create_people_app

    config = uvicorn.Config(
        create_people_app(conduct),
        log_level="warning",
        access_log=False,
        server_header=False,
        http=partial(Bounded, _HEAD_S),  # type: ignore[arg-type]  # it calls it, no more
        ws="none",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
    server = uvicorn.Server(config)
    with _listening(host, port) as open_:
        if ready is not None:
            name = f"[{host}]" if ":" in host else host
            ready(f"http://{name}:{open_.getsockname()[1]}/")
        try:
            server.run(sockets=[open_])
        except KeyboardInterrupt:
            return  # the server has ended by now; it only passes the signal on


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error}"
        raise CannotDo(said, hint="name another --port or --host") from error
