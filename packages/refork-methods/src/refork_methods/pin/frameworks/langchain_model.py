"""langchain: a chat model whose every input holds the pinned rules, and which is still that chat model.

It is a copy of the model in a subclass of the model's own class, so tools, structured output, streaming,
batches, the profile and whatever asks for the class work as before. The rules are put in where langchain
hands the model its messages: behind every form of input, and behind the tools and settings bound to the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from types import new_class
from typing import Any, ClassVar, TypeVar, cast, final, overload

from pydantic import PrivateAttr

from refork.errors import CannotDo, MissingExtra
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import pinned_messages

try:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage, HumanMessage, convert_to_messages
    from langchain_core.prompt_values import ChatPromptValue, PromptValue
    from langchain_core.runnables import (
        Runnable,
        RunnableBinding,
        RunnableLambda,
        RunnableParallel,
        RunnableSequence,
    )
    from langchain_core.runnables.base import RunnableBindingBase
    from langchain_core.runnables.fallbacks import RunnableWithFallbacks
except ImportError as error:
    raise MissingExtra("langchain-core", "harness") from error

M = TypeVar("M", bound=BaseChatModel)

#: What langchain calls with the messages of one model call, where a model class has it.
_CALLS = (
    "_generate",
    "_agenerate",
    "_stream",
    "_astream",
    "_stream_chat_model_events",
    "_astream_chat_model_events",
)


@overload
def pinned_model(model: M, buffer: PinnedBuffer) -> M: ...
@overload
def pinned_model(model: Runnable[Any, Any], buffer: PinnedBuffer) -> Runnable[Any, Any]: ...
def pinned_model(model: Runnable[Any, Any], buffer: PinnedBuffer) -> Runnable[Any, Any]:
    """A model whose every input holds the pinned rules, to be used wherever the model was.

    A chat model stays one of its class, for ``create_agent`` and ``bind_tools`` alike. Of a chain, a binding
    or fallbacks the chat models inside are pinned; before any other runnable the messages are. A model that
    is pinned already holds the new rules instead. Give a summary node the bare model, for a summary has no
    use for the rules.

    Raises:
        CannotDo: a chat model whose class cannot be extended.
    """
    found = _pinned(model, buffer)
    return PinnedInput.before(model, buffer) if found is None else found


def _pinned(model: Any, buffer: PinnedBuffer) -> Runnable[Any, Any] | None:
    """A runnable with its chat models pinned; None where it holds none."""
    if isinstance(model, BaseChatModel):
        return _copy(model, buffer)
    if isinstance(model, PinnedInput):
        return PinnedInput.before(model.last, buffer)
    parts: dict[str, Any] = {}
    if isinstance(model, RunnableBinding | RunnableBindingBase):
        parts = {"bound": _pinned(model.bound, buffer)}
    elif isinstance(model, RunnableWithFallbacks):
        every = [_pinned(one, buffer) for one in (model.runnable, *model.fallbacks)]
        parts = {"runnable": every[0], "fallbacks": every[1:] if all(every[1:]) else None}
    elif isinstance(model, RunnableSequence):
        steps = [_pinned(step, buffer) for step in model.steps]
        if any(steps):
            first, *middle, last = (new or old for new, old in zip(steps, model.steps, strict=True))
            parts = {"first": first, "middle": middle, "last": last}
    elif isinstance(model, RunnableParallel):
        named = {name: _pinned(step, buffer) for name, step in model.steps__.items()}
        if any(named.values()):
            parts = {"steps__": {name: new or model.steps__[name] for name, new in named.items()}}
    if not parts or any(part is None for part in parts.values()):
        return None
    return cast("Runnable[Any, Any]", model.model_copy(update=parts))


def _copy(model: M, buffer: PinnedBuffer) -> M:
    kind: type[M] = getattr(type(model), "_refork_unpinned", type(model))
    copy = model.model_copy()
    try:
        object.__setattr__(copy, "__class__", _pinned_class(kind, buffer))
    except TypeError as error:
        raise CannotDo(
            f"a model of the class {kind.__name__} cannot be pinned: {error}",
            hint="pin the messages instead: model.invoke(pinned_messages(messages, buffer))",
        ) from error
    return copy


def _pinned_class(kind: type[M], buffer: PinnedBuffer) -> type[M]:
    """A subclass that pins its messages; of the same name, by which langchain and tracers know a provider."""

    def pinning(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def pinned_call(self: Any, messages: Sequence[BaseMessage], *args: Any, **kwargs: Any) -> Any:
            return call(self, pinned_messages(messages, buffer), *args, **kwargs)

        return pinned_call

    # Callbacks are told the messages before the model's own calls are: what a log says is what is sent.
    def _convert_input(self: Any, model_input: Any) -> PromptValue:
        given = super(made, self)._convert_input(model_input).to_messages()
        return ChatPromptValue(messages=pinned_messages(given, buffer))

    def generate(self: Any, messages: Sequence[Sequence[BaseMessage]], *args: Any, **kwargs: Any) -> Any:
        return super(made, self).generate([pinned_messages(m, buffer) for m in messages], *args, **kwargs)

    async def agenerate(
        self: Any, messages: Sequence[Sequence[BaseMessage]], *args: Any, **kwargs: Any
    ) -> Any:
        every = [pinned_messages(m, buffer) for m in messages]
        return await super(made, self).agenerate(every, *args, **kwargs)

    def _get_llm_string(self: Any, *args: Any, **kwargs: Any) -> str:
        # A cache must not answer for the bare model, nor for one with other rules.
        return f"{super(made, self)._get_llm_string(*args, **kwargs)}---pinned {buffer.digest}"

    # Only what the class has itself: langchain asks by that whether a model streams.
    own = {name: pinning(getattr(kind, name)) for name in _CALLS if _has(kind, name)}
    body: dict[str, Any] = {
        **own,
        "_convert_input": _convert_input,
        "generate": generate,
        "agenerate": agenerate,
        "_get_llm_string": _get_llm_string,
        "_refork_unpinned": kind,
        "__annotations__": {"_refork_unpinned": ClassVar[type]},
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    made = cast("type[M]", new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(body)))
    return made


def _has(kind: type[BaseChatModel], name: str) -> bool:
    call = getattr(kind, name, None)
    return call is not None and call is not getattr(BaseChatModel, name, None)


@final
class PinnedInput(RunnableSequence[Any, Any]):
    """The pinned messages, then a runnable that holds no chat model itself, such as a configurable one."""

    _buffer: PinnedBuffer = PrivateAttr()

    @classmethod
    def before(cls, model: Runnable[Any, Any], buffer: PinnedBuffer) -> PinnedInput:
        """The runnable behind its pinned input."""

        def insert_pins(given: Any) -> list[BaseMessage]:
            return pinned_messages(_messages(given), buffer)

        make: Any = cls  # its own __init__ takes steps, which a type checker does not see
        made: PinnedInput = make(RunnableLambda(insert_pins), model)
        made._buffer = buffer
        return made

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        """The runnable with tools, pinned."""
        bound: Runnable[Any, Any] = cast("Any", self.last).bind_tools(tools, **kwargs)
        return pinned_model(bound, self._buffer)

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[Any, Any]:
        """The runnable with an answer of a schema, pinned."""
        structured: Runnable[Any, Any] = cast("Any", self.last).with_structured_output(schema, **kwargs)
        return pinned_model(structured, self._buffer)


def _messages(given: Any) -> list[BaseMessage]:
    """Messages of all that langchain's models take: a text, a prompt, messages, pairs or dicts."""
    if isinstance(given, PromptValue):
        return given.to_messages()
    return [HumanMessage(given)] if isinstance(given, str) else convert_to_messages(given)
