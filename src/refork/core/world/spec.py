"""World specifications: ``household:2?slip=0.1`` taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, final
from urllib.parse import unquote

from refork.core.errors import BadInput


@final
@dataclass(frozen=True)
class Spec:
    """The parts of ``NAME:ARGUMENT?option=value&option=value``."""

    name: str
    argument: str
    options: dict[str, Any]
    query: str

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Take a specification apart; option values are read as JSON where they are JSON, else as text."""
        body, _, query = text.strip().partition("?")
        name, _, argument = body.partition(":")
        pairs = [item.partition("=") for item in query.split("&")] if query else []
        if not all(key and equals for key, equals, _ in pairs):
            raise BadInput(f"options {query!r} are not option=value&option=value", where=text)
        return cls(name, argument, {key: _value(unquote(value)) for key, _, value in pairs}, query)

    def take(self, known: dict[str, type | tuple[type, ...]]) -> dict[str, Any]:
        """The options, each known and of its type; raises BadInput otherwise."""
        for key, value in self.options.items():
            if key not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise BadInput(f"unknown option {key!r}", where=self.name, hint=f"options: {allowed}")
            if not isinstance(value, known[key]) or (isinstance(value, bool) and known[key] is not bool):
                raise BadInput(f"option {key} cannot be {value!r}", where=self.name)
        return dict(self.options)


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value
