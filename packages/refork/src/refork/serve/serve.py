"""Run the server: until it is stopped, or beside the program that asks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from refork.policies.workers import release_workers
from refork.serve.build import Model, create_app, with_address
from refork.serve.local import http_server, run_server, running
from refork.serve.settings import ServerSettings

if TYPE_CHECKING:
    import uvicorn


def serve(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    key: str | None = None,
    lanes: int = 1,
    worlds: Mapping[str, object] | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Answer OpenAI-compatible requests; Ctrl-C lets running answers end. Only this machine by default.

    What is given beside ``settings`` goes before them. Port 0 takes a free one. ``ready`` is told the address
    (``http://HOST:PORT/v1``) once it is taken. Answers that have not ended ``drain_s`` after Ctrl-C are cut.

    Raises:
        BadInput: no model, or an address beyond this machine without a key.
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn is not installed (extra ``serve``).
    """
    settings = with_address(settings, host, port, key, lanes)
    server = _server(models, settings, "info", worlds)
    run_server(server, settings.host, settings.port, ready, "/v1")


@contextmanager
def serving(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    host: str | None = None,
    port: int = 0,
    key: str | None = None,
    lanes: int = 1,
    worlds: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Serve from a thread of this program while inside; gives the address. For notebooks and tests.

    Raises: as :func:`serve`.
    """
    settings = with_address(settings, host, port, key, lanes)
    server = _server(models, settings, "warning", worlds)
    with running(server, settings.host, settings.port, "/v1") as address:
        yield address


def _server(
    models: Mapping[str, Model],
    settings: ServerSettings,
    level: str,
    worlds: Mapping[str, object] | None,
) -> uvicorn.Server:
    server = http_server(
        lambda: create_app(models, settings, worlds=worlds),
        head_s=settings.body_s,
        connections=settings.connections,
        drain_s=math.ceil(settings.drain_s),
        level=level,
    )
    release_workers()  # the models were read in this thread, and the engines' threads are to run them
    return server
