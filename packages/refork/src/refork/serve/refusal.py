"""What the server refuses, in the form that OpenAI's clients understand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import final

from refork.errors import UserError
from refork.types import Json


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


def wrong_key() -> Refused:
    """No key, or one that is not accepted."""
    return Refused(401, "this server wants an API key", "authentication_error", "invalid_api_key")


def too_busy(what: str, retry_s: float, code: str = "server_overloaded") -> Refused:
    """More work than may wait."""
    return Refused(429, what, "rate_limit_error", code, retry_s=retry_s)


def too_large(limit: int) -> Refused:
    """A body over the limit."""
    said = f"the request is longer than {limit:,} bytes"
    return Refused(413, said, "invalid_request_error", "request_too_large")


def too_slow_body(seconds: float) -> Refused:
    """A body that did not come in time."""
    said = f"the request did not arrive within {seconds:g} s"
    return Refused(408, said, "invalid_request_error", "request_timeout")


def out_of_time(seconds: float) -> Refused:
    """An answer that did not end in time."""
    said = f"no complete answer within {seconds:g} s"
    return Refused(504, said, "timeout_error", "timeout")
