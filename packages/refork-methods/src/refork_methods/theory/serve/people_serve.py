"""Serve a study to people until it is stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from refork.serve.local import http_server, run_server
from refork_methods.theory.people.conduct import Conduct

if TYPE_CHECKING:
    import uvicorn

#: Seconds that the head of a request may take, and running answers get when the server stops.
_HEAD_S: Final = 20.0
_DRAIN_S: Final = 5
_CONNECTIONS: Final = 1024


def serve_people(
    conduct: Conduct,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    names: Collection[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the page and take answers until Ctrl-C. ``ready`` is told the address; port 0 takes a free one.

    ``names``: those that the page is reached by beside ``host``, such as that of a web server in front. No
    address of a visitor is logged: it may name a person.

    Raises:
        BadInput: one of ``names`` is none.
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn or fastapi is not installed (extra ``serve``).
    """
    run_server(people_server(conduct, host, names), host, port, ready)


def people_server(conduct: Conduct, host: str, names: Collection[str] = ()) -> uvicorn.Server:
    """The study's server, not yet listening. Raises as :func:`serve_people`."""

    def app() -> Any:
        from refork_methods.theory.serve.people import create_people_app

        return create_people_app(conduct, host=host, names=names)

    return http_server(app, head_s=_HEAD_S, connections=_CONNECTIONS, drain_s=_DRAIN_S)
