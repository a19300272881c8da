"""Serve a study to people until it is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ramify.app.server.local import address_of, listening, page_server
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
        MissingExtra: uvicorn or fastapi is not installed (extra ``serve``).
    """

    def app() -> Any:
        from ramify.app.server.people import create_people_app

        return create_people_app(conduct)

    server = page_server(app, head_s=_HEAD_S, connections=_CONNECTIONS, drain_s=_DRAIN_S)
    with listening(host, port) as open_:
        if ready is not None:
            ready(address_of(host, open_))
        try:
            server.run(sockets=[open_])
        except KeyboardInterrupt:
            return  # the server has ended by now; it only passes the signal on
