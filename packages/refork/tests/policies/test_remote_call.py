from __future__ import annotations

import httpx
import openai
import pytest

from refork.policies.remote.calls import Caller, CallFailed, Patience


def failing(status, message, calls):
    def call():
        calls.append(status)
        answer = httpx.Response(status, request=httpx.Request("POST", "http://localhost/v1/completions"))
        raise openai.InternalServerError(message, response=answer, body=None)

    return call


@pytest.mark.parametrize(
    ("message", "tries", "status"),
    [
        ("5 validation errors: prompt should be a string", 1, 500),
        ("out of memory", 3, None),
    ],
)
def test_a_request_that_cannot_be_read_is_refused_at_once_even_with_status_500(message, tries, status):
    calls = []
    caller = Caller("http://localhost/v1", Patience(tries=3), sleep=lambda seconds: None)
    with pytest.raises(CallFailed) as caught:
        caller(failing(500, message, calls), "a completion")
    assert len(calls) == tries
    assert caught.value.status == status
