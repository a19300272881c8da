"""Domains of e-mail recipients.

A mail goes to what stands in angle brackets, whatever the display name says, and to a domain, whatever stands
before its last ``@``. The parsers of the standard library drop or mend doubtful addresses, each in another
way; a guard may do neither, so every domain that a recipient names outside quotes and comments counts.
"""

from __future__ import annotations

import re
import unicodedata

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"')
_COMMENT = re.compile(r"\([^()]*\)")
_BRACKETS = re.compile(r"<([^<>]*)>")
_DOMAIN = re.compile(r"@\s*(\[[^\]]*\]|[^\s@<>,;:\"]*)")


def domains(recipients: str) -> list[str | None]:
    """The domains of one field of recipients, ASCII and lower case; None for one that names no domain.

    An international name is in its ``xn--`` form, so a letter that only looks like another differs; a name
    that is no valid host name is kept as it is written, with ``?`` before it.
    """
    text = unicodedata.normalize("NFKC", recipients)
    text = _COMMENT.sub(" ", _QUOTED.sub("q", text))
    found: list[str | None] = []
    for piece in re.split(r"[,;\r\n]", text):
        bracketed = _BRACKETS.findall(piece)
        parts = bracketed or [piece]
        for part in parts:
            if part.strip():
                named = _DOMAIN.findall(part)
                found += [host(name) if name else None for name in named] or [None]
    return found


def host(name: str) -> str:
    """A domain in its ASCII form, lower case, without the root's dot."""
    bare = name.strip().removesuffix(".")
    try:
        return bare.encode("idna").decode("ascii").lower() if bare else "?"
    except UnicodeError:
        return f"?{bare.lower()}"


def within(domain: str, allowed: str, *, subdomains: bool) -> bool:
    """Whether a domain is an allowed one, or with ``subdomains`` a name below it."""
    inside = host(allowed)
    return domain == inside or (subdomains and domain.endswith(f".{inside}"))
