"""What a browser may bring: the one check in front of every HTTP server of the package.

A browser sends what any open page tells it to, from this machine and with this machine's reach. What a page
cannot change is what is looked at: the host that the browser believes to talk to, the page's origin, and the
content type, of which it may choose only three without asking the server first.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, final
from urllib.parse import urlsplit

from refork.errors import BadInput
from refork.serve.keys import is_loopback
from refork.serve.refusal import Refused

#: What an answer that is no page may load and do in a browser: nothing.
NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#: A page of our own: nothing from elsewhere, and no scripts in its text.
PAGE: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'"
)
_NAME: Final = re.compile(r"\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9._-]*")
_HOST: Final = re.compile(rf"({_NAME.pattern})(?::([0-9]{{1,5}}))?")
_PORTS: Final = {"http": 80, "https": 443}
#: Methods that change nothing here, and the one that no page can send without asking first.
_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


def check_names(names: Iterable[str]) -> None:
    """Refuse what no ``Host`` header can name. Raises BadInput."""
    for name in names:
        if not _NAME.fullmatch(name.lower()):
            raise BadInput(
                f"{name!r} is no host's name", where="--allow-host", hint="a name or address, without a port"
            )


def check_origins(origins: Iterable[str]) -> None:
    """Refuse what is no origin of one site. Raises BadInput."""
    for origin in origins:
        if _origin(origin) is None:
            raise BadInput(
                f"{origin!r} is no origin of a page",
                where="--allow-origin",
                hint="as browsers write it: https://chat.example or http://localhost:3000; no * and no path",
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Who a server answers. ``host``: the address that it listens on.

    A request must name the server by a name of this machine, the address listened on or one of ``names``
    (where it listens on every address: by any address, which no name server can forge). ``keyed``: clients
    show a key, which no page has; then any name will do unless ``names`` are given. ``origins``: pages that
    may ask from elsewhere. ``policy``: what answers may do in a browser.
    """

    host: str = "127.0.0.1"
    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keyed: bool = False
    policy: str = NOTHING

    def __post_init__(self) -> None:
        check_names(self.names)
        check_origins(self.origins)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """What every answer tells the browser."""
        return [
            (b"cache-control", b"no-store"),
            (b"content-security-policy", self.policy.encode()),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]

    def check(self, scope: Any) -> None:
        """Let an ASGI request on. Raises Refused: 403 for where it comes from, 415 for what it is."""
        told: dict[bytes, list[str]] = {}
        for key, value in scope["headers"]:
            told.setdefault(key.lower(), []).append(value.decode("latin-1"))
        hosts = told.get(b"host", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            name = hosts[0][:80] if len(hosts) == 1 else ""
            raise _elsewhere(
                f"this server does not answer under the name {name!r}: name it by its address, "
                "or start it with --allow-host NAME"
            )
        if not self._is_from_here(hosts[0], told):
            raise _elsewhere("another page asked for this")
        if scope["method"] not in _BODILESS:
            kinds = told.get(b"content-type", [])
            if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != "application/json":
                raise Refused(
                    415,
                    "the request's content type must be application/json",
                    "invalid_request_error",
                    "unsupported_media_type",
                )

    def _is_ours(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1]
        if is_loopback(name) or name in {one.lower() for one in self.names}:
            return True
        # No page has the key, so a name that was made to lead here gains nothing.
        if self.keyed and not self.names:
            return True
        address = _address(name)
        if address is None:
            return name == self.host.lower()
        # An empty host listens on every address, as 0.0.0.0 does.
        bound = _address(self.host) if self.host else ipaddress.IPv4Address(0)
        return bound is not None and (bound.is_unspecified or address == bound)

    def _is_from_here(self, host: str, told: dict[bytes, list[str]]) -> bool:
        """By the browser's own word where it gives it, else by the page's origin; programs give neither."""
        sites, origins = told.get(b"sec-fetch-site", []), told.get(b"origin", [])
        if len(sites) > 1 or len(origins) > 1:
            return False
        # Asked first: by the browser's own word an allowed page of another site is cross-site, too.
        origin = _origin(origins[0]) if origins else None
        if origin is not None and origin in {_origin(one) for one in self.origins}:
            return True
        if sites and sites[0] not in ("same-origin", "none"):
            return False
        if not origins or sites == ["same-origin"]:
            return True
        # A Host header has no scheme, and a proxy in front may speak TLS: either scheme will do.
        return origin is not None and any(origin == _origin(f"{scheme}://{host}") for scheme in _PORTS)


def _elsewhere(what: str) -> Refused:
    return Refused(403, what, "invalid_request_error", "not_from_here")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _origin(text: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port of an origin; None for what is none, ``null`` included."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        return None
    # A browser's origin has no path, query or user: whatever has one is none.
    if (
        not parts.scheme
        or _HOST.fullmatch(parts.netloc) is None
        or f"{parts.scheme}://{parts.netloc}" != text.lower()
    ):
        return None
    return parts.scheme, parts.hostname or "", port if port is not None else _PORTS.get(parts.scheme)
