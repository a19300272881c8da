"""Run the server: until it is stopped, or beside the program that asks it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ramify.app.server.build import create_app
from ramify.core.chat import ChatModel
from ramify.core.errors import CannotDo, MissingExtra

if TYPE_CHECKING:
    import uvicorn


def serve(
    models: Mapping[str, ChatModel],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    lanes: int = 1,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Answer OpenAI-compatible requests; Ctrl-C lets running answers end. Only this machine by default.

    Port 0 takes a free one. ``ready`` is told the address (``http://HOST:PORT/v1``) once it is taken.

    Raises:
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn is not installed (``pip install 'ramify[serve]'``).
    """
    server = _server(models, key, lanes, "info")
    with _listening(host, port) as open_:
        if ready is not None:
            ready(_address(host, open_))
        try:
            server.run(sockets=[open_])
        except KeyboardInterrupt:
            return  # the server has ended by now; it only passes the signal on


@contextmanager
def serving(
    models: Mapping[str, ChatModel],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    key: str | None = None,
    lanes: int = 1,
) -> Iterator[str]:
    """Serve from a thread of this program while inside; gives the address. For notebooks and tests.

    Raises: as :func:`serve`.
    """
    server = _server(models, key, lanes, "warning")
    with _listening(host, port) as open_:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [open_]}, daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield _address(host, open_)
        finally:
            server.should_exit = True
            thread.join()


def _server(models: Mapping[str, ChatModel], key: str | None, lanes: int, level: str) -> uvicorn.Server:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    return uvicorn.Server(uvicorn.Config(create_app(models, key=key, lanes=lanes), log_level=level))


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        said = f"cannot listen on {host}:{port}: {error}"
        raise CannotDo(said, hint="name another --port or --host") from error


def _address(host: str, open_: socket.socket) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{open_.getsockname()[1]}/v1"
