"""Goals in an MCP server, as JSON lines.

Each has a ``prompt`` and, to be graded, an ``answer`` or ``checks`` (calls and the text that they must answer
at the end); if known a ``solution`` (calls), an ``initial_state``, a ``split`` and an ``id``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from refork.errors import BadInput
from refork.jsonl import json_objects
from refork.types import Json
from refork.worlds.base import Split

_GOAL = {"id", "prompt", "answer", "checks", "solution", "initial_state", "split"}


def read_goals(path: Path) -> Iterator[Json]:
    """The goals of a file; raises BadInput naming a line."""
    if not path.is_file():
        raise BadInput("there is no such file", where=str(path))
    named: set[str] = set()
    with path.open(encoding="utf-8") as lines:
        for place, body in json_objects(lines, str(path)):
            _check(body, place)
            if "id" in body:
                if str(body["id"]) in named:
                    raise BadInput(f"another goal has the id {body['id']!r}", where=place)
                named.add(str(body["id"]))
            yield body


def _check(body: Json, place: str) -> None:
    unknown = sorted(set(body) - _GOAL)
    if unknown or not isinstance(body.get("prompt"), str):
        what = f"a goal has no {unknown[0]!r}" if unknown else "a goal has no prompt"
        raise BadInput(what, where=place, hint=", ".join(sorted(_GOAL)))
    if body.get("split") not in (None, *get_args(Split)):
        raise BadInput(f"there is no split {body['split']!r}", where=place, hint=" or ".join(get_args(Split)))
    if isinstance(body.get("answer"), list | dict):
        raise BadInput("an answer is a text or a number", where=place)
    if not _calls(body.get("checks")) or not all(
        isinstance(one.get("answer"), str) for one in body.get("checks") or []
    ):
        raise BadInput("a check has a name, arguments and an answer, a text", where=place)
    if not _calls(body.get("solution")):
        raise BadInput("a solution is a list of calls, each with a name and arguments", where=place)


def _calls(given: Any) -> bool:
    """Whether these are calls, or none."""
    return given is None or (
        isinstance(given, list)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("arguments", {}), dict)
            for one in given
        )
    )
