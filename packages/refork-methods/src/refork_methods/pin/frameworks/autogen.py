"""AutoGen: its model contexts as compactors, and the pin around any of them.

An AutoGen context keeps the whole history and shows the model a view of it; no context summarises.
The agent's ``system_message`` stands outside the context and is never evicted.

Source: arXiv:2606.22528 (the buffered context is its only harness cell of 100 %). What each context
shows, exactly, was read in autogen-core 0.7.5 and stands in
:mod:`refork_methods.pin.frameworks.rules_autogen`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from threading import Lock
from typing import Any, Self, final

from refork.chat import ScriptedChat
from refork.compaction import CompactionResult, Counter, account, approximate_tokens, untouched
from refork.errors import BadInput, MissingExtra
from refork.types import Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.constraint import Constraint
from refork_methods.pin.frameworks.autogen_client import AutoGenChatClient
from refork_methods.pin.frameworks.autogen_messages import SKIPPED, AutoGenShape, item_of, messages_of
from refork_methods.pin.frameworks.loop import finish
from refork_methods.pin.frameworks.turns import History, placed

try:
    from autogen_core import Component, ComponentModel
    from autogen_core.model_context import (
        BufferedChatCompletionContext,
        ChatCompletionContext,
        HeadAndTailChatCompletionContext,
        TokenLimitedChatCompletionContext,
        UnboundedChatCompletionContext,
    )
    from autogen_core.models import LLMMessage
    from pydantic import BaseModel, Field
except ImportError as error:
    raise MissingExtra("autogen-core", "harness") from error


#: Contexts that return the very messages that they were given, never copies.
KNOWN = (
    BufferedChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)


@final
class AutoGenContextCompactor:
    """A real AutoGen context as a compactor: what it shows of a history is the compacted history.

    The context's own messages are put back after every compaction, so one in use may be given. It fired where
    its view differs from the history.
    """

    def __init__(self, context: ChatCompletionContext, name: str | None = None) -> None:
        self.context = context
        self._name = name or type(context).__name__
        self._lock = Lock()  # the context holds the history for a moment

    @classmethod
    def buffered(cls, size: int) -> AutoGenContextCompactor:
        """The last ``size`` messages. Raises BadInput for a size under 1."""
        return cls(_made(lambda: BufferedChatCompletionContext(size)), f"autogen buffered({size})")

    @classmethod
    def head_and_tail(cls, head: int, tail: int) -> AutoGenContextCompactor:
        """The first ``head`` and the last ``tail`` messages. Raises BadInput for one under 1."""
        context = _made(lambda: HeadAndTailChatCompletionContext(head, tail))
        return cls(context, f"autogen head and tail({head}, {tail})")

    @classmethod
    def token_limited(cls, limit: int, counter: Counter = approximate_tokens) -> AutoGenContextCompactor:
        """What fits ``limit`` tokens as the counter counts. Raises BadInput for a limit under 1."""
        client = AutoGenChatClient(ScriptedChat([]), counter)
        context = _made(lambda: TokenLimitedChatCompletionContext(client, token_limit=limit))
        return cls(context, f"autogen token limited({limit})")

    @property
    def name(self) -> str:
        """The context and its setting."""
        return self._name

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """What the context shows of the messages.

        Raises:
            BadInput: a message without an id, two with the same, or a role that AutoGen does not know.
            CannotDo: the context returned a copy of one of several equal messages.
        """
        history = History[LLMMessage](messages, item_of)
        with self._lock:
            shown = finish(self._view(history.items))
        own = type(self.context) in KNOWN
        after = history.back(shown, messages_of, SKIPPED, copies=not own)
        kept = [m for m in after if m["id"] in set(history.ids)]
        if [m["id"] for m in after] == history.ids:
            return untouched(messages, f"{self._name} shows all {len(messages)} messages")
        return account(messages, after, reason=f"{self._name} shows {len(kept)} of {len(messages)} messages")

    async def _view(self, items: Sequence[LLMMessage]) -> list[LLMMessage]:
        # The context may be in use by an agent: its own messages are put back whatever happens.
        state = await self.context.save_state()
        await self.context.clear()
        try:
            for item in items:
                await self.context.add_message(item)
            return list(await self.context.get_messages())
        finally:
            await self.context.load_state(state)


def _made(make: Callable[[], ChatCompletionContext]) -> ChatCompletionContext:
    try:
        return make()
    except ValueError as error:
        raise BadInput(str(error)) from error


class PinnedContextConfig(BaseModel):
    """A pinned context as a component: the wrapped context, and the buffer's fields."""

    context: ComponentModel
    constraints: list[dict[str, Any]]
    placement: str = "head"
    role: str = "system"
    provenance: bool = True
    last: dict[str, int] = Field(default_factory=dict)


@final
class PinnedContext(ChatCompletionContext, Component[PinnedContextConfig]):
    """Any AutoGen context with pinned rules: every view it gives holds exactly one copy of each.

    ``AssistantAgent(..., model_context=PinnedContext(BufferedChatCompletionContext(20), buffer))``. Messages
    and state are the wrapped context's, and never hold the pin: a state saved with or without it loads
    into both, and no saved state can change a rule. The wrapped context does not count the pin: where it
    limits tokens, leave room. ``buffer`` may be replaced while the agent runs (an operator's signed change).

    Source: arXiv:2606.22528.
    """

    component_config_schema = PinnedContextConfig
    component_provider_override = "refork_methods.pin.frameworks.autogen.PinnedContext"

    def __init__(self, context: ChatCompletionContext, buffer: PinnedBuffer) -> None:
        super().__init__()
        self.context = context
        self.buffer = buffer

    async def add_message(self, message: LLMMessage) -> None:
        """Give a message to the wrapped context."""
        await self.context.add_message(message)

    async def get_messages(self) -> list[LLMMessage]:
        """The wrapped context's view with the pin. Raises PinBroken where that cannot be."""
        return placed(await self.context.get_messages(), self.buffer, AutoGenShape(self.buffer.role))

    async def clear(self) -> None:
        """Forget the messages; the rules stay."""
        await self.context.clear()

    async def save_state(self) -> Mapping[str, Any]:
        """The wrapped context's state."""
        return await self.context.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Load a state of the wrapped context."""
        await self.context.load_state(state)

    def _to_config(self) -> PinnedContextConfig:
        return PinnedContextConfig(
            context=self.context.dump_component(),
            constraints=[asdict(rule) for rule in self.buffer.constraints],
            placement=self.buffer.placement,
            role=self.buffer.role,
            provenance=self.buffer.provenance,
            last=dict(self.buffer.last),
        )

    @classmethod
    def _from_config(cls, config: PinnedContextConfig) -> Self:
        return cls.of(config.model_dump(), ChatCompletionContext.load_component(config.context))

    @classmethod
    def of(cls, config: Mapping[str, Any], context: ChatCompletionContext) -> Self:
        """A context with the buffer of a dumped configuration.

        Raises: BadInput for rules that no buffer takes, pydantic's ValidationError for other faults.
        """
        made = PinnedContextConfig.model_validate(dict(config))
        buffer = PinnedBuffer(
            tuple(Constraint(**rule) for rule in made.constraints),
            placement="tail" if made.placement == "tail" else "head",
            role=made.role,
            provenance=made.provenance,
            last=made.last,
        )
        return cls(context, buffer)
