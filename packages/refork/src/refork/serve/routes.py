"""The endpoints on a FastAPI application, with errors in OpenAI's form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

from refork.registry import part
from refork.serve.additions import Addition, Pins
from refork.serve.api import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    ErrorBody,
    Health,
    ModelList,
    ModelRow,
    ResponseBody,
    ResponseRequest,
    Tokenized,
    TokenizeRequest,
)
from refork.serve.chat import chat
from refork.serve.completions import complete
from refork.serve.gate import Gate
from refork.serve.metrics import Metrics
from refork.serve.observe import Observers
from refork.serve.responses import respond
from refork.serve.served import Served
from refork.serve.service import Service
from refork.serve.settings import ServerSettings
from refork.serve.stream import error_handlers, json_answer
from refork.serve.tokenize import detokenize, tokenize
from refork.serve.web import FastAPI, Request, Response, application

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": said}
    for status, said in (
        (400, "What was asked cannot be had; `param` names the field."),
        (401, "No API key, or one that is not accepted."),
        (403, "Asked by another page, or under a name that is not this server's."),
        (404, "No such model."),
        (408, "The request did not arrive in time."),
        (413, "The request is too long."),
        (415, "The request's content type is not application/json."),
        (429, "Too busy, or over the key's share; see Retry-After."),
        (500, "The server or a model failed."),
        (502, "A model behind this server failed."),
        (503, "The server is stopping, or could not record the answer."),
        (504, "No complete answer in time."),
    )
}


def _answers(model: type[Any]) -> dict[int | str, dict[str, Any]]:
    """What an endpoint that can stream answers, for the OpenAPI document."""
    stream: dict[str, Any] = {"text/event-stream": {}}
    return {200: {"model": model, "description": "Whole, or as events.", "content": stream}, **_ERRORS}


def assemble(models: Mapping[str, Served], settings: ServerSettings, worlds: Mapping[str, object]) -> FastAPI:
    """The application of some models and simulated worlds under some settings."""
    additions: list[Addition] = [part("serve.worlds")(worlds, settings)] if worlds else []
    models = {**models, **{name: one for added in additions for name, one in added.models.items()}}
    pins: Pins | None = None
    if settings.pin is not None:
        pins = part("serve.pins").read(settings.pin, withhold=settings.pin_withhold)
    observers = Observers.of(settings)
    service = Service(models, settings, observers, pins)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for added in additions:
                await stack.enter_async_context(added.running())
            yield
        for model in service.models.values():
            await model.stop()
        await asyncio.to_thread(observers.close)

    app = application(
        "Refork",
        gate=Gate(
            host=settings.host, names=settings.hosts, origins=settings.origins, keyed=bool(settings.keys)
        ),
        settings=settings,
        handlers=error_handlers(name_paths=True),
        counting=observers.metrics,
        version=version("refork"),
        lifespan=life,
    )
    app.state.desk = service
    _add_models(app, service)
    _add_answers(app, service)
    _add_tokens(app, service)
    for added in additions:
        added.add_to(app)
    if observers.metrics is not None:
        _add_metrics(app, service, observers.metrics)
    return app


def _add_models(app: FastAPI, service: Service) -> None:
    def row(name: str) -> ModelRow:
        service.model(name)
        return ModelRow(id=name, created=service.began)

    async def health() -> Health | Response:
        """Whether every model can answer."""
        broken = {name: why for name, model in service.models.items() if (why := model.broken) is not None}
        if broken:
            body = Health(status="broken", models=broken).model_dump()
            return json_answer(body, 503)
        return Health(status="ok")

    for path in ("/health", "/health/ready"):
        app.add_api_route(
            path, health, response_model=Health, response_model_exclude_none=True,
            responses={503: {"model": Health, "description": "A model can answer nobody any more."}},
        )  # fmt: skip

    @app.get("/health/live", response_model_exclude_none=True)
    async def live() -> Health:
        """Whether the process answers at all."""
        return Health(status="ok")

    @app.get("/v1/models", responses=_ERRORS)
    async def models() -> ModelList:
        """What is served."""
        return ModelList(data=[row(name) for name in sorted(service.models)])

    # Names may hold slashes (`world/NAME`), so all the rest of the path is the name.
    @app.get("/v1/models/{name:path}", responses=_ERRORS)
    async def model(name: str) -> ModelRow:
        """One of the models."""
        return row(name)


def _add_answers(app: FastAPI, service: Service) -> None:
    @app.post("/v1/completions", response_model=None, responses=_answers(Completion))
    async def completions(body: CompletionRequest, request: Request) -> Response:
        """Continue text or token ids."""
        return await complete(service, body, request)

    @app.post("/v1/chat/completions", response_model=None, responses=_answers(ChatCompletion))
    async def chat_completions(body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        return await chat(service, body, request)

    @app.post("/v1/responses", response_model=None, responses=_answers(ResponseBody))
    async def responses(body: ResponseRequest, request: Request) -> Response:
        """Answer a text or a conversation; nothing is kept."""
        return await respond(service, body, request)


def _add_tokens(app: FastAPI, service: Service) -> None:
    @app.post("/tokenize", responses=_ERRORS)
    async def tokens(body: TokenizeRequest) -> Tokenized:
        """A text or a conversation as the tokens that a local model reads."""
        return await tokenize(service, body)

    @app.post("/detokenize", responses=_ERRORS)
    async def text(body: DetokenizeRequest) -> Detokenized:
        """Tokens as text."""
        return detokenize(service, body)


def _add_metrics(app: FastAPI, service: Service, metrics: Metrics) -> None:
    for name, model in service.models.items():
        metrics.watch(name, model.gauges)

    @app.get("/metrics", include_in_schema=False)
    async def exposition() -> Response:
        """What Prometheus reads."""
        text, kind = metrics.text()
        return Response(text, headers={"content-type": kind})
