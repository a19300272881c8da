"""Messages of GenAI spans: OpenTelemetry's parts as OpenAI's messages and back, wherever a version put them.

The current conventions have ``gen_ai.input.messages`` and ``gen_ai.output.messages`` as attributes of the
span, or of an event of it. Those up to 1.36 had an event for each message, earlier ones two events with JSON
texts; OpenLLMetry numbered its attributes (``gen_ai.prompt.0.role``), and so does OpenInference, whose spans
Phoenix takes (``llm.input_messages.0.message.role``). All are read, the newest that is there.

Source: the semantic conventions for generative AI, versions 1.26 to 1.41, OpenLLMetry's attributes, and those
of OpenInference 0.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.conversation import tool_call
from refork.formats.otlp.batches import Event, Span
from refork.json_guard import parse_json
from refork.types import Json, Message

INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
SYSTEM, TOOLS = "gen_ai.system_instructions", "gen_ai.tool.definitions"
DETAILS: Final = "gen_ai.client.inference.operation.details"
CHOICE: Final = "gen_ai.choice"
_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_TEXTS: Final = {"gen_ai.content.prompt": "gen_ai.prompt", "gen_ai.content.completion": "gen_ai.completion"}
_NUMBERED: Final = re.compile(r"(?:gen_ai|llm)\.(prompt|completion)s?\.(\d+)\.(.+)")
_INFERENCE: Final = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(.+)")
_OFFERED: Final = re.compile(r"llm\.tools\.(\d+)\.tool\.json_schema")
#: What spans of OpenInference are, as its attribute says it; of others there is no part in a conversation.
INFERENCE_KIND: Final = "openinference.span.kind"
INFERENCE_KINDS: Final = {"LLM": "call", "TOOL": "tool", "AGENT": "agent"}
_MEANT: Final = {
    "model": "assistant",
    "ai": "assistant",
    "human": "user",
    "developer": "system",
    "function": "tool",
}


@final
@dataclass(slots=True)
class SpanMessages:
    """What a span says of a conversation; ``ends`` are the finish reasons of its answers, in order."""

    inputs: list[Message] = field(default_factory=list)
    outputs: list[Message] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    tools: Any = None
    #: What a reader of another format knows of each answer beside.
    extras: list[Json] = field(default_factory=list)


def span_messages(span: Span) -> tuple[SpanMessages, Json, list[Event]]:
    """The conversation of a span, and the attributes and events that are no part of it."""
    attributes = dict(span.attributes)
    events = list(span.events)
    talk = SpanMessages()
    details = [event for event in events if event.name == DETAILS]
    places = [attributes, *(event.attributes for event in details)]
    # One form only: an instrumentation that changes over writes two, and each message would be there twice.
    if any(key in place for place in places for key in (INPUT, OUTPUT, SYSTEM)):
        for place in places:
            _current(talk, place)
        events = [event for event in events if event not in details or _left(event.attributes)]
    elif any(event.name in _ROLES or event.name == CHOICE for event in events):
        _by_event(talk, [event for event in events if event.name in _ROLES or event.name == CHOICE])
        events = [event for event in events if event.name not in _ROLES and event.name != CHOICE]
    elif any(event.name in _TEXTS for event in events):
        for event in events:
            _texts(talk, event)
        events = [event for event in events if event.name not in _TEXTS]
    elif INFERENCE_KIND in attributes:
        _inference(talk, attributes)
    else:
        _numbered(talk, attributes)
    talk.tools = _json(attributes.pop(TOOLS, None)) or talk.tools
    return talk, attributes, events


def _left(attributes: Mapping[str, Any]) -> bool:
    """Whether an event says more than messages."""
    return any(key not in (INPUT, OUTPUT, SYSTEM, TOOLS) for key in attributes)


def _current(talk: SpanMessages, place: Json) -> None:
    """Messages under the current attributes, taken out of them."""
    system = _json(place.pop(SYSTEM, None))
    if system:
        parts = [{"type": "text", "content": system}] if isinstance(system, str) else system
        talk.inputs += messages_of_parts({"role": "system", "parts": parts})
    for raw in _list(place.pop(INPUT, None)):
        talk.inputs += messages_of_parts(raw)
    for raw in _list(place.pop(OUTPUT, None)):
        made = messages_of_parts(raw, role="assistant")
        end = raw.get("finish_reason") if isinstance(raw, Mapping) else None
        talk.outputs += made
        talk.ends += [end] * len(made)
    talk.tools = _json(place.pop(TOOLS, None)) or talk.tools


def _by_event(talk: SpanMessages, events: Iterable[Event]) -> None:
    """Messages of the conventions up to 1.36: one event each, the content in its body or its attributes."""
    for event in events:
        body = event.body
        if body is None:
            body = event.attributes.get("gen_ai.event.content", event.attributes)
        body = _json(body)
        told = dict(body) if isinstance(body, Mapping) else {"content": body}
        if event.name == CHOICE:
            inner = _json(told.get("message"))
            message = dict(inner) if isinstance(inner, Mapping) else {"content": inner or told.get("content")}
            message.setdefault("tool_calls", told.get("tool_calls"))
            talk.outputs.append(_message(message, "assistant"))
            talk.ends.append(_text(told.get("finish_reason")))
        else:
            talk.inputs.append(_message(told, _ROLES[event.name]))


def _texts(talk: SpanMessages, event: Event) -> None:
    """Messages of the conventions up to 1.27: JSON texts of lists."""
    key = _TEXTS.get(event.name)
    if key is None:
        return
    role = "user" if key.endswith("prompt") else "assistant"
    for raw in _list(event.attributes.get(key)):
        inner = raw.get("message", raw) if isinstance(raw, Mapping) else {"content": raw}
        message = _message(dict(inner) if isinstance(inner, Mapping) else {"content": inner}, role)
        if role == "user":
            talk.inputs.append(message)
        else:
            talk.outputs.append(message)
            talk.ends.append(_text(raw.get("finish_reason")) if isinstance(raw, Mapping) else None)


def _numbered(talk: SpanMessages, attributes: Json) -> None:
    """Messages under numbered attributes, or whole JSON texts; taken out of the attributes."""
    found: dict[tuple[str, int], Json] = {}
    for key in list(attributes):
        match = _NUMBERED.fullmatch(key)
        if match:
            side, number, rest = match.groups()
            found.setdefault((side, int(number)), {})[rest] = attributes.pop(key)
    for side, key in (("prompt", "gen_ai.prompt"), ("completion", "gen_ai.completion")):
        for number, raw in enumerate(_list(attributes.pop(key, None))):
            found.setdefault((side, number), dict(raw) if isinstance(raw, Mapping) else {"content": raw})
    # Sorted as numbers: as texts the eleventh message would come before the third.
    for (side, _), flat in sorted(found.items(), key=lambda item: item[0]):
        calls: dict[str, Json] = {}
        for key in [key for key in flat if key.startswith("tool_calls.")]:
            number, _, name = key.removeprefix("tool_calls.").partition(".")
            calls.setdefault(number, {})[name] = flat.pop(key)
        if calls:
            flat["tool_calls"] = list(calls.values())
        end = flat.pop("finish_reason", None)
        if side == "prompt":
            talk.inputs.append(_message(flat, "user"))
        else:
            talk.outputs.append(_message(flat, "assistant"))
            talk.ends.append(_text(end))


def _inference(talk: SpanMessages, attributes: Json) -> None:
    """Messages under OpenInference's attributes, taken out of them."""
    found: dict[tuple[str, int], Json] = {}
    offered: dict[int, Any] = {}
    for key in list(attributes):
        if match := _INFERENCE.fullmatch(key):
            side, number, rest = match.groups()
            found.setdefault((side, int(number)), {})[rest] = attributes.pop(key)
        elif match := _OFFERED.fullmatch(key):
            offered[int(match[1])] = _json(attributes.pop(key))
    for (side, _), flat in sorted(found.items(), key=lambda item: item[0]):
        calls = _listed(flat, "tool_calls", "tool_call")
        if calls:
            made = [(one.get("id"), one.get("function.name"), one.get("function.arguments")) for one in calls]
            flat["tool_calls"] = [tool_call(str(name), given, call) for call, name, given in made]
        if parts := _listed(flat, "contents", "message_content"):
            flat["content"] = [_inference_part(part) for part in parts]
        if side == "input":
            talk.inputs.append(_message(flat, "user"))
        else:
            talk.outputs.append(_message(flat, "assistant"))
            talk.ends.append(_text(attributes.get("llm.finish_reason")))
    talk.tools = [tool for _, tool in sorted(offered.items())] or None
    if found:
        # The request and the answer once more, as texts.
        for key in ("input.value", "input.mime_type", "output.value", "output.mime_type"):
            attributes.pop(key, None)


def _listed(flat: Json, many: str, one: str) -> list[Json]:
    """Objects under numbered keys (``tool_calls.0.tool_call.id``), taken out of the others."""
    found: dict[int, Json] = {}
    for key in list(flat):
        if match := re.fullmatch(rf"{many}\.(\d+)\.{one}\.(.+)", key):
            found.setdefault(int(match[1]), {})[match[2]] = flat.pop(key)
    return [body for _, body in sorted(found.items())]


def _inference_part(part: Json) -> Json:
    if part.get("type") == "image" and isinstance(part.get("image.image.url"), str):
        return {"type": "image_url", "image_url": {"url": part["image.image.url"]}}
    return part


def _message(raw: Json, role: str) -> Message:
    """A message of the older conventions; ``id`` of a tool's result names its call."""
    if isinstance(raw.get("parts"), list):
        made = messages_of_parts({"role": role, **raw}, role=role)
        return made[0]
    given = str(raw.get("role") or role)
    body = {key: value for key, value in raw.items() if value is not None and not key.startswith("gen_ai.")}
    body["role"] = _MEANT.get(given, given)
    content = _json(body.get("content")) if body["role"] != "tool" else body.get("content")
    body["content"] = (
        content if isinstance(content, list) and _is_parts(content) else _content(body.get("content"))
    )
    if isinstance(body.get("tool_calls"), str):
        body["tool_calls"] = _json(body["tool_calls"])
    if body["role"] == "tool" and "id" in body:
        body["tool_call_id"] = str(body.pop("id"))
    return whole_message(body, "message")


def _is_parts(content: Sequence[Any]) -> bool:
    return bool(content) and all(isinstance(part, Mapping) and "type" in part for part in content)


def messages_of_parts(raw: Any, role: str = "user") -> list[Message]:
    """A message of the current conventions as OpenAI's: results of tools are messages of their own."""
    if not isinstance(raw, Mapping):
        return [{"role": role, "content": _content(raw)}]
    if "parts" not in raw:
        return [_message(dict(raw), role)]
    given = str(raw.get("role") or role)
    message: Message = {"role": _MEANT.get(given, given), "content": None}
    message |= {key: value for key, value in raw.items() if key not in ("role", "parts", "finish_reason")}
    if message["role"] == "tool" and not any(map(_is_result, raw["parts"] or [])):
        return [{**message, "content": _plain_text(raw["parts"] or [])}]
    parts, calls, thoughts, results = [], [], [], []
    for part in raw["parts"] or []:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "tool_call":
            call = part.get("id")
            calls.append(
                tool_call(str(part.get("name")), part.get("arguments"), None if call is None else str(call))
            )
        elif kind == "tool_call_response":
            answer = part.get("response", part.get("result"))
            told = {} if part.get("id") is None else {"tool_call_id": str(part["id"])}
            results.append({"role": "tool", "content": _content(answer), **told})
        elif kind == "reasoning":
            thoughts.append(str(part.get("content") or ""))
        else:
            parts.append(_part(part))
    message["content"] = _joined(parts)
    message |= {"tool_calls": calls} if calls else {}
    message |= {"reasoning_content": "\n".join(thoughts)} if thoughts else {}
    alone = results and not parts and not calls and not thoughts
    return results if alone else [whole_message(message, "message"), *results]


def _is_result(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_call_response"


def _plain_text(parts: Sequence[Any]) -> str:
    """The parts of a tool's result that is not marked as one, as one text."""
    made = [_part(part) for part in parts]
    texts = [part["text"] if set(part) == {"type", "text"} else _content(part) for part in made]
    return "\n".join(texts)


def parts_of_message(message: Message) -> Json:
    """The inverse of :func:`messages_of_parts`."""
    form = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content")
    made: Json = {"role": message["role"], "parts": []}
    made |= {key: value for key, value in message.items() if key not in form}
    parts: list[Json] = made["parts"]
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    content = message.get("content")
    if message["role"] == "tool":
        named = {"id": message["tool_call_id"]} if message.get("tool_call_id") is not None else {}
        parts.append({"type": "tool_call_response", **named, "response": content})
        return made
    if isinstance(content, str) and content:
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [_unpart(part) for part in content]
    for call in message.get("tool_calls") or []:
        inner = call.get("function", call)
        named = {"id": call["id"]} if call.get("id") is not None else {}
        arguments = inner.get("arguments")
        parts.append(
            {"type": "tool_call", **named, "name": inner.get("name"), "arguments": _unquoted(arguments)}
        )
    return made


def _unquoted(text: Any) -> Any:
    """Arguments as data where their JSON text can be written again just so."""
    value = _json(text)
    return value if isinstance(value, dict) and json.dumps(value, ensure_ascii=False) == text else text


def _part(part: Any) -> Json:
    """A text part as OpenAI has it; others as they are."""
    if not isinstance(part, Mapping):
        return {"type": "text", "text": _content(part)}
    if part.get("type") == "text" and "content" in part:
        return {"type": "text", "text": _content(part["content"])}
    return dict(part)


def _unpart(part: Any) -> Json:
    if isinstance(part, Mapping) and part.get("type") == "text":
        return {"type": "text", "content": part.get("text", "")}
    return dict(part) if isinstance(part, Mapping) else {"type": "text", "content": str(part)}


def _joined(parts: list[Json]) -> str | list[Json]:
    """One text as a text, several parts as parts."""
    if not parts:
        return ""
    if len(parts) == 1 and set(parts[0]) == {"type", "text"}:
        return str(parts[0]["text"])
    return parts


def _content(raw: Any) -> str:
    return raw if isinstance(raw, str) else ("" if raw is None else json.dumps(raw, ensure_ascii=False))


def _text(raw: Any) -> str | None:
    return raw if isinstance(raw, str) else None


def _list(raw: Any) -> list[Any]:
    value = _json(raw)
    return value if isinstance(value, list) else ([] if value is None else [value])


def _json(raw: Any) -> Any:
    """A value, or what its JSON text says; a text that is no JSON stays one."""
    if not isinstance(raw, str) or raw[:1] not in ("[", "{"):
        return raw
    try:
        return parse_json(raw.encode(), "")
    except BadInput:
        return raw
