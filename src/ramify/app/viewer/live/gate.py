"""Who may ask the viewer: pages of this machine's own names only, and forks only with the page's token.

A page from elsewhere that a browser was led to by a forged name (DNS rebinding) names another host, and one
that posts here from its own place cannot read the token.
"""

from __future__ import annotations

import hmac
import json
from typing import Final, final
from urllib.parse import urlsplit

from ramify.app.server.guard import App, Event, Receive, Send
from ramify.app.server.keys import is_loopback
from ramify.app.server.refusal import Refused

#: The header in which the page sends its token back.
TOKEN: Final = "x-ramify-token"
#: What the page may load and do: nothing from elsewhere, no scripts in its text, no frame around it.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def _refused(what: str) -> Refused:
    return Refused(403, what, "invalid_request_error", "not_from_here")


@final
class Gate:
    """ASGI middleware: 403 for another host's name, another page's request, and a POST without the token."""

    def __init__(self, app: App, *, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower().decode("latin-1"): v.decode("latin-1") for name, v in scope["headers"]}

        async def with_headers(event: Event) -> None:
            if event["type"] == "http.response.start":
                told = {name.encode(): value.encode() for name, value in HEADERS.items()}
                kept = [(k, v) for k, v in event.get("headers", ()) if k.lower() not in told]
                event = {**event, "headers": [*kept, *told.items()]}
            await send(event)

        try:
            self._check(scope["method"], headers)
        except Refused as refusal:
            await _refuse(with_headers, refusal)
            return
        await self._app(scope, receive, with_headers)

    def _check(self, method: str, headers: dict[str, str]) -> None:
        host = headers.get("host", "")
        if not _is_here(f"//{host}"):
            raise _refused("this server answers under a name of this machine only, such as localhost")
        origin = headers.get("origin")
        if origin is not None and (not _is_here(origin) or urlsplit(origin).netloc != host):
            raise _refused("another page asked for this")
        if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise _refused("another page asked for this")
        if method not in ("GET", "HEAD") and not hmac.compare_digest(
            headers.get(TOKEN, "").encode(), self._token.encode()
        ):
            raise _refused("the page's token is missing or old; reload the page")


def _is_here(address: str) -> bool:
    """Whether an address names this machine."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


async def _refuse(send: Send, refusal: Refused) -> None:
    body = json.dumps(refusal.body).encode()
    kind = (b"content-type", b"application/json")
    await send({"type": "http.response.start", "status": refusal.status, "headers": [kind]})
    await send({"type": "http.response.body", "body": body})
