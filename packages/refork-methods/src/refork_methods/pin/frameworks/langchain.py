"""langchain: the SummarizationMiddleware as a compactor, and a middleware that pins.

What the package does (langchain 1.4): all before the kept tail is replaced by one user message. What the
summariser is shown is cut from the front to ``trim_tokens_to_summarize`` (4000) and to open with a user turn,
so an early rule may never reach it; if no user turn is left the model is not asked and a fixed sentence takes
the history's place. The agent's ``system_prompt`` lies outside the state and survives; a system message
inside the state does not. The rules are in
:func:`~refork_methods.pin.frameworks.rules_langchain.middleware_window`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, final

from refork.chat import ChatModel
from refork.compaction import (
    CompactionResult,
    Counter,
    account,
    checked_ids,
    untouched,
)
from refork.errors import BadInput, InternalError, MissingExtra, PinBroken
from refork.types import Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import (
    LangChainChat,
    LangChainShape,
    Question,
    from_langchain,
    own_errors,
    package_counter,
    require_summary,
    summary_id,
    to_langchain,
)
from refork_methods.pin.frameworks.rules_langchain import Size
from refork_methods.pin.frameworks.turns import placed

try:
    from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
    from langchain.agents.middleware.summarization import DEFAULT_SUMMARY_PROMPT
    from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage, SystemMessage, get_buffer_string
    from langchain_core.tracers.context import register_configure_hook
    from langgraph.graph.message import add_messages
    from langgraph.runtime import Runtime
except ImportError as error:
    raise MissingExtra("langchain", "harness") from error

_PACKAGE = "langchain"


@final
@dataclass(frozen=True, slots=True)
class LangChainMiddlewareCompactor:
    """langchain's ``SummarizationMiddleware`` with its own prompt.

    ``trigger`` None never fires, as in langchain. ``counter`` None counts as the package does. ``protected``:
    a system message at the front is the agent's ``system_prompt``, outside the state; False: it lies in the
    state like any other.
    """

    model: ChatModel
    trigger: Size | None
    keep: Size = ("messages", 20)
    trim_tokens_to_summarize: int | None = 4000
    counter: Counter | None = None
    protected: bool = True
    draw: int = 0
    name: str = "langchain SummarizationMiddleware"

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """The context that an agent with this middleware gives its model.

        Raises: BadInput for ids, for settings that langchain refuses, or for an empty summary.
        """
        checked_ids(messages)
        slot = list(messages[:1]) if self.protected and _is_system(messages) else []
        state: list[Any] = to_langchain(messages[len(slot) :])
        chat = LangChainChat(self.model, self.draw)
        middleware = self._middleware(chat)
        with own_errors():
            update = middleware.before_model({"messages": list(state)}, Runtime())
        if update is None:
            return untouched(messages, "langchain's trigger was not reached, or the kept tail is everything")
        require_summary(chat.asked, self.model.name)
        rest = {m.id for m in update["messages"]}
        span = [m for m in state if m.id not in rest]
        for made in update["messages"]:
            if made.additional_kwargs.get("lc_source") == "summarization":
                made.id = summary_id(_PACKAGE, [str(m.id) for m in span], made.text)
        after = [*slot, *from_langchain(add_messages(list(state), update["messages"]))]  # type: ignore[arg-type, arg-type]
        seen = _quoted_ids(span, chat.asked[-1]) if chat.asked else []
        calls = [question.call() for question in chat.asked]
        return account(messages, after, seen=seen, calls=calls, reason=_reason(span, seen, bool(chat.asked)))

    def _middleware(self, chat: LangChainChat) -> SummarizationMiddleware[Any, Any]:
        settings: dict[str, Any] = (
            {} if self.counter is None else {"token_counter": package_counter(self.counter)}
        )
        try:
            return SummarizationMiddleware(
                chat,
                trigger=self.trigger,  # type: ignore[arg-type]
                keep=self.keep,  # type: ignore[arg-type]
                trim_tokens_to_summarize=self.trim_tokens_to_summarize,
                **settings,
            )
        except ValueError as error:
            raise BadInput(f"langchain refuses: {error}", where=self.name) from error


def _is_system(messages: Sequence[Message]) -> bool:
    return bool(messages) and messages[0].get("role") in ("system", "developer")


def _reason(span: Sequence[BaseMessage], seen: Sequence[str], asked: bool) -> str:
    if not asked:
        return (
            f"langchain replaced {len(span)} messages by a fixed sentence without asking the summariser: "
            "no user turn was left after its trim"
        )
    cut = len(span) - len(seen)
    return f"langchain summarised {len(seen)} messages" + (
        f"; {cut} others were cut off before the summariser" if cut else ""
    )


def _quoted_ids(span: Sequence[BaseMessage], question: Question) -> list[str]:
    """Ids of the messages of a span that stand in the one text that the middleware sends.

    What it quotes is a rendering of the span's end, before it perhaps the last lines of one more message, and
    a system message where the span begins with one. A rendering opens with a tag that no content can hold, so
    there is one way to read it.
    """
    first, _, last = DEFAULT_SUMMARY_PROMPT.format(messages="\0").rstrip().partition("\0")
    text = question.messages[0].text
    if not (text.startswith(first) and text.endswith(last)):
        raise InternalError("langchain's question is not made of its own prompt")
    body = text[len(first) : len(text) - len(last)]
    ids = [str(m.id) for m in span]
    start = next(i for i in range(len(span) + 1) if body.endswith(_rendered(span[i:])))
    if start == 0:
        return ids
    left = body.removesuffix(_rendered(span[start:])).removesuffix("\n")
    lead = ids[:1] if isinstance(span[0], SystemMessage) else []
    if lead:
        head = _rendered(span[:1])
        if not left.startswith(head):
            raise InternalError("langchain's prompt does not begin with the span's system message")
        left = left.removeprefix(head).removeprefix("\n")
    cut = [ids[start - 1]] if left else []
    return [*lead, *(name for name in cut if name not in lead), *ids[start:]]


def _rendered(messages: Sequence[BaseMessage]) -> str:
    return get_buffer_string(messages, format="xml")


@final
class PinningMiddleware(AgentMiddleware[Any, Any, Any]):
    """Puts the pinned rules into every model input of an agent of ``create_agent``, and checks them there.

    The state never holds them, so no summary can. Put it last in ``middleware``: the last is the innermost,
    and what stands inside it may still edit messages.

    A middleware is its own agent's, and deepagents gives none to sub-agents. So the model calls of an agent
    that a tool starts are checked too: with ``subagents`` "refuse" (the default) one that would not be shown
    the rules is stopped before its first model call, with "ignore" it runs as it is. A model that a tool asks
    by itself is no agent, and a middleware's own call, as for a summary, has no use for the rules.
    """

    def __init__(self, buffer: PinnedBuffer, subagents: Literal["refuse", "ignore"] = "refuse") -> None:
        super().__init__()
        if subagents not in ("refuse", "ignore"):
            raise BadInput(f"subagents is {subagents!r}; it must be 'refuse' or 'ignore'")
        self.buffer = buffer
        self.subagents = subagents
        self._shape = LangChainShape(buffer.role)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Call the model with the rules in its input. Raises PinBroken if they are not there exactly once."""
        return handler(self._placed(request))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """The same for an asynchronous agent."""
        return await handler(self._placed(request))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """Call a tool. Raises PinBroken if it starts an agent whose model is not shown the rules."""
        with self._guarded(request):
            return handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """The same for an asynchronous agent."""
        with self._guarded(request):
            return await handler(request)

    def _placed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        prompt = [request.system_message] if request.system_message is not None else []
        shown = placed([*prompt, *request.messages], self.buffer, self._shape)
        first = shown[0] if prompt and isinstance(shown[0], SystemMessage) else None
        rest: list[Any] = shown[1:] if first is not None else shown
        return request.override(system_message=first, messages=rest)

    @contextmanager
    def _guarded(self, request: ToolCallRequest) -> Iterator[None]:
        if self.subagents == "ignore" or not self.buffer.constraints:
            yield
            return
        home = getattr(getattr(request.tool, "func", None), "__module__", "")
        if home.endswith(".async_subagents") and request.tool_call["name"] in _REMOTE:
            raise _unpinned("a sub-agent on another server, whose messages cannot be seen from here,")
        token = _guard.set(_Guard(self.buffer, _graph(request.runtime.config.get("metadata"))))
        try:
            yield
        finally:
            _guard.reset(token)


#: deepagents' tools that start or steer an agent elsewhere.
_REMOTE = ("start_async_task", "update_async_task")


def _graph(metadata: Mapping[str, Any] | None) -> str:
    return str((metadata or {}).get("langgraph_checkpoint_ns", ""))


def _unpinned(who: str, rules: Sequence[str] = ()) -> PinBroken:
    return PinBroken(
        f"{who} would run without the pinned rules" + (f" {', '.join(rules)}" if rules else ""),
        hint="give it a PinningMiddleware of its own (deepagents: subagents=pinned_subagents(buffer, [...])) "
        "or say PinningMiddleware(buffer, subagents='ignore')",
    )


@final
class _Guard(BaseCallbackHandler):
    """Looks at the model calls inside one tool call, before they are made."""

    raise_error = True
    run_inline = True

    def __init__(self, buffer: PinnedBuffer, graph: str) -> None:
        self._buffer = buffer
        self._graph = graph

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Raise PinBroken for a sub-agent's model input without the rules."""
        shape = LangChainShape(self._buffer.role)
        for one in messages:
            self._check([shape.text(message) for message in one], metadata or {})

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The same for a model that takes a text."""
        for prompt in prompts:
            self._check([prompt], metadata or {})

    def _check(self, texts: Sequence[str], metadata: Mapping[str, Any]) -> None:
        # A graph inside the tool's has a longer path. The last part of a tool's own path is its node's.
        inner = _graph(metadata).removeprefix(self._graph)
        if not inner or inner.rpartition("|")[2].startswith("tools:") or metadata.get("lc_source"):
            return
        found = self._buffer.check_texts(texts)
        if not found.ok:
            name = metadata.get("lc_agent_name")
            raise _unpinned(f"the sub-agent {name!r}" if name else "a sub-agent", found.missing)


# Callbacks given to the agent are fixed when it starts; what langchain looks up here may change at every
# tool.
_guard: ContextVar[_Guard | None] = ContextVar("refork_pin_guard", default=None)
register_configure_hook(_guard, inheritable=True)
