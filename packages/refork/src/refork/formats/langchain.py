"""Messages as LangChain serialises them, or as its clients pass them on, in OpenAI's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from refork.errors import BadInput
from refork.formats.answers import whole_message
from refork.formats.conversation import tool_call
from refork.types import Json, Message

_ROLES: Final = {
    "human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool",
    "HumanMessage": "user", "HumanMessageChunk": "user", "AIMessage": "assistant",
    "AIMessageChunk": "assistant", "SystemMessage": "system", "SystemMessageChunk": "system",
    "ToolMessage": "tool", "ToolMessageChunk": "tool", "FunctionMessage": "tool", "developer": "system",
    "model": "assistant",
}  # fmt: skip
#: What a serialised message has beside its content, and what OpenAI's form has a place for.
_PLACED: Final = frozenset(
    {"content", "type", "tool_calls", "tool_call_id", "name", "role", "additional_kwargs"}
)


@final
@dataclass(slots=True)
class Talk:
    """What a run of a model was asked and said; one end and one ``extra`` for each answer."""

    shown: list[Message] = field(default_factory=list)
    said: list[Message] = field(default_factory=list)
    ends: list[str | None] = field(default_factory=list)
    extras: list[Json] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None

    def answer(self, raw: Any, end: Any, extra: Json) -> None:
        """Add an answer."""
        message, more = langchain_message(raw, "assistant")
        self.said.append(message)
        told = more.get("response_metadata")
        told = told if isinstance(told, Mapping) else {}
        end = end or told.get("finish_reason") or told.get("stop_reason")
        self.ends.append(end if isinstance(end, str) else None)
        self.extras.append(more | extra)
        usage = more.get("usage_metadata") or told.get("token_usage")
        self.usage = usage if isinstance(usage, Mapping) else self.usage
        name = told.get("model_name") or told.get("model")
        self.model = str(name) if name else self.model


def asked_and_said(inputs: Any, outputs: Any) -> Talk:
    """The messages of a run's inputs and outputs.

    Raises:
        BadInput: a message is none.
    """
    talk = Talk()
    body = inputs if isinstance(inputs, Mapping) else {"prompt": inputs}
    listed = body.get("messages", body.get("prompts", body.get("prompt", body.get("input"))))
    # LangChain passes on a batch of conversations, of which a run has one.
    if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], list):
        listed = listed[0]
    for raw in listed if isinstance(listed, list) else ([] if listed is None else [listed]):
        talk.shown.append(_with_rest(*langchain_message(raw, "user")))
    if isinstance(body.get("system"), str):
        talk.shown.insert(0, {"role": "system", "content": body["system"]})
    _answers(talk, outputs)
    return talk


def _answers(talk: Talk, outputs: Any) -> None:
    body = outputs if isinstance(outputs, Mapping) else {"output": outputs}
    _usage(talk, body)
    if isinstance(body.get("generations"), list):
        generations = body["generations"]
        flat = [one for part in generations for one in (part if isinstance(part, list) else [part])]
        for one in flat:
            info = one.get("generation_info") if isinstance(one, Mapping) else None
            info = info if isinstance(info, Mapping) else {}
            raw = one.get("message") or one.get("text") if isinstance(one, Mapping) else one
            talk.answer(raw, info.get("finish_reason"), {})
    elif isinstance(body.get("choices"), list):
        for one in body["choices"]:
            rest = {
                key: value
                for key, value in one.items()
                if key not in ("message", "text") and value is not None
            }
            talk.answer(one.get("message", one.get("text")), one.get("finish_reason"), rest)
    elif isinstance(body.get("messages"), list):
        for raw in body["messages"]:
            talk.answer(raw, None, {})
    elif "content" in body or "lc" in body or "kwargs" in body:
        talk.answer(body, body.get("stop_reason"), {})
    elif (single := body.get("output", body.get("message"))) is not None:
        talk.answer(single, None, {})


def _usage(talk: Talk, body: Mapping[str, Any]) -> None:
    """The usage and the model of a run's outputs as a whole."""
    told = body.get("llm_output")
    told = told if isinstance(told, Mapping) else {}
    usage = body.get("usage_metadata") or body.get("usage") or told.get("token_usage")
    talk.usage = usage if isinstance(usage, Mapping) else {}
    name = body.get("model") or told.get("model_name")
    talk.model = str(name) if name else None


def _with_rest(message: Message, rest: Json) -> Message:
    return {**rest, **message}


def langchain_message(raw: Any, role: str) -> tuple[Message, Json]:
    """A message in OpenAI's form and what has no place in it; a text is one said by ``role``.

    Raises:
        BadInput: no message.
    """
    if isinstance(raw, str):
        return {"role": role, "content": raw}, {}
    if isinstance(raw, (list, tuple)) and len(raw) == 2 and isinstance(raw[0], str):
        raw = {"role": raw[0], "content": raw[1]}
    if not isinstance(raw, Mapping):
        raise BadInput(f"a message is a {type(raw).__name__}")
    kind = raw.get("role") or raw.get("type")
    body: Mapping[str, Any] = raw
    if isinstance(raw.get("kwargs"), Mapping):
        body = raw["kwargs"]
        named = raw.get("id")
        kind = body.get("type") or (named[-1] if isinstance(named, list) and named else None)
    elif isinstance(raw.get("data"), Mapping) and "type" in raw:
        body = raw["data"]
        kind = raw["type"]
    elif raw.get("role") is not None:
        made = {**raw, "role": _ROLES.get(str(kind), str(kind))}
        return whole_message(made, "message"), {}
    known = _ROLES.get(str(kind), str(kind) if kind in ("user", "assistant") else role)
    message: Message = {"role": known, "content": body.get("content")}
    calls = [_call(call) for call in body.get("tool_calls") or [] if isinstance(call, Mapping)]
    message |= {"tool_calls": calls} if calls else {}
    message |= {key: body[key] for key in ("tool_call_id", "name") if body.get(key) is not None}
    more = body.get("additional_kwargs")
    reasoning = more.get("reasoning_content") if isinstance(more, Mapping) else None
    message |= {"reasoning_content": reasoning} if isinstance(reasoning, str) and reasoning else {}
    rest = {key: value for key, value in body.items() if key not in _PLACED and value not in (None, [], {})}
    others = {
        key: value for key, value in (more or {}).items() if key not in ("tool_calls", "reasoning_content")
    }
    return whole_message(message, "message"), rest | ({"additional_kwargs": others} if others else {})


def _call(raw: Mapping[str, Any]) -> Json:
    """A call of LangChain's form, or of OpenAI's."""
    inner = raw.get("function")
    if isinstance(inner, Mapping):
        return tool_call(str(inner.get("name")), inner.get("arguments"), raw.get("id"))
    return tool_call(str(raw.get("name")), raw.get("args", raw.get("arguments")), raw.get("id"))
