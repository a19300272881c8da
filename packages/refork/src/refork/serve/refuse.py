"""Which HTTP answer each error becomes, in OpenAI's form."""

from __future__ import annotations

import logging
import re
from typing import Any, final

from refork.errors import BadInput, CannotDo, ServerError, UserError
from refork.serve.refusal import Refused, error_body
from refork.types import Json

_log = logging.getLogger("refork.server")
_ASKED = "invalid_request_error"
#: Complaints about one field that are told, and how pydantic spells the types of a union in a place.
_FORMS = 6
_TYPE = re.compile(r"(str|int|float|bool|dict)|.*\[.*|literal|[A-Z]\w+")


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
