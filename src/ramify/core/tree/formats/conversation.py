"""What formats of conversations share: tool calls in one form, results that belong to a call, graded ends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ramify.core.errors import BadInput
from ramify.core.tree.formats.base import Record
from ramify.core.tree.node import Draft, node_id
from ramify.core.tree.score import Producer, Score
from ramify.core.types import Json, Message

ROLES = ("system", "user", "assistant", "tool")


def tool_call(name: str, arguments: Any, call: str | None = None) -> Json:
    """A tool call as OpenAI messages hold it; arguments that are no text become JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    made: Json = {"type": "function", "function": {"name": name, "arguments": text}}
    return {"id": call, **made} if call is not None else made


def calls_of(raw: Any, where: str) -> list[Json]:
    """Tool calls in any of their forms: OpenAI's, flat ones, and JSON texts of either.

    Raises:
        BadInput: one of them is no call.
    """
    found = []
    for number, item in enumerate(raw or [], start=1):
        body = item
        if isinstance(body, str):
            try:
                body = json.loads(body)
            except ValueError as error:
                raise BadInput(f"tool call {number} is not JSON: {error}", where=where) from error
        inner = body.get("function", body) if isinstance(body, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise BadInput(f"tool call {number} has no name", where=where)
        found.append(tool_call(inner["name"], inner.get("arguments"), body.get("id")))
    return found


def message_of(raw: Any, where: str) -> Message:
    """One message with its tool calls in OpenAI's form; reasoning stays in ``reasoning_content``.

    Raises:
        BadInput: no role that is known, or a content that is neither text nor parts.
    """
    if not isinstance(raw, Mapping):
        raise BadInput("a message is not an object", where=where)
    role = raw.get("role")
    # A completion endpoint's text has no role of its own.
    role = "user" if role in ("text", "developer") else role
    if role not in ROLES:
        raise BadInput(f"a message has the role {role!r}", where=where, hint="roles: " + ", ".join(ROLES))
    content = raw.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise BadInput("the content of a message is neither text nor parts", where=where)
    message: Message = {"role": role, "content": content}
    if raw.get("tool_calls"):
        message["tool_calls"] = calls_of(raw["tool_calls"], where)
    for name in ("tool_call_id", "name"):
        if raw.get(name) is not None:
            message[name] = raw[name]
    reasoning = raw.get("reasoning_content", raw.get("reasoning"))
    if isinstance(reasoning, str) and reasoning:
        message["reasoning_content"] = reasoning
    return message


def check_results(messages: Sequence[Message], where: str) -> None:
    """Raise BadInput where a tool's result answers no call, or one that was answered before.

    Calls without a result pass: a log may end there. Who trains on answers refuses them.
    """
    open_: set[str] = set()
    named = False
    for number, message in enumerate(messages, start=1):
        for call in message.get("tool_calls") or []:
            if call.get("id") is not None:
                open_.add(str(call["id"]))
                named = True
        answers = message.get("tool_call_id")
        if message["role"] != "tool" or answers is None or not named:
            continue
        if str(answers) not in open_:
            raise BadInput(
                f"message {number} is the result of call {answers!r}, which is not open",
                where=where,
                hint="was the log cut, or the result recorded twice?",
            )
        open_.discard(str(answers))


def graded(
    drafts: Iterable[Draft],
    producer: Producer,
    scores: Mapping[str, Any],
    error: str | None = None,
) -> Iterator[Record]:
    """Drafts, then the finite numbers among scores for the last of them, and the error that ended it."""
    items = list(drafts)
    if error and items:
        items[-1] = replace(items[-1], error=error)
    yield from items
    if items:
        yield from grades(items[-1], producer, scores)


def grades(end: Draft, producer: Producer, scores: Mapping[str, Any]) -> Iterator[Record]:
    """The finite numbers among scores, for one draft."""
    numbers = {
        name: float(value)
        for name, value in scores.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }
    if not numbers:
        return
    leaf = node_id(end.parent, end.keep, end.kind, str(end.key))
    yield producer
    for name, value in numbers.items():
        yield Score(leaf, name, value, producer.id)
