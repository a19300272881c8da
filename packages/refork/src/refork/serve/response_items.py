"""Items of ``/v1/responses`` as chat messages, and back."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from refork.serve.refuse import BadParameter
from refork.types import Json, Message

_TEXTS = frozenset({"input_text", "output_text", "text"})


def messages_of(given: str | Sequence[Json], instructions: str | None) -> tuple[Message, ...]:
    """A request's input as chat messages, its instructions first.

    Raises: BadParameter for items that are no text, function call or output of one.
    """
    messages: list[Message] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(given, str):
        return (*messages, {"role": "user", "content": given})
    for number, item in enumerate(given):
        message = _message(item, f"input.{number}")
        if message is None:
            continue
        calls = message.get("tool_calls")
        if calls and messages and messages[-1].get("tool_calls"):
            messages[-1]["tool_calls"] += calls
        elif calls and messages and messages[-1]["role"] == "assistant":
            messages[-1]["tool_calls"] = calls
        else:
            messages.append(message)
    if not messages:
        raise BadParameter("input", "input: there is no message")
    return tuple(messages)


def _message(item: Json, where: str) -> Message | None:
    kind = item.get("type", "message")
    if kind == "message" and isinstance(item.get("role"), str):
        role = "system" if item["role"] == "developer" else item["role"]
        return {"role": role, "content": _text(item.get("content"), f"{where}.content")}
    if kind == "function_call" and isinstance(item.get("name"), str):
        function = {"name": item["name"], "arguments": str(item.get("arguments") or "{}")}
        call = {"id": str(item.get("call_id") or ""), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind == "function_call_output":
        said = _text(item.get("output"), f"{where}.output")
        return {"role": "tool", "tool_call_id": str(item.get("call_id") or ""), "content": said}
    if kind == "reasoning":
        return None
    raise BadParameter(where, f"{where}: an item of type {kind!r} cannot be read here"[:200])


def _text(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in _TEXTS:
            raise BadParameter(where, f"{where}: only text can be read here")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


def tools_of(tools: Sequence[Json]) -> tuple[Json, ...]:
    """Function tools as chat completions have them. Raises BadParameter for tools of another kind."""
    found = []
    for number, tool in enumerate(tools):
        if tool.get("type") != "function" or not isinstance(tool.get("name"), str):
            raise BadParameter(f"tools.{number}", f"tools.{number}: only functions can be had here")
        inner = {key: tool[key] for key in ("name", "description", "parameters", "strict") if key in tool}
        found.append({"type": "function", "function": inner})
    return tuple(found)


def text_item(name: str, text: str, status: str) -> Json:
    """A message of the answer."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    content = [part] if status != "in_progress" else []
    return {"id": name, "type": "message", "role": "assistant", "status": status, "content": content}


def call_items(message: Message) -> list[Json]:
    """The function calls of a message, as items of the answer."""
    return [
        {
            "id": f"fc_{uuid.uuid4().hex}",
            "type": "function_call",
            "status": "completed",
            "call_id": call["id"],
            "name": call["function"]["name"],
            "arguments": call["function"]["arguments"],
        }
        for call in message.get("tool_calls") or []
    ]
