"""A conversation as raw lines of ``role: content``: the text that a router's backbone reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from refork.errors import BadInput

_BEGINS = re.compile(r"(system|developer|user|assistant|tool): ")


def raw_lines(messages: Sequence[Mapping[str, Any]]) -> str:
    """A transcript as lines of ``role: content``; tool calls follow their message as one line of JSON.

    What a message says is not escaped: a line of it that begins ``assistant: `` reads like a turn.

    Raises: BadInput for no message, or one without a role.
    Source: arXiv:2606.21228 (no chat template); where tool calls go is ours.
    """
    if not messages:
        raise BadInput("there is no message to render")
    lines = []
    for number, message in enumerate(messages):
        if not message.get("role"):
            raise BadInput("a message has no role", where=f"message {number}")
        lines.append(f"{message['role']}: {_text(message.get('content'))}")
        if message.get("tool_calls"):
            lines.append(json.dumps(message["tool_calls"], sort_keys=True, ensure_ascii=False))
    return "\n".join(lines)


def as_lines(text: str) -> str:
    """The raw lines of a table's text: itself where it begins with a role, else one user message."""
    return text if _BEGINS.match(text) else raw_lines([{"role": "user", "content": text}])


def _text(content: Any) -> str:
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        return "\n".join(str(part) for part in parts if part is not None)
    return "" if content is None else str(content)
