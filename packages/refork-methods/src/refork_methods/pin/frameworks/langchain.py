"""langchain: the SummarizationMiddleware as a compactor, and a middleware that pins.

What the package does (langchain 1.4): all before the kept tail is replaced by one user message. What the
summariser is shown is cut from the front to ``trim_tokens_to_summarize`` (4000) and to open with a user turn,
so an early rule may never reach it; if no user turn is left the model is not asked and a fixed sentence takes
the history's place. The agent's ``system_prompt`` lies outside the state and survives; a system message
inside the state does not. The rules are in
:func:`~refork_methods.pin.frameworks.rules_langchain.middleware_window`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, final
from xml.sax.saxutils import unescape

from refork.chat import ChatModel
from refork.compaction import (
    CompactionResult,
    Counter,
    SummaryCall,
    account,
    checked_ids,
    untouched,
)
from refork.errors import BadInput, InternalError, MissingExtra
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
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langchain_core.messages import BaseMessage, SystemMessage, get_buffer_string
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
        calls = [_call(question) for question in chat.asked]
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


def _call(question: Question) -> SummaryCall:
    """The question, with the XML escapes of the history that it quotes resolved."""
    prompt = tuple({**m, "content": unescape(str(m["content"]))} for m in from_langchain(question.messages))
    return SummaryCall(prompt, question.answer)


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
    """

    def __init__(self, buffer: PinnedBuffer) -> None:
        super().__init__()
        self.buffer = buffer
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

    def _placed(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        prompt = [request.system_message] if request.system_message is not None else []
        shown = placed([*prompt, *request.messages], self.buffer, self._shape)
        first = shown[0] if prompt and isinstance(shown[0], SystemMessage) else None
        rest: list[Any] = shown[1:] if first is not None else shown
        return request.override(system_message=first, messages=rest)
