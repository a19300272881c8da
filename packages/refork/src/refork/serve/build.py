"""The application: models by name, their endpoints, and the guards around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from refork.chat import ChatModel
from refork.errors import BadInput, MissingExtra
from refork.serve.served import Served
from refork.serve.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from refork.policies.local import LocalPolicy

#: Bytes of a request; longer ones are refused unread.
LONGEST = 16 << 20
#: What can stand behind a name.
Model: TypeAlias = "ChatModel | Served | LocalPolicy"


def create_app(
    models: Mapping[str, Model],
    settings: ServerSettings | None = None,
    *,
    key: str | None = None,
    lanes: int = 1,
    worlds: Mapping[str, object] | None = None,
) -> FastAPI:
    """An OpenAI-compatible application: completions, chat completions, responses, models, health.

    A local policy is served token by token, by continuous batching; a chat model is asked in ``lanes``
    threads. ``key``: what clients must send as their API key; None: nothing. What a model notes of a reply
    stands in its choice as ``refork``. ``worlds``: simulated worlds by name, as chat models ``world/NAME``,
    MCP servers and plain HTTP under ``/v1/worlds``.

    Raises:
        BadInput: no model and no world, an empty key, or fewer than one lane.
        MissingExtra: fastapi is not installed (extra ``serve``).
    """
    if not (models or worlds) or lanes < 1:
        raise BadInput("a server needs at least one model and one lane", where="server")
    settings = with_address(settings, None, None, key, lanes)
    try:
        import fastapi  # noqa: F401
    except ImportError as error:
        raise MissingExtra("fastapi", "serve") from error
    from refork.serve.routes import assemble

    served = {name: served_as(model, settings) for name, model in models.items()}
    return assemble(served, settings, worlds or {})


def with_address(
    settings: ServerSettings | None, host: str | None, port: int | None, key: str | None, lanes: int
) -> ServerSettings:
    """Settings with what is given beside them. Raises BadInput where they do not fit."""
    if key == "":
        raise BadInput("the API key is empty", where="server", hint="leave it out to serve without one")
    found = settings or ServerSettings(max_body=LONGEST)
    changes: dict[str, Any] = {"host": host, "port": port}
    changes = {name: value for name, value in changes.items() if value is not None}
    if key is not None:
        changes["keys"] = found.keys | {key}
    if lanes != 1:
        changes["lanes"] = lanes
    return replace(found, **changes) if changes else found


def served_as(model: Model, settings: ServerSettings) -> Served:
    """Whatever stands behind a name, as the server asks it."""
    if isinstance(model, Served):
        return model
    if isinstance(model, ChatModel):
        from refork.serve.chat_served import ChatServed

        return ChatServed(model, settings.lanes)
    from refork.serve.engine_model import EngineModel

    return EngineModel(model, width=settings.width)
