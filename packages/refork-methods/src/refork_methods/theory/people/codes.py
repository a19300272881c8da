"""Completion codes, and names under which nobody can be found without the study's key."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final, final
from urllib.parse import quote, urlsplit

from refork.errors import BadInput
from refork_methods.theory.people.recruiter import Recruited

#: Letters and digits that nobody mistakes for one another.
ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
LENGTH: Final = 10
_CODE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PROLIFIC: Final = "https://app.prolific.com/submissions/complete?cc={code}"


@final
@dataclass(frozen=True, slots=True)
class Completion:
    """What a person is given at the end: the study's one ``code`` (None: one of their own) and a way back.

    ``address`` may hold ``{code}``. Without one, people whom Prolific sent get Prolific's.

    Raises: BadInput for a code of other signs than letters, digits, - and _, or an address that is not https.
    """

    code: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.code is not None and not _CODE.match(self.code):
            raise BadInput(f"the completion code is {self.code!r}", hint="letters, digits, - and _")
        if self.address is not None:
            require_https(self.address)

    def of(self, own: str) -> str:
        """The code of a person whose own is given."""
        return own if self.code is None else self.code

    def way_back(self, code: str, recruiter: str | None) -> str | None:
        """The address a person returns to; None where there is none."""
        address = self.address
        if address is None and recruiter == "prolific" and self.code is not None:
            address = _PROLIFIC
        return None if address is None else address.replace("{code}", quote(code, safe=""))


def require_https(address: str) -> None:
    """Refuse an address that a person's browser should not be sent to. Raises BadInput."""
    try:
        parts = urlsplit(address)
        near = parts.hostname in ("localhost", "127.0.0.1", "::1")
    except ValueError as error:
        raise BadInput(f"{address!r} is no address") from error
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and near)):
        raise BadInput(f"{address!r} is no https address")


def new_code() -> str:
    """A completion code that nobody can guess (49 bits)."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def new_key() -> str:
    """The key of a study: 64 hex digits."""
    return secrets.token_hex(32)


def pseudonym(key: str, who: Recruited) -> str:
    """The name a recruited person has in the results: the same for each visit, 32 hex digits."""
    return _sealed(key, f"{who.recruiter}\n{who.person}")


def sealed_session(key: str, who: Recruited) -> str | None:
    """A visit, sealed in the same way; None where the service names none."""
    return None if who.session is None else _sealed(key, f"{who.recruiter}\n{who.person}\n{who.session}")


def _sealed(key: str, text: str) -> str:
    return hmac.new(bytes.fromhex(key), text.encode(), hashlib.sha256).hexdigest()[:32]


def token_digest(token: str) -> str:
    """What is kept of a browser's token; the token itself is never written down."""
    return hashlib.sha256(token.encode()).hexdigest()[:32]
