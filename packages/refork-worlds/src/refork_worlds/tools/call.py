"""What a policy's turn calls, read from its text; written by :func:`refork.calls.call_text`."""

from __future__ import annotations

import json
import re
from typing import Any

from refork.calls import call_text, compact
from refork.errors import BadInput
from refork.thoughts import without_thoughts

__all__ = ["call_line", "call_text", "compact", "read_call", "spoken"]

_LONGEST = 20_000
_FENCE = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)


def spoken(text: str) -> str:
    """What a policy's turn says: after its thoughts, its last fenced block, or all of it."""
    said = without_thoughts(text)
    fenced = _FENCE.findall(said)
    return (fenced[-1] if fenced else said).strip()


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call; other forms of the same call are read as well.

    ``arguments`` may be missing, or a JSON text, as servers send it.

    Raises:
        BadInput: the text is no call.
    """
    said = spoken(text)
    try:
        body: Any = json.loads(said) if len(said) <= _LONGEST else None
        name = body["name"]
        arguments = body.get("arguments", {})
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadInput("this is not a call", hint='{"name": ..., "arguments": {...}}') from error
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BadInput("this is not a call", hint='{"name": ..., "arguments": {...}}')
    return name, arguments


def call_line(text: str) -> str:
    """The call of a turn as one line; what is no call as it was said."""
    try:
        return call_text(*read_call(text))
    except BadInput:
        return spoken(text)
