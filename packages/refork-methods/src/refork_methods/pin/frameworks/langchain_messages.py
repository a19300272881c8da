"""Messages and models between Refork and langchain, without loss.

A message that came from Refork carries its source along, so one that a framework leaves alone comes back as
the very dict it was: ids, raw tool arguments and unknown keys included.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

from pydantic import Field, PrivateAttr, SkipValidation

from refork.chat import ChatModel
from refork.compaction import Counter, SummaryCall
from refork.errors import BadInput, MissingExtra, ServerError, UserError
from refork.types import Json, Message
from refork_methods.pin.buffer import PinnedBuffer, parts_with_text
from refork_methods.pin.constraint import MARK
from refork_methods.pin.frameworks.turns import placed

try:
    from langchain_core.callbacks import CallbackManagerForLLMRun
    from langchain_core.exceptions import ModelInvalidRequestError
    from langchain_core.language_models import BaseChatModel, LanguageModelInput
    from langchain_core.messages import (
        AIMessage,
        BaseMessage,
        InvalidToolCall,
        SystemMessage,
        convert_to_messages,
        convert_to_openai_messages,
    )
    from langchain_core.messages.utils import count_tokens_approximately
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.runnables import Runnable
    from langchain_core.utils.function_calling import convert_to_openai_tool
except ImportError as error:
    raise MissingExtra("langchain-core", "harness") from error

#: Where a langchain message carries the Message it was made from.
_SOURCE = "refork_source"
_FORMER_SOURCE = "ramify_source"  # in conversations stored while the package was Ramify


def to_langchain(messages: Sequence[Message]) -> list[BaseMessage]:
    """OpenAI-style messages as langchain messages with the same ids.

    Raises: BadInput for a message that langchain has no kind for; it names the place.
    """
    return [_to_one(message, f"message {place}") for place, message in enumerate(messages, start=1)]


def _to_one(message: Message, where: str) -> BaseMessage:
    good, bad = _calls(message.get("tool_calls") or [])
    plain: Json = {k: message[k] for k in ("role", "id", "name", "tool_call_id") if k in message}
    plain["content"] = message.get("content") or ""
    if good:
        plain["tool_calls"] = good
    try:
        made = convert_to_messages([plain])[0]
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise BadInput(f"langchain has no such message: {error}", where=where) from error
    if bad and isinstance(made, AIMessage):
        made.invalid_tool_calls = bad
    made.additional_kwargs[_SOURCE] = message
    return made


def _calls(calls: Sequence[Json]) -> tuple[list[Json], list[InvalidToolCall]]:
    """Tool calls whose arguments are a JSON object, and the others."""
    good: list[Json] = []
    bad: list[InvalidToolCall] = []
    for call in calls:
        function = call.get("function", {})
        raw = function.get("arguments", "{}")
        try:
            ok = isinstance(raw, dict) or isinstance(json.loads(raw), dict)
        except (TypeError, ValueError):
            ok = False
        if ok:
            good.append({**call, "id": call.get("id")})
        else:
            bad.append(
                InvalidToolCall(
                    type="invalid_tool_call",
                    id=call.get("id"),
                    name=function.get("name"),
                    args=str(raw),
                    error=None,
                )
            )
    return good, bad


def from_langchain(messages: Iterable[BaseMessage]) -> list[Message]:
    """OpenAI-style messages with the ids of langchain messages; an unchanged one's source.

    One whose content holds a tool's result beside text becomes two; the second's id is made of the first's.
    """
    return [out for message in messages for out in _from_one(message)]


def _from_one(message: BaseMessage) -> list[Message]:
    kept = message.additional_kwargs
    source = kept.get(_SOURCE, kept.get(_FORMER_SOURCE))
    if source is not None and _same(message, source):
        return [dict(source)]
    out, *more = convert_to_openai_messages([message], include_id=True)
    bad = message.invalid_tool_calls if isinstance(message, AIMessage) else []
    if bad:
        calls = [
            {"type": "function", "id": c["id"], "function": {"name": c["name"], "arguments": c["args"]}}
            for c in bad
        ]
        out["tool_calls"] = [*out.get("tool_calls", []), *calls]
    return [out, *({**m, "id": f"{message.id}.{i}"} if message.id else m for i, m in enumerate(more, 1))]


def _same(message: BaseMessage, source: Message) -> bool:
    """Whether nothing that a model sees of a message differs from its source."""
    # The source is converted once more: a framework may edit a message in place and leave its source alone.
    again = _to_one(source, "source")
    if type(again) is not type(message) or (again.id, again.content) != (message.id, message.content):
        return False
    keys = ("tool_calls", "invalid_tool_calls", "tool_call_id", "name", "status")
    return all(getattr(again, key, None) == getattr(message, key, None) for key in keys)


def package_counter(counter: Counter | None) -> Callable[[Iterable[Any]], int]:
    """A counter of ours for langchain messages; the packages' own approximate one for None."""
    if counter is None:
        return count_tokens_approximately

    def count(messages: Iterable[Any]) -> int:
        return counter(from_langchain(messages))

    return count


def summary_id(package: str, dropped: Sequence[str], text: str) -> str:
    """The id of a summary: the same summary of the same messages has the same one."""
    body = json.dumps([list(dropped), text])
    return f"{package}-summary-{hashlib.blake2b(body.encode(), digest_size=8).hexdigest()}"


@final
class LangChainShape:
    """The shape of langchain messages, for :class:`~refork_methods.pin.buffer.PinnedBuffer`."""

    def __init__(self, role: str = "system") -> None:
        self._role = role
        self._kind = type(self.new(""))

    def text(self, item: BaseMessage) -> str:
        """The content; text parts joined."""
        if isinstance(item.content, str):
            return item.content
        return "".join(_part(part) or "" for part in item.content)

    def is_system(self, item: BaseMessage) -> bool:
        """Whether it is a SystemMessage."""
        return isinstance(item, SystemMessage)

    def is_pin(self, item: BaseMessage) -> bool:
        """Whether it is of the class that carries the block."""
        return isinstance(item, self._kind)

    def with_text(self, item: BaseMessage, text: str) -> BaseMessage:
        """A copy with another text; parts that are no text keep their place."""
        content: Any = text
        if not isinstance(item.content, str):
            content = parts_with_text(item.content, text, _part, _with_part)
        return item.model_copy(update={"content": content})

    def new(self, text: str) -> BaseMessage:
        """A message of the buffer's role with a fixed id."""
        return convert_to_messages([{"role": self._role, "content": text, "id": MARK}])[0]


def _part(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    return str(part["text"]) if isinstance(part, dict) and "text" in part else None


def _with_part(part: Any, text: str) -> Any:
    return text if isinstance(part, str) else {**part, "text": text}


@final
@dataclass(frozen=True, slots=True)
class Question:
    """What a model was shown, the langchain messages themselves, and its answer's text."""

    messages: tuple[BaseMessage, ...]
    answer: str

    def call(self) -> SummaryCall:
        """The question as a summariser's call."""
        return SummaryCall(tuple(from_langchain(self.messages)), self.answer)


@final
class Refused(ModelInvalidRequestError):
    """A chat model of ours refuses the question; langchain would ask any other error's question again."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise a chat model's own error in place of :class:`Refused`."""
    try:
        yield
    except Refused as error:
        raise (error.__cause__ or error) from None


@final
class LangChainChat(BaseChatModel):
    """A :class:`~refork.chat.ChatModel` as a langchain chat model; ``asked`` keeps every question.

    It can be bound to tools, so it can stand wherever the packages take a model.
    """

    chat: SkipValidation[Any] = Field(exclude=True)
    draw: int = 0
    _asked: list[Question] = PrivateAttr(default_factory=list)

    def __init__(self, chat: ChatModel, draw: int = 0) -> None:
        super().__init__(chat=chat, draw=draw)  # type: ignore[call-arg]

    @property
    def _llm_type(self) -> str:
        return "refork"

    @property
    def asked(self) -> list[Question]:
        """Every question so far, oldest first."""
        return self._asked

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        bare = [{k: v for k, v in m.items() if k != "id"} for m in from_langchain(messages)]
        try:
            reply = self.chat.reply(bare, tools=kwargs.get("tools") or (), draw=self.draw)
        except ServerError:
            raise
        except UserError as error:
            raise Refused(str(error)) from error
        self._asked.append(Question(tuple(messages), reply.text))
        answer = _to_one({"content": "", **reply.message, "role": "assistant"}, self.chat.name)
        del answer.additional_kwargs[_SOURCE]  # the agent's own state takes this message: leave nothing in it
        return ChatResult(generations=[ChatGeneration(message=answer)])

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools, whose OpenAI schemas the chat model is given."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)


def require_summary(asked: Sequence[Question], name: str) -> None:
    """Raise BadInput where a summariser answered with an empty text."""
    if any(not question.answer.strip() for question in asked):
        raise BadInput("the summariser answered with an empty text", where=name, hint="nothing was compacted")


def with_messages(
    state: Any, key: str, change: Callable[[Sequence[BaseMessage]], Sequence[BaseMessage]]
) -> Any:
    """A graph's state, a mapping or a pydantic model, with other messages; as it is where it has none."""
    if isinstance(state, Mapping):
        return {**state, key: change(state[key])} if state.get(key) else state
    given = getattr(state, key, None)
    return state.model_copy(update={key: change(given)}) if given else state


def pinned_messages(messages: Sequence[BaseMessage], buffer: PinnedBuffer) -> list[BaseMessage]:
    """Messages of langchain with the pinned rules exactly once: for a node that calls the model itself.

    Raises: PinBroken where they cannot be put there once, byte for byte.
    """
    return placed(messages, buffer, LangChainShape(buffer.role))
