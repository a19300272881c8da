"""What an action is called, read from its text."""

from __future__ import annotations

import json
import re
from typing import Any


def tool_call(action: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of a tool call in its canonical JSON; None where the text is none."""
    if not action.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(action)
        arguments = body.get("arguments", {})
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return None
    name = body.get("name")
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def name_of(action: str) -> str:
    """What an action is called: the tool's name, the verb before a colon, or the first word."""
    call = tool_call(action)
    if call is not None:
        return call[0]
    found = re.match(r"\s*([\w.-]+)", action)
    return found.group(1) if found else ""
