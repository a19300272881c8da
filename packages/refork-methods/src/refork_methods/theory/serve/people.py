"""A study's page and its answers over HTTP: thin endpoints on a conduct."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from refork.serve.gate import PAGE, Gate
from refork.serve.refusal import error_body, status_and_body
from refork.serve.settings import ServerSettings
from refork.serve.stream import error_handlers, json_answer
from refork.serve.web import FastAPI, HTTPException, Request, Response, application
from refork.types import Json
from refork_methods.theory.people.conduct import Conduct, NotNow, Standing, UnknownVisitor
from refork_methods.theory.people.page_files import ASSETS, asset, page
from refork_methods.theory.people.record import Answer
from refork_methods.theory.people.recruiter import BadLink

#: Bytes of one request; an answer takes about two hundred.
LONGEST = 16 << 10
Sign = Literal["webdriver", "untrusted", "trap"]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PageBody(_Body):
    """The window that the page was opened in."""

    width: int = Field(ge=0, le=100_000)
    height: int = Field(ge=0, le=100_000)
    touch: bool


class BeginBody(_Body):
    """``params``: of the address, recruiting services' among them; ``texts``: digest of those agreed to."""

    params: dict[str, str] = Field(default_factory=dict, max_length=64)
    bot: list[Sign] = Field(default_factory=list, max_length=8)
    page: PageBody | None = None
    texts: str | None = Field(default=None, max_length=64)


class AnswerBody(_Body):
    """One choice."""

    index: int = Field(ge=0)
    stimulus: int = Field(ge=0)
    response: int = Field(ge=0, le=1)
    rt_ms: float = Field(ge=0, lt=1e10, allow_inf_nan=False)
    by: Literal["key", "button"]
    away_ms: float = Field(ge=0, lt=1e10, allow_inf_nan=False)


class EndBody(_Body):
    """What was noticed until the end."""

    away_ms: float = Field(ge=0, lt=1e10, allow_inf_nan=False)
    bot: list[Sign] = Field(default_factory=list, max_length=8)


def create_people_app(conduct: Conduct, *, host: str = "127.0.0.1", names: Collection[str] = ()) -> FastAPI:
    """The application of a study. Whoever asks sees their own part and no other: it is found by their token.

    ``host``: the address that it will listen on; ``names``: others that it is reached by, a proxy's included.

    Raises:
        BadInput: one of the names is none.
        MissingExtra: fastapi is not installed (extra ``serve``).
    """
    app = application(
        "Refork study",
        gate=Gate(host=host, names=frozenset(names), linked=True, policy=f"{PAGE}; form-action 'self'"),
        settings=ServerSettings(max_body=LONGEST, body_s=20.0, timeout_s=60.0),
        handlers=error_handlers(_refusal),
        openapi_url=None,
    )
    _add_page(app, conduct)
    _add_answers(app, conduct)
    return app


def _add_page(app: FastAPI, conduct: Conduct) -> None:
    shown = page(conduct.study, "server")

    @app.get("/health")
    def health() -> Response:
        """For load balancers."""
        return json_answer({"status": "ok"})

    @app.get("/")
    def index() -> Response:
        """The page; parameters of its address are read by its script."""
        return Response(shown, media_type="text/html; charset=utf-8")

    @app.get("/assets/{name:path}")
    def part(name: str) -> Response:
        """A script, style or licence."""
        if name not in ASSETS:
            raise HTTPException(404, "there is nothing here")
        return Response(asset(name), media_type=ASSETS[name])


def _add_answers(app: FastAPI, conduct: Conduct) -> None:
    # Plain functions: each waits for the disk, in a thread of its own.
    @app.post("/api/begin")
    def begin(body: BeginBody, request: Request) -> Response:
        """Consent was given."""
        window = None if body.page is None else body.page.model_dump()
        return _standing_answer(conduct.begin(_token(request), body.params, body.bot, window, body.texts))

    @app.post("/api/standing")
    def standing(request: Request) -> Response:
        """Where this person is, after a reload."""
        return _standing_answer(conduct.standing(_token(request)))

    @app.post("/api/answer")
    def answer(body: AnswerBody, request: Request) -> Response:
        """A choice; acknowledged when it is on the disk."""
        return _standing_answer(conduct.answer(_token(request), Answer(**body.model_dump())))

    @app.post("/api/end")
    def end(body: EndBody, request: Request) -> Response:
        """All choices are made."""
        return _standing_answer(conduct.end(_token(request), body.away_ms, body.bot))

    @app.post("/api/withdraw")
    def withdraw(request: Request) -> Response:
        """Consent is taken back."""
        return _standing_answer(conduct.withdraw(_token(request)))


def _standing_answer(standing: Standing) -> Response:
    return json_answer(standing.to_json())


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refusal(error: Exception) -> tuple[int, Json]:
    """Status and body of what a visitor cannot have."""
    status, body = status_and_body(error)
    if isinstance(error, UnknownVisitor):
        status = 401
    elif isinstance(error, NotNow):
        status, body = 409, error_body(error.what, "invalid_request_error", error.code)
    elif isinstance(error, BadLink):
        body = error_body(error.what, "invalid_request_error", "link")
    return status, body
