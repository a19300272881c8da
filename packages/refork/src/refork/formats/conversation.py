"""What formats of conversations share: tool calls in one form, results that belong to a call, graded ends."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from refork.errors import BadInput
from refork.json_guard import parse_json
from refork.plain import content_hash
from refork.policies.base import Sampling
from refork.policies.sent import REQUEST
from refork.tree.node import NewNode, node_id
from refork.tree.records import Record
from refork.tree.score import Producer, Score
from refork.types import Json, Message

#: Sampling settings by the names that requests have for them.
_SETTINGS: Final = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens", "stop": "stop", "stop_sequences": "stop",
}  # fmt: skip
#: Parameters of the chat interface; what else stands beside them in a log is its own.
_ASKED: Final = (
    *("temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "tool_choice", "logit_bias"),
    *("parallel_tool_calls", "response_format", "reasoning_effort", "frequency_penalty", "presence_penalty"),
)
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
                body = parse_json(body.encode(), where)
            except BadInput as error:
                raise BadInput(f"tool call {number}: {error.what}", where=error.where) from error
        inner = body.get("function", body) if isinstance(body, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise BadInput(f"tool call {number} has no name", where=where)
        found.append(tool_call(inner["name"], inner.get("arguments", inner.get("args")), body.get("id")))
    return found


def tools_of(given: Any, where: str) -> Any:
    """The tools that a file names, None where it names none.

    Raises:
        BadInput: something else than a list or an object stands there.
    """
    if given and not isinstance(given, list | dict):
        raise BadInput(f"the tools are a {type(given).__name__}, not a list", where=where)
    return given or None


def message_of(raw: Any, where: str) -> Message:
    """One message with its tool calls in OpenAI's form; reasoning stays in ``reasoning_content``.

    Raises:
        BadInput: no role that is known, or a content that is neither text nor parts.
    """
    if not isinstance(raw, Mapping):
        raise BadInput("a message is not an object", where=where)
    role = raw.get("role")
    # A completion endpoint's text has no role of its own; "developer" is a newer word for the system's.
    role = {"text": "user", "developer": "system"}.get(role, role) if isinstance(role, str) else role
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


def mapping(value: Any) -> Mapping[str, Any]:
    """A value that a log should have as an object; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}


def count_of(body: Any, *names: str) -> int | None:
    """The first whole number under some names, as a count of tokens; None where there is none."""
    found = (mapping(body).get(name) for name in names)
    # A truth value is a whole number to Python, and beyond 2**53 JSON loses digits.
    return next((value for value in found if type(value) is int and 0 <= value < 1 << 53), None)


def amount_of(value: Any) -> float | None:
    """A price or a time as a finite number; None where it is none."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    # NaN compares false. A whole number of JSON may be too large for a float.
    return float(value) if known and abs(value) < 1e300 else None


def settings_of(named: Json) -> Json | None:
    """Sampling settings as a tree keeps them; None where none are named, or one is not allowed."""
    if isinstance(stop := named.get("stop"), str | list):
        named = named | {"stop": (stop,) if isinstance(stop, str) else tuple(stop)}
    try:
        return Sampling(**named).to_json() if named else None
    except (BadInput, TypeError, ValueError):
        return None


def origin(form: str, model: Any = None, **more: Any) -> Json:
    """Where a log's conversations come from: its format, who answered, and what else tells runs apart.

    It is part of a task's identity, so that means of different evaluations are never mixed. It is made of
    what a file says, never of where it lies: the same file is the same origin.
    """
    named = {"format": form, "model": model, **more}
    return {key: str(value) for key, value in named.items() if value not in (None, "")}


def asked_for(given: Any) -> Json:
    """The fields of a turn's draft that say how it was asked for, from a request's own parameters.

    ``settings`` are those of them that any policy has, ``extra.request`` all that the chat interface takes: a
    fork of the turn asks in the same way.
    """
    body = mapping(given)
    request = {key: body[key] for key in _ASKED if body.get(key) is not None}
    named = {ours: body[key] for key, ours in _SETTINGS.items() if body.get(key) is not None}
    fields: Json = {"extra": {REQUEST: request}} if request else {}
    settings = settings_of(named)
    return fields if settings is None else fields | {"settings": settings}


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
        # Older logs name no calls: their results are paired by order, which nothing here can check.
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
    new_nodes: Iterable[NewNode],
    producer: Producer,
    scores: Mapping[str, Any],
    error: str | None = None,
) -> Iterator[Record]:
    """Drafts, then the finite numbers among scores for the last of them, and the error that ended it."""
    items = list(new_nodes)
    if items and items[-1].kind == "task" and (error or any(v is not None for v in scores.values())):
        # The task may be that of other conversations, whose ends are others.
        above = node_id(items[-1].parent, items[-1].keep, "task", str(items[-1].key))
        # As texts, for a score may be NaN or infinite, of which canonical JSON makes no digest.
        name = content_hash([str(items[-1].key), error, {k: repr(v) for k, v in scores.items()}])
        items.append(NewNode(kind="verdict", parent=above, key=f"end/{name}", origin="real"))
    if error and items:
        items[-1] = replace(items[-1], error=error)
    yield from items
    if items:
        yield from grades(items[-1], producer, scores)


def grades(end: NewNode, producer: Producer, scores: Mapping[str, Any]) -> Iterator[Record]:
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
