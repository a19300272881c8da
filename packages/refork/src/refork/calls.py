"""Tool calls as text: one line of JSON without spaces, ``{"name":...,"arguments":{...}}``, the name first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from refork.types import Message


def compact(value: Any) -> str:
    """JSON without spaces, keys in the order they have; ASCII."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)


def call_text(name: str | None, arguments: Any = None) -> str:
    """A call as a turn writes it, its arguments in the order they have; None: without any.

    Letters stand as they are, but for halves of pairs, which no file could hold.
    """
    given = dict(arguments) if isinstance(arguments, Mapping) else arguments
    body = {"name": name, "arguments": {} if given is None else given}
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return compact(body)
    return text


def message_calls(message: Message) -> list[tuple[str | None, str]]:
    """Id and text of every tool call of a chat message; also of the older ``function_call``.

    Arguments that are the text of some JSON are read; other text stays text.
    """
    listed: list[Any] = list(message.get("tool_calls") or [])
    if not listed and message.get("function_call"):
        listed = [{"function": message["function_call"]}]
    found: list[tuple[str | None, str]] = []
    for call in listed:
        if not isinstance(call, Mapping):
            continue
        body = call.get("function", call)
        arguments = body.get("arguments")
        if isinstance(arguments, str):
            with suppress(ValueError, RecursionError):
                arguments = json.loads(arguments)
        name = call.get("id")
        found.append((None if name is None else str(name), call_text(body.get("name"), arguments)))
    return found
