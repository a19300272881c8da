"""What a web page can do to a server on its reader's machine: docs/serving.md says what is shown here."""

import httpx
import pytest
from starlette.testclient import TestClient

from ramify.app.server.build import create_app
from ramify.core.chat import ScriptedChat

ASKED = b'{"model": "m", "messages": [{"role": "user", "content": "what is it?"}]}'
#: A page under a name that leads to this machine now, and one that posts from its own place.
REBOUND = {"host": "page.example:8000", "origin": "http://page.example:8000"}
FOREIGN = {"host": "127.0.0.1:8000", "origin": "http://page.example", "sec-fetch-site": "cross-site"}


def asked(headers, key=None):
    app = create_app({"m": ScriptedChat(lambda messages: "a secret", "m")}, key=key)
    with TestClient(app) as client:
        # No content type: what a page may send anywhere without asking the server first.
        return client.post("/v1/chat/completions", content=ASKED, headers=headers)


@pytest.mark.parametrize("headers", [REBOUND, FOREIGN])
def test_without_a_key_a_page_is_answered(headers):
    """The rebound page is of the same origin, so its browser lets it read this answer."""
    answer = asked(headers)
    assert answer.status_code == httpx.codes.OK
    assert answer.json()["choices"][0]["message"]["content"] == "a secret"
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("headers", [REBOUND, FOREIGN])
def test_with_a_key_a_page_is_refused(headers):
    answer = asked(headers, key="k")
    assert answer.status_code == httpx.codes.UNAUTHORIZED
    assert "a secret" not in answer.text
