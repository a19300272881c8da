"""AutoGen's model messages and ours, both ways; and the shape of the former for a pinned buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from refork.errors import BadInput, MissingExtra
from refork.types import Message
from refork_methods.pin.buffer import parts_with_text
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
    from autogen_core import FunctionCall, Image
    from autogen_core.models import (
        AssistantMessage,
        FunctionExecutionResult,
        FunctionExecutionResultMessage,
        LLMMessage,
        SystemMessage,
        UserMessage,
    )
except ImportError as error:
    raise MissingExtra("autogen-core", "harness") from error

SKIPPED = "skipped"
OPERATOR = "operator"


def to_autogen(messages: Sequence[Message]) -> list[LLMMessage]:
    """Our messages as AutoGen's; consecutive tool results become one message, as AutoGen's own agents do.

    Raises: BadInput for a role or content that AutoGen has no form for.
    """
    names = called_names(messages)
    return [item_of(turn, names) for turn in turns(messages)]


def from_autogen(items: Sequence[LLMMessage]) -> list[Message]:
    """AutoGen's messages as ours, without ids: it keeps none. A message of n results becomes n messages."""
    return [message for item in items for message in messages_of(item)]


def item_of(turn: Turn, names: dict[str, str]) -> LLMMessage:
    """One turn as AutoGen's message; ``names`` maps call ids to functions."""
    message = turn[0]
    role, content = message.get("role"), message.get("content")
    if role in ("system", "developer"):
        return SystemMessage(content=content_text(content))
    if role == "user":
        said = [_part(p) for p in content] if isinstance(content, list) else content_text(content)
        return UserMessage(content=said, source=str(message.get("name") or "user"))
    if role == "assistant":
        source = str(message.get("name") or "assistant")
        thought = message.get("reasoning_content")
        calls = [FunctionCall(id=key, name=name, arguments=text) for key, name, text in calls_of(message)]
        if not calls:
            return AssistantMessage(content=content_text(content), source=source, thought=thought)
        return AssistantMessage(content=calls, source=source, thought=content_text(content) or thought)
    if role == "tool":
        return FunctionExecutionResultMessage(content=[_result(m, names) for m in turn])
    raise BadInput(f"AutoGen has no message of role {role!r}", where=f"message {message.get('id')!r}")


def messages_of(item: LLMMessage) -> list[Message]:
    """One of AutoGen's messages as ours."""
    if isinstance(item, SystemMessage):
        return [{"role": "system", "content": item.content}]
    if isinstance(item, UserMessage):
        parts = item.content
        content = parts if isinstance(parts, str) else [_part_back(p) for p in parts]
        name = {} if item.source == "user" else {"name": item.source}
        return [{"role": "user", "content": content, **name}]
    if isinstance(item, FunctionExecutionResultMessage):
        return [_result_back(result) for result in item.content]
    name = {} if item.source == "assistant" else {"name": item.source}
    if isinstance(item.content, str):
        thought = {"reasoning_content": item.thought} if item.thought else {}
        return [{"role": "assistant", "content": item.content, **name, **thought}]
    calls = [tool_call(call.id, call.name, call.arguments) for call in item.content]
    return [{"role": "assistant", "content": item.thought, "tool_calls": calls, **name}]


def _part(part: object) -> str | Image:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and "text" in part:
        return str(part["text"])
    image = part.get("image_url") if isinstance(part, dict) else None
    url = image.get("url") if isinstance(image, dict) else image
    try:
        return Image.from_uri(str(url))
    except (ValueError, OSError) as error:
        raise BadInput(
            f"AutoGen takes text and base64 images as content, not {str(part)[:60]!r}",
            hint="give images as data:image/png;base64,... addresses",
        ) from error


def _part_back(part: str | Image) -> Message:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": part.data_uri}}


def _result(message: Message, names: dict[str, str]) -> FunctionExecutionResult:
    key = str(message.get("tool_call_id") or "")
    return FunctionExecutionResult(
        content=content_text(message.get("content")),
        name=str(message.get("name") or names.get(key, "")),
        call_id=key,
        is_error=message.get("is_error"),
    )


def _result_back(result: FunctionExecutionResult) -> Message:
    error = {} if result.is_error is None else {"is_error": result.is_error}
    named = {"name": result.name} if result.name else {}
    return {"role": "tool", "tool_call_id": result.call_id, "content": result.content, **named, **error}


@final
class AutoGenShape:
    """What a pinned buffer must know of AutoGen's messages. ``role``: of the block, "system" or "user"."""

    def __init__(self, role: str = "system") -> None:
        self._role = role

    def text(self, item: LLMMessage) -> str:
        """All text that the model is shown but for the arguments of calls."""
        if isinstance(item, FunctionExecutionResultMessage):
            return join_seams([result.content for result in item.content])
        if isinstance(item, AssistantMessage):
            said = item.content if isinstance(item.content, str) else ""
            calls = not isinstance(item.content, str)
            return join_seams([said, item.thought or ""]) if calls or item.thought else said
        if isinstance(item.content, str):
            return item.content
        said = "".join(part for part in item.content if isinstance(part, str))
        return said if all(isinstance(part, str) for part in item.content) else join_seams([said])

    def is_system(self, item: LLMMessage) -> bool:
        """Whether it is a SystemMessage."""
        return isinstance(item, SystemMessage)

    def is_pin(self, item: LLMMessage) -> bool:
        """Whether it is of the kind that carries the block."""
        if self._role == "system":
            return isinstance(item, SystemMessage)
        return isinstance(item, UserMessage) and item.source == OPERATOR

    def with_text(self, item: LLMMessage, text: str) -> LLMMessage:
        """A copy with another text; calls, images and ids are kept."""
        if isinstance(item, FunctionExecutionResultMessage):
            pairs = zip(item.content, split_seams(text, len(item.content)), strict=True)
            return item.model_copy(
                update={"content": [old.model_copy(update={"content": new}) for old, new in pairs]}
            )
        if isinstance(item, AssistantMessage):
            if isinstance(item.content, str) and not item.thought:
                return item.model_copy(update={"content": text})
            # As text() joined them: content and thought are cleaned as one text, so that no mark spans both.
            said, thought = split_seams(text, 2)
            content = said if isinstance(item.content, str) else item.content
            return item.model_copy(update={"content": content, "thought": thought or None})
        if isinstance(item.content, str):
            return item.model_copy(update={"content": text})
        whole = all(isinstance(part, str) for part in item.content)
        plain = text if whole else split_seams(text, 1)[0]
        return item.model_copy(update={"content": parts_with_text(item.content, plain, _text, _write)})

    def new(self, text: str) -> LLMMessage:
        """The message of a pinned block."""
        if self._role == "system":
            return SystemMessage(content=text)
        return UserMessage(content=text, source=OPERATOR)


def _text(part: object) -> str | None:
    return part if isinstance(part, str) else None


def _write(_: object, text: str) -> str:
    return text
