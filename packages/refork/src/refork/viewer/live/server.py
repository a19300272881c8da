"""Serve the viewer until it is stopped, or beside the program that looks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from refork.errors import BadInput
from refork.serve.keys import is_loopback
from refork.serve.local import http_server, run_server, running
from refork.viewer.live.forking import Forking
from refork.viewer.live.shelf import Shelf

if TYPE_CHECKING:
    import uvicorn

#: Seconds that the head of a request may take, and running answers get when the server stops.
_HEAD_S: Final = 20.0
_DRAIN_S: Final = 3
_CONNECTIONS: Final = 256


def serve_viewer(
    trees: Shelf,
    forking: Forking | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    names: Collection[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Show trees until Ctrl-C. ``ready`` is told the address once it is taken; port 0 takes a free one.

    ``names``: those that it is reached by beside this machine's own, such as that of a proxy.

    Raises:
        BadInput: an address that other machines could reach, or a name that is none.
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn or fastapi is not installed (extra ``serve``).
    """
    _check(host)
    server = viewer_server(trees, forking, names)
    try:
        run_server(server, host, port, ready)
    finally:
        if forking is not None:
            forking.close()


@contextmanager
def viewing(trees: Shelf, forking: Forking | None = None, *, host: str = "127.0.0.1") -> Iterator[str]:
    """Show trees from a thread of this program while inside; gives the address. For notebooks and tests.

    Raises: as :func:`serve_viewer`.
    """
    _check(host)
    server = viewer_server(trees, forking)
    with running(server, host, 0) as address:
        try:
            yield address
        finally:
            if forking is not None:
                forking.close()


def _check(host: str) -> None:
    if not is_loopback(host):
        raise BadInput(
            f"other machines could reach {host or 'every address'!r}, and a viewer has no key",
            hint="listen on 127.0.0.1, and bring the port over with `ssh -L`",
        )


def viewer_server(
    trees: Shelf, forking: Forking | None = None, names: Collection[str] = ()
) -> uvicorn.Server:
    """The viewer's server, not yet listening. Raises MissingExtra without the extra ``serve``."""

    def app() -> Any:
        from refork.viewer.live.api import create_viewer_app

        return create_viewer_app(trees, forking, names=names)

    return http_server(app, head_s=_HEAD_S, connections=_CONNECTIONS, drain_s=_DRAIN_S)
