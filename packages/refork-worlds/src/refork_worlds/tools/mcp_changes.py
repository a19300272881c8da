"""Tools that a server takes away, adds or alters during an episode, told in a text and read from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from refork.types import Json
from refork_worlds.tools.call import compact

CAME: Final = "tools came :"
CHANGED: Final = "tools changed :"
WENT: Final = "tools went :"


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool of a server."""

    name: str
    doc: str
    parameters: Json

    @property
    def line(self) -> str:
        """What a policy is told of it: one line of JSON."""
        doc = {"description": self.doc} if self.doc else {}
        return compact({"name": self.name, **doc, "arguments": self.parameters})


def describe_changes(before: Mapping[str, Listed], now: Mapping[str, Listed]) -> str:
    """What became of the tools, each part in the order of their names; empty where nothing did."""
    came = [now[name].line for name in sorted(set(now) - set(before))]
    both = sorted(set(now) & set(before))
    changed = [now[name].line for name in both if now[name].line != before[name].line]
    went = [compact(name) for name in sorted(set(before) - set(now))]
    parts = ((CAME, came), (CHANGED, changed), (WENT, went))
    return "\n".join(line for head, lines in parts if lines for line in (head, *lines))


def after(tools: Sequence[Listed], texts: Iterable[str]) -> tuple[Listed, ...]:
    """The tools that are left after all that these texts tell of them."""
    found = {tool.name: tool for tool in tools}
    for text in texts:
        head = ""
        for line in text.split("\n"):
            if line in (CAME, CHANGED, WENT):
                head = line
            elif head:
                head = head if _take(found, head, line) else ""
    return tuple(found.values())


def _take(found: dict[str, Listed], head: str, line: str) -> bool:
    """Note a line below a heading; False where it is none of its lines."""
    try:
        body = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if head == WENT and isinstance(body, str):
        found.pop(body, None)
        return True
    if head == WENT or not isinstance(body, dict) or not isinstance(body.get("arguments"), dict):
        return False
    name = str(body.get("name"))
    found[name] = Listed(name, str(body.get("description", "")), body["arguments"])
    return True
