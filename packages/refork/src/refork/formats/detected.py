"""Secrets that detect-secrets knows, a detector that others maintain, beside our own shapes.

Its rules for forms (keys of services) and for names (``password = "..."``) are asked; those for entropy,
public addresses and the first line of a private key are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from detect_secrets.plugins.base import BasePlugin

#: Random-looking words are ids and digests in logs, an address is no secret, and of a private key we take
#: the body.
_NOT_ASKED: Final = frozenset(
    {"Base64HighEntropyString", "HexHighEntropyString", "IPPublicDetector", "PrivateKeyDetector"}
)
_NAMES: Final = "KeywordDetector"
#: One of these stands in every name that its rules for names know, in lower case.
STEMS: Final = ("pass", "pwd", "secret", "key", "contrase")
#: Nothing that it knows by its form is a shorter word.
_WORD: Final = re.compile(r"\S{20}")
#: Lines beyond this are data, and a rule may take long for them.
_LONGEST: Final = 20_000
_MANY: Final = 50


@cache
def _plugins() -> tuple[tuple[tuple[str, BasePlugin], ...], BasePlugin]:
    """Rules for forms with what each is called, and the rules for names."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class

    known: Mapping[str, type[BasePlugin]] = get_mapping_from_secret_type_to_class()
    made = {kind.__name__: (_slug(name), kind()) for name, kind in sorted(known.items())}
    forms = tuple(one for name, one in made.items() if name not in _NOT_ASKED | {_NAMES})
    return forms, made[_NAMES][1]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def by_form(text: str) -> Iterator[tuple[str, str]]:
    """(kind, value) of what the form gives away, line by line; a value may stand there more than once."""
    for line in text.splitlines():
        if len(line) <= _LONGEST and _WORD.search(line):
            for kind, plugin in _plugins()[0]:
                for value in plugin.analyze_string(line):
                    yield kind, value


def by_name(text: str) -> Iterator[str]:
    """Values in quotes beside a name that says they are secret."""
    names = _plugins()[1]
    for line in text.splitlines():
        rest = line if len(line) <= _LONGEST else ""
        # Of each rule it gives the first value of a line.
        for _ in range(_MANY):
            lower = rest.lower()
            found = list(names.analyze_string(rest)) if any(stem in lower for stem in STEMS) else []
            yield from found
            end = max((rest.find(value) + len(value) for value in found), default=0)
            if not end:
                break
            rest = rest[end:]
