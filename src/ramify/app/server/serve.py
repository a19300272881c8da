"""Run the server: until it is stopped, or beside the program that asks it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from ramify.app.server.build import Model, create_app, with_address
from ramify.app.server.heads import IDLE_S, Bounded
from ramify.app.server.local import address_of, listening
from ramify.app.server.settings import ServerSettings
from ramify.core.errors import MissingExtra
from ramify.core.policy.workers import release_workers

if TYPE_CHECKING:
    import uvicorn

    from ramify.learn.simulate.simulated_world import SimulatedWorld


def serve(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    host: str | None = None,
    port: int | None = None,
    key: str | None = None,
    lanes: int = 1,
    worlds: Mapping[str, SimulatedWorld] | None = None,
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
    with listening(settings.host, settings.port) as open_:
        if ready is not None:
            ready(address_of(settings.host, open_, "/v1"))
        try:
            server.run(sockets=[open_])
        except KeyboardInterrupt:
            return  # the server has ended by now; it only passes the signal on


@contextmanager
def serving(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    host: str | None = None,
    port: int = 0,
    key: str | None = None,
    lanes: int = 1,
    worlds: Mapping[str, SimulatedWorld] | None = None,
) -> Iterator[str]:
    """Serve from a thread of this program while inside; gives the address. For notebooks and tests.

    Raises: as :func:`serve`.
    """
    settings = with_address(settings, host, port, key, lanes)
    server = _server(models, settings, "warning", worlds)
    with listening(settings.host, settings.port) as open_:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [open_]}, daemon=True)
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.005)
            yield address_of(settings.host, open_, "/v1")
        finally:
            server.should_exit = True
            thread.join()


def _server(
    models: Mapping[str, Model],
    settings: ServerSettings,
    level: str,
    worlds: Mapping[str, SimulatedWorld] | None,
) -> uvicorn.Server:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("uvicorn", "serve") from error
    config = uvicorn.Config(
        create_app(models, settings, worlds=worlds),
        log_level=level,
        http=partial(Bounded, settings.body_s),  # type: ignore[arg-type]  # it calls it, no more
        ws="none",
        limit_concurrency=settings.connections,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=math.ceil(settings.drain_s),
    )
    release_workers()  # the models were read in this thread, and the engines' threads are to run them
    return uvicorn.Server(config)
