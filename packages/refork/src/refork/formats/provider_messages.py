"""Messages of Anthropic's interface and of OpenAI's responses, as traces repeat them, in OpenAI's chat form.

Blocks of a message (``tool_use``, ``tool_result``, ``thinking``) and items of a list (``function_call``, its
output, ``reasoning``) become tool calls, results and reasoning of messages; everything else stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from refork.formats.conversation import mapping, tool_call
from refork.types import Json, Message

_TEXTS: Final = ("text", "input_text", "output_text", "summary_text")
_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "thinking", "input_text", "output_text", "input_image"}
)
_CALLS: Final = ("function_call", "custom_tool_call")


def chat_request(asked: Any) -> Any:
    """A request, its messages in chat form and a system prompt beside them as the first."""
    if isinstance(asked, list):
        return chat_messages(asked)
    if not isinstance(asked, Mapping):
        return asked
    key = next((key for key in ("messages", "input") if isinstance(asked.get(key), list | str)), None)
    if key is None:
        return asked
    listed = asked[key]
    found = [{"role": "user", "content": listed}] if isinstance(listed, str) else chat_messages(listed)
    system = asked.get("instructions") or (asked.get("system") if key == "messages" else None)
    rest = {name: value for name, value in asked.items() if name not in (key, "instructions", "system")}
    told = [{"role": "system", "content": _text(system)}] if system else []
    return {**rest, "messages": [*told, *found]}


def chat_answer(said: Any) -> Any:
    """An answer: choices, items of a response, or blocks of a message, as one message beside the rest."""
    if isinstance(said, list) and said and all(isinstance(one, Mapping) for one in said):
        items = any(_kind(one) in (*_CALLS, "message", "reasoning") for one in said)
        said = {"choices" if any("message" in one for one in said) else "output" if items else "messages": said}
    body = mapping(said)
    if isinstance(items := body.get("output"), list) and any(_kind(item) is not None for item in items):
        made = chat_messages(items)
        message = made[-1] if made else {"role": "assistant", "content": ""}
        return {key: value for key, value in body.items() if key != "output"} | {"messages": [message]}
    if isinstance(blocks := body.get("content"), list) and any(_kind(one) in _BLOCKS for one in blocks):
        made = chat_messages([{"role": "assistant", "content": blocks}])
        return {**body, **made[-1]}
    return said


def chat_tool(tool: Any) -> Any:
    """The definition of a function as the chat interface takes it; another tool as it is."""
    body = mapping(tool)
    if not isinstance(body.get("name"), str) or "function" in body or body.get("type", "function") not in ("function", "custom"):
        return tool
    given = body.get("parameters", body.get("input_schema")) or {}
    told = {"description": body["description"]} if body.get("description") else {}
    return {"type": "function", "function": {"name": body["name"], **told, "parameters": given}}


def chat_messages(listed: Iterable[Any]) -> list[Any]:
    """Messages and items as messages of the chat form; neighbouring items of one answer are one message."""
    found: list[Any] = []
    answer: Message | None = None
    for item in listed:
        kind = _kind(item)
        if kind in _CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            if answer is None:
                answer = {"role": "assistant", "content": ""}
                found.append(answer)
            _add_item(answer, item)
            continue
        answer = None
        if kind is not None and kind.endswith("_call_output"):
            output = item.get("output")
            told = output if isinstance(output, str) else _text(output) or json.dumps(output)
            found.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": told})
        elif isinstance(item, Mapping) and isinstance(item.get("content"), list):
            found += _split(item)
        else:
            found.append(item)
    return found


def chat_of_chunks(chunks: Iterable[Any]) -> Json | None:
    """An answer of the chat interface put together from its chunks; None where they are no such chunks."""
    message: Message = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    whole: Json = {}
    end = None
    for chunk in chunks:
        body = mapping(chunk)
        if not isinstance(body.get("choices"), list):
            return None
        whole |= {key: value for key, value in body.items() if key not in ("choices", "object") and value}
        for choice in body["choices"]:
            delta = mapping(mapping(choice).get("delta"))
            end = mapping(choice).get("finish_reason") or end
            message["content"] += delta.get("content") if isinstance(delta.get("content"), str) else ""
            for piece in delta.get("tool_calls") or []:
                inner = mapping(piece.get("function"))
                call = calls.setdefault(piece.get("index") or 0, tool_call("", ""))
                call |= {"id": piece["id"]} if piece.get("id") else {}
                for key in ("name", "arguments"):
                    call["function"][key] += inner.get(key) or ""
    if not whole:
        return None
    message |= {"tool_calls": [call for _, call in sorted(calls.items())]} if calls else {}
    return whole | {"choices": [{"message": message, "finish_reason": end}]}


def _kind(item: Any) -> str | None:
    kind = mapping(item).get("type")
    return kind if isinstance(kind, str) else None


def _add_item(answer: Message, item: Mapping[str, Any]) -> None:
    kind = item["type"]
    if kind == "message":
        answer["content"] += _text(item.get("content"))
    elif kind == "reasoning":
        thought = _text(item.get("summary") or item.get("content"))
        if thought:
            answer["reasoning_content"] = answer.get("reasoning_content", "") + thought
    else:
        given = item.get("arguments", item.get("input"))
        answer.setdefault("tool_calls", []).append(
            tool_call(str(item.get("name")), given, item.get("call_id"))
        )


def _split(message: Mapping[str, Any]) -> list[Message]:
    """A message of blocks: results of tools are messages of their own, and come first."""
    if not any(_kind(block) in _BLOCKS for block in message["content"]):
        return [dict(message)]
    results: list[Message] = []
    own: Message = {key: value for key, value in message.items() if key not in ("content", "type")}
    parts: list[Json] = []
    for block in message["content"]:
        kind = _kind(block)
        if kind == "tool_use":
            call = tool_call(str(block.get("name")), block.get("input"), block.get("id"))
            own.setdefault("tool_calls", []).append(call)
        elif kind == "tool_result":
            told = _text(block.get("content"))
            results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": told})
        elif kind == "thinking":
            own["reasoning_content"] = own.get("reasoning_content", "") + str(block.get("thinking") or "")
        elif kind == "input_image":
            parts.append({"type": "image_url", "image_url": {"url": block.get("image_url")}})
        elif kind in _TEXTS:
            parts.append({"type": "text", "text": str(block.get("text") or "")})
        else:
            parts.append(block if isinstance(block, dict) else {"type": "text", "text": str(block)})
    text = all(part.get("type") == "text" for part in parts)
    own["content"] = "\n".join(part["text"] for part in parts) if text else parts
    alone = results and not parts and not own.get("tool_calls")
    return results if alone else [*results, own]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(mapping(one).get("text") or "") for one in blocks if _kind(one) in _TEXTS)
