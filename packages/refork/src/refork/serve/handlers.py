"""What an application answers where a request fails: OpenAI's error object, whatever failed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from refork.errors import UserError
from refork.serve.refusal import error_body, headers_of, status_and_body, validation_error
from refork.serve.stream import json_answer
from refork.serve.web import HTTPException, Request, RequestValidationError, Response
from refork.types import Json

Handler: TypeAlias = Callable[[Request, Any], Coroutine[Any, Any, Response]]


def error_handlers(
    refuse: Callable[[Exception], tuple[int, Json]] = status_and_body, *, name_paths: bool = False
) -> dict[int | type[Exception], Handler]:
    """Handlers for FastAPI. ``refuse`` gives an error's status and body.

    ``name_paths``: where nothing answers, the message names what was asked for in place of what was raised.
    """

    async def refused(request: Request, error: Exception) -> Response:
        status, body = refuse(error)
        return json_answer(body, status, headers_of(error))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await refused(request, validation_error(list(error.errors())))

    async def elsewhere(request: Request, error: Exception) -> Response:
        """No such path, not by this method, or a body that cannot be read."""
        status = getattr(error, "status_code", 404)
        said = str(getattr(error, "detail", ""))
        if name_paths and status in (404, 405):
            said = f"nothing answers {request.method} {request.url.path} here"
        body = error_body(said, "invalid_request_error")
        return json_answer(body, status, getattr(error, "headers", None))

    return {RequestValidationError: invalid, HTTPException: elsewhere, UserError: refused, Exception: refused}
