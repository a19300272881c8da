"""Specifications of worlds, and of what else takes options: ``household:2?slip=0.1`` taken apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.parse import unquote

from refork import registry
from refork.errors import BadInput


@final
@dataclass(frozen=True)
class Spec:
    """The parts of ``NAME:ARGUMENT?option=value&option=value``.

    NAME may be ``module:Name`` or ``file.py:Name``. ``recorded``: a record says so, and no user.
    """

    name: str
    argument: str
    options: dict[str, Any]
    query: str
    recorded: bool = False

    @classmethod
    def parse(cls, text: str, kind: registry.Kind = "worlds") -> Spec:
        """Take a specification apart; option values are read as JSON where they are JSON, else as text."""
        body, _, query = text.strip().partition("?")
        name, argument = registry.split(kind, body)
        pairs = [item.partition("=") for item in query.split("&")] if query else []
        if not all(key and equals for key, equals, _ in pairs):
            raise BadInput(f"options {query!r} are not option=value&option=value", where=text)
        return cls(name, argument, {key: _value(unquote(value)) for key, _, value in pairs}, query)

    def typed(self, what: str) -> None:
        """Raises BadInput where a record, and no user, would have ``what`` be run or imported."""
        if self.recorded:
            raise BadInput(
                f"a record names {what}, which opening it would run, and records run nothing",
                where=f"recorded world {self.name}",
                hint="name the world yourself where you trust it: --world SPEC",
            )

    def alone(self) -> None:
        """Raises BadInput where an argument was given: this world takes none."""
        if self.argument:
            raise BadInput(f"{self.name} takes no argument, not {self.argument!r}", where=self.name)

    def take(self, known: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
        """The options, each known and of its type; raises BadInput otherwise."""
        for key, value in self.options.items():
            if key not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise BadInput(f"unknown option {key!r}", where=self.name, hint=f"options: {allowed}")
            # A truth value is a whole number to Python, and no size.
            if not isinstance(value, known[key]) or (isinstance(value, bool) and known[key] is not bool):
                raise BadInput(f"option {key} cannot be {value!r}", where=self.name)
        return dict(self.options)


def family(name: str) -> str:
    """A world's name without its argument, its options, and who simulates it. Nothing is imported.

    Of a file it is the file's own name with what it holds: the same file is found from any folder.
    """
    body = name.removeprefix("simulated:").partition("?")[0]
    file, mark, rest = body.partition(".py:")
    head = body.partition(":")[0]
    if not mark or registry.known("worlds", head):
        return head
    return f"{Path(file).name}.py:{rest.partition(':')[0]}"


def _value(text: str) -> Any:
    # JSON knows truth values in lower case only, and people write True.
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value
