"""What the server refuses, and which HTTP answer each error becomes, in OpenAI's form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, final

from refork.errors import BadInput, CannotDo, ServerError, UserError
from refork.types import Json

_ASKED = "invalid_request_error"
#: Complaints about one field that are told, and how pydantic spells the types of a union in a place.
_FORMS = 6
_TYPE = re.compile(r"(str|int|float|bool|dict)|.*\[.*|literal|[A-Z]\w+")


@final
class Refused(UserError):
    """A request that gets an error in place of an answer: its HTTP status and OpenAI's type and code.

    ``retry_s``: after how many seconds it may be worth another try; it becomes ``Retry-After``.
    """

    def __init__(
        self, status: int, what: str, kind: str, code: str | None = None, *, retry_s: float | None = None
    ) -> None:
        super().__init__(what)
        self.status = status
        self.kind = kind
        self.code = code
        self.retry_s = retry_s

    @property
    def body(self) -> Json:
        """OpenAI's error object."""
        return error_body(self.what, self.kind, self.code)

    @property
    def headers(self) -> dict[str, str]:
        """Headers beside the body."""
        # The header has whole seconds, and 0 would bring the client back at once.
        told = {} if self.retry_s is None else {"retry-after": str(max(1, round(self.retry_s)))}
        if self.status == 401:
            told["www-authenticate"] = "Bearer"
        return told

    @property
    def event(self) -> bytes:
        """The last event of a stream that cannot go on."""
        return error_event(self.body)


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> Json:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_event(body: Mapping[str, object]) -> bytes:
    """An error object as a server-sent event."""
    return f"data: {json.dumps(body)}\n\n".encode()


def too_busy(what: str, retry_s: float, code: str = "server_overloaded") -> Refused:
    """More work than may wait."""
    return Refused(429, what, "rate_limit_error", code, retry_s=retry_s)


@final
class UnknownModel(BadInput):
    """No model of that name is served here."""


@final
class BadParameter(BadInput):
    """A field of a request that cannot be had; ``param`` names it."""

    def __init__(self, param: str, what: str, hint: str | None = None) -> None:
        super().__init__(what, where=param, hint=hint)
        self.param = param


def require_text(text: str, param: str) -> None:
    """Refuse what JSON can spell and no text can hold: half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadParameter(param, f"{param}: this is no unicode text: {error.reason}") from error


def status_and_body(error: Exception) -> tuple[int, Json]:
    """HTTP status and OpenAI's error object. Of a fault of ours it says no more than that; the log does."""
    if isinstance(error, Refused):
        return error.status, error.body
    if isinstance(error, UnknownModel):
        return 404, error_body(str(error), _ASKED, "model_not_found", "model")
    if isinstance(error, BadParameter):
        return 400, error_body(str(error), _ASKED, None, error.param)
    if isinstance(error, BadInput | CannotDo):
        return 400, error_body(str(error), _ASKED)
    if isinstance(error, ServerError):
        return 502, error_body(str(error), "upstream_error")
    if isinstance(error, UserError):  # a full disk, a log that another process writes: not the client's doing
        return 500, error_body(str(error), "server_error")
    return 500, error_body("the server failed; its log says how", "server_error")


def headers_of(error: Exception) -> dict[str, str]:
    """Headers beside the error."""
    return error.headers if isinstance(error, Refused) else {}


def validation_error(errors: list[Any]) -> BadParameter:
    """The first of pydantic's complaints about a body, with its field named."""
    first = errors[0]
    place = _field(first)
    if first["type"] == "json_invalid":
        return BadParameter("body", f"body: the request is not valid JSON: {first['ctx']['error']}")
    name = ".".join(str(part) for part in place) or "body"
    # A field that may have several forms has a complaint for each of them.
    said = dict.fromkeys(
        str(error["msg"]) for error in errors[:_FORMS] if _field(error)[: len(place)] == place
    )
    return BadParameter(name, f"{name}: {', or: '.join(said)}")


def _field(error: Any) -> list[Any]:
    """A complaint's place in the body, without the names of types that pydantic tried there."""
    return [part for part in error["loc"] if part != "body" and not _TYPE.fullmatch(str(part))]
