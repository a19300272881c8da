"""agent-framework's messages and ours, both ways; and the shape of the former for a pinned buffer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, final

from refork.errors import BadInput, MissingExtra
from refork.types import Json, Message
from refork_methods.pin.constraint import MARK
from refork_methods.pin.frameworks.turns import (
    Turn,
    called_names,
    calls_of,
    content_text,
    join_seams,
    split_seams,
    tool_call,
    turns,
)

try:
    from agent_framework import GROUP_ANNOTATION_KEY, GROUP_TOKEN_COUNT_KEY, Content
    from agent_framework import Message as FrameworkMessage
except ImportError as error:
    raise MissingExtra("agent-framework-core", "harness") from error

#: How agent-framework itself names a message that has no id, by its place in the list.
PLACE_ID = "msg_{}"


def to_framework(messages: Sequence[Message]) -> list[FrameworkMessage]:
    """Our messages as agent-framework's; consecutive tool results become one message, as its own loop does.

    Raises: BadInput for content that it has no form for.
    """
    names = called_names(messages)
    return [item_of(turn, names) for turn in turns(messages)]


def from_framework(items: Sequence[FrameworkMessage]) -> list[Message]:
    """agent-framework's messages as ours. A message of n tool results becomes n messages."""
    return [message for item in items for message in messages_of(item)]


def item_of(turn: Turn, names: dict[str, str]) -> FrameworkMessage:
    """One turn as agent-framework's message, without an id."""
    message = turn[0]
    role = str(message.get("role"))
    if role == "tool":
        return FrameworkMessage("tool", [_result(m) for m in turn])
    contents: list[Content] = []
    if message.get("reasoning_content"):
        contents.append(Content.from_text_reasoning(text=str(message["reasoning_content"])))
    contents += _contents(message)
    for key, name, arguments in calls_of(message):
        contents.append(Content.from_function_call(key, name, arguments=arguments))
    author = message.get("name")
    return FrameworkMessage(role, contents, author_name=str(author) if author else None)


def messages_of(item: FrameworkMessage) -> list[Message]:
    """One of agent-framework's messages as ours, with its id where it has one."""
    name: Json = {"name": item.author_name} if item.author_name else {}
    key: Json = {"id": item.message_id} if item.message_id else {}
    results = [c for c in item.contents if c.type == "function_result"]
    rest = [c for c in item.contents if c.type != "function_result"]
    out: list[Message] = []
    if rest or not results:
        calls = [_call_back(c) for c in rest if c.type == "function_call"]
        thought = "".join(c.text or "" for c in rest if c.type == "text_reasoning")
        more = {"tool_calls": calls} if calls else {}
        said = {"reasoning_content": thought} if thought else {}
        out.append({"role": item.role, "content": _content_back(rest), **more, **said, **name, **key})
    for number, result in enumerate(results):
        own = {"id": f"{item.message_id}.{number}"} if key and (number or out) else key
        error = {"is_error": True} if result.exception is not None else {}
        out.append(
            {
                "role": "tool",
                "tool_call_id": result.call_id,
                "content": str(result.result or ""),
                **error,
                **own,
            }
        )
    return out


def _contents(message: Message) -> list[Content]:
    content = message.get("content")
    if not isinstance(content, list):
        text = content_text(content)
        return [Content.from_text(text)] if text else []
    return [_part(part) for part in content]


def _part(part: Any) -> Content:
    if isinstance(part, str):
        return Content.from_text(part)
    if isinstance(part, dict) and "text" in part:
        return Content.from_text(str(part["text"]))
    image = part.get("image_url") if isinstance(part, dict) else None
    url = str(image.get("url") if isinstance(image, dict) else image)
    try:
        return Content.from_uri(url, media_type=None if url.startswith("data:") else "image/*")
    except Exception as error:
        raise BadInput(f"agent-framework takes no content like {str(part)[:60]!r}: {error}") from error


def _result(message: Message) -> Content:
    text = content_text(message.get("content"))
    failed = "error" if message.get("is_error") else None
    return Content.from_function_result(str(message.get("tool_call_id") or ""), result=text, exception=failed)


def _call_back(call: Content) -> Json:
    arguments = call.arguments if isinstance(call.arguments, str) else call.parse_arguments()
    made = {"function": {"name": call.name, "arguments": arguments}, "id": call.call_id}
    (key, name, text) = calls_of({"tool_calls": [made]})[0]
    return tool_call(key, name, text)


def _content_back(contents: Sequence[Content]) -> Any:
    shown = [c for c in contents if c.type not in ("function_call", "text_reasoning")]
    if not shown:
        return None if contents else ""
    if len(shown) == 1 and shown[0].type == "text":
        return shown[0].text or ""
    return [_part_back(c) for c in shown]


def _part_back(content: Content) -> Json:
    if content.type == "text":
        return {"type": "text", "text": content.text or ""}
    if content.type in ("data", "uri"):
        return {"type": "image_url", "image_url": {"url": content.uri}}
    return dict(content.to_dict())


@final
class FrameworkShape:
    """What a pinned buffer must know of agent-framework's messages. ``role``: of the block."""

    def __init__(self, role: str = "system") -> None:
        self._role = role

    def text(self, item: FrameworkMessage) -> str:
        """All text that the model is shown but for the arguments of calls."""
        texts = [_text(content) for content in item.contents]
        if all(content.type == "text" for content in item.contents):
            return "".join(texts)
        return join_seams(texts)

    def is_system(self, item: FrameworkMessage) -> bool:
        """Whether the role is system or developer."""
        return item.role in ("system", "developer")

    def is_pin(self, item: FrameworkMessage) -> bool:
        """Whether the role is the block's."""
        return item.role == self._role

    def with_text(self, item: FrameworkMessage, text: str) -> FrameworkMessage:
        """A copy with another text; calls, images, ids and marks of exclusion are kept."""
        made = copy(item)
        made.additional_properties = dict(item.additional_properties)
        group = made.additional_properties.get(GROUP_ANNOTATION_KEY)
        if isinstance(group, dict):  # its count of tokens was of the other text
            made.additional_properties[GROUP_ANNOTATION_KEY] = {**group, GROUP_TOKEN_COUNT_KEY: None}
        if all(content.type == "text" for content in item.contents):
            made.contents = [Content.from_text(text)]
            return made
        parts = split_seams(text, len(item.contents))
        made.contents = [_with(old, new) for old, new in zip(item.contents, parts, strict=True)]
        return made

    def new(self, text: str) -> FrameworkMessage:
        """The message of a pinned block."""
        return FrameworkMessage(self._role, [text], message_id=MARK)


def _text(content: Content) -> str:
    if content.type == "function_result":
        return str(content.result or "")
    return content.text or "" if content.type in ("text", "text_reasoning") else ""


def _with(content: Content, text: str) -> Content:
    if _text(content) == text:
        return content
    made = copy(content)
    if content.type == "function_result":
        made.result = text
        made.items = [Content.from_text(text)]
    elif content.type in ("text", "text_reasoning"):
        made.text = text
    return made
