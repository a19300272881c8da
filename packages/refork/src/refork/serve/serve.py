"""The server: its application, run until it is stopped, or beside the program that asks it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from refork.chat import ChatModel
from refork.errors import BadInput, MissingExtra
from refork.policies.workers import release_workers
from refork.serve.local import http_server, run_server, running
from refork.serve.served import Served
from refork.serve.settings import ServerSettings

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from refork.policies.local import LocalPolicy

#: What can stand behind a name.
Model: TypeAlias = "ChatModel | Served | LocalPolicy"


def create_app(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    worlds: Mapping[str, object] | None = None,
) -> FastAPI:
    """An OpenAI-compatible application: completions, chat completions, responses, models, health.

    A local policy is served token by token, by continuous batching; a chat model is asked in threads. What a
    model notes of a reply stands in its choice as ``refork``. ``worlds``: simulated worlds by name, as chat
    models ``world/NAME``, MCP servers and plain HTTP under ``/v1/worlds``.

    Raises:
        BadInput: no model and no world.
        MissingExtra: fastapi is not installed (extra ``serve``).
    """
    if not (models or worlds):
        raise BadInput("a server needs at least one model", where="server")
    settings = settings or ServerSettings()
    try:
        import fastapi  # noqa: F401
    except ImportError as error:
        raise MissingExtra("fastapi", "serve") from error
    from refork.serve.routes import assemble

    served = {name: served_as(model, settings) for name, model in models.items()}
    return assemble(served, settings, worlds or {})


def served_as(model: Model, settings: ServerSettings) -> Served:
    """Whatever stands behind a name, as the server asks it."""
    if isinstance(model, Served):
        return model
    if isinstance(model, ChatModel):
        from refork.serve.chat_served import ChatServed

        return ChatServed(model, settings.lanes)
    from refork.serve.engine_model import EngineModel

    return EngineModel(model, width=settings.width)


def serve(
    models: Mapping[str, Model],
    settings: ServerSettings,
    *,
    worlds: Mapping[str, object] | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Answer OpenAI-compatible requests; Ctrl-C lets running answers end. Only this machine by default.

    ``ready`` is told the address (``http://HOST:PORT/v1``) once it is taken. Answers that have not ended
    ``drain_s`` after Ctrl-C are cut.

    Raises:
        BadInput: no model.
        CannotDo: the address cannot be had.
        MissingExtra: uvicorn is not installed (extra ``serve``).
    """
    server = _server(models, settings, "info", worlds)
    run_server(server, settings.host, settings.port, ready, "/v1")


@contextmanager
def serving(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    worlds: Mapping[str, object] | None = None,
) -> Iterator[str]:
    """Serve from a thread of this program while inside; gives the address. For notebooks and tests.

    Without settings, a free port is taken.

    Raises: as :func:`serve`.
    """
    settings = settings or ServerSettings(port=0)
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
        # uvicorn takes whole seconds; half a second rounded down to 0 would cut every running answer at once.
        drain_s=math.ceil(settings.drain_s),
        level=level,
    )
    release_workers()  # the models were read in this thread, and the engines' threads are to run them
    return server
