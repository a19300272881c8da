"""API keys: where they come from, how they are compared, and which addresses need one."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.settings import variable

ENVIRONMENT = "REFORK_SERVER_KEY"
#: Who a request counts for where no key is asked for.
EVERYBODY = "open"

_log = logging.getLogger("refork.server")


def read_keys(file: Path | None = None, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """Keys of the environment's ``REFORK_SERVER_KEY`` and of a file, one a line; ``#`` begins a comment line.

    A file that other users may read is warned of in the log.

    Raises:
        BadInput: the file cannot be read, holds no key, or a key is not printable ASCII without spaces.
    """
    found: list[str] = []
    if (one := variable(ENVIRONMENT, environment)) is not None:
        found.append(_checked(one.strip(), f"environment, {ENVIRONMENT}"))
    if file is not None:
        found += _from_file(file)
    return frozenset(found)


def _from_file(file: Path) -> list[str]:
    try:
        text, mode = file.read_text(encoding="utf-8"), file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the key file cannot be read: {error}", where=str(file)) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        _log.warning("the key file %s is open to other users; chmod 600 closes it", file)
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    keys = [_checked(line, f"{file}, line {number}") for number, line in lines if line and line[0] != "#"]
    if not keys:
        raise BadInput("the key file holds no key", where=str(file), hint="one key a line")
    return keys


def _checked(key: str, where: str) -> str:
    """The key, if clients can send it. The error never shows it."""
    if not key or not all(33 <= ord(letter) <= 126 for letter in key):
        raise BadInput("a key is printable ASCII without spaces", where=where)
    return key


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_address(host: str, keys: Iterable[str]) -> None:
    """Refuse to listen beyond this machine without a key.

    Raises:
        BadInput: other machines could reach ``host``, and there is no key.
    """
    if not is_loopback(host) and not list(keys):
        raise BadInput(
            f"other machines could reach {host or 'every address'!r}, and the server has no key",
            hint=f"set {ENVIRONMENT} or give --key-file, or listen on 127.0.0.1",
        )


@final
class ApiKeys:
    """Who may come in. Every accepted key is compared, by digest and in constant time, whichever was sent."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(sorted(hashlib.sha256(key.encode()).digest() for key in keys))

    @property
    def asked_for(self) -> bool:
        """Whether clients need a key."""
        return bool(self._digests)

    def holder(self, authorization: str | None) -> str | None:
        """A name for whoever sent this header, a digest of the key; None: not to be let in."""
        if not self._digests:
            return EVERYBODY
        scheme, _, sent = (authorization or "").partition(" ")
        # Headers come decoded as Latin-1; these are the bytes that were sent.
        digest = hashlib.sha256(sent.strip().encode("latin-1", "replace")).digest()
        # A list: `any` over a generator would stop at the match, and its time would tell which key it was.
        known = [hmac.compare_digest(digest, one) for one in self._digests]
        return f"key-{digest.hex()[:12]}" if any(known) and scheme.lower() == "bearer" else None
