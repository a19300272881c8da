"""Real Chromium with a stranger's page: nothing is read, nothing is written, and no model is asked."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")

from refork.serve.local import http_server, running
from refork_worlds.web import browser
from support.hostile_pages import ATTACKS, STRANGER, attacked

WHY = browser.missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=WHY or "")


@pytest.fixture(scope="module", autouse=True)
def closed():
    yield
    browser.close()


class Open:
    """An application without a gate, which notes what reaches it."""

    def __init__(self):
        self.seen = []

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        told = {name.decode(): value.decode() for name, value in scope["headers"]}
        body = (await receive()).get("body", b"")
        self.seen.append((scope["method"], told, body))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


def test_these_attacks_reach_a_server_without_a_gate():
    """Without this, the test below would hold of pages that cannot ask at all."""
    app = Open()

    @contextmanager
    def serve(port):
        server = http_server(lambda: app, head_s=9, connections=99, drain_s=1)
        with running(server, "127.0.0.1", port) as address:
            yield address

    tries = attacked(serve, ["/g"], [("/p", '{"model": "m"}')])
    read = [kind for place, kind, _, said in tries if (place, said) == ("rebound", "read")]
    assert {"fetch", "xhr", "script", "iframe", "fetch application/json", "form text/plain"} <= set(read)
    posts = [
        told for method, told, body in app.seen if method == "POST" and body.startswith(b'{"model": "m"')
    ]
    across = [told for told in posts if not told["host"].startswith(STRANGER)]
    kinds = {told.get("content-type") for told in across}
    assert {None, "text/plain", "text/plain;charset=UTF-8", "text/plain; application/json"} <= kinds
    assert "application/json" in {told.get("content-type") for told in posts}
    assert all(told["origin"].startswith(f"http://{STRANGER}:") for told in across)
    assert any("upgrade" in told for _, told, _ in app.seen)


@pytest.mark.parametrize(
    ("server", "name"), [*((one, "127.0.0.1") for one in ATTACKS), ("serve", "localhost")]
)
def test_a_strangers_page_gets_nothing_and_does_nothing(server, name, tmp_path):
    got = ATTACKS[server](tmp_path, name)
    assert {place for place, *_ in got.tries} == {"across", "rebound"}
    assert len(got.tries) > 80
    assert got.read == []
    assert (got.answered, got.written) == (0, 0)
    assert got.statuses <= {"403", "415"}
    assert got.statuses or server != "serve"
