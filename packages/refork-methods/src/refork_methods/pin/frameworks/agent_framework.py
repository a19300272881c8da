"""agent-framework: its compaction strategies as compactors, and the pin around any of them.

A strategy marks groups of messages as excluded and may put a summary in their place; ``apply_compaction``
shows the model what is not excluded. An agent's ``instructions`` stand outside the messages, and messages of
role system are kept by default.

Source: arXiv:2606.22528 names no cell for this package. What each strategy shows, exactly, was read in
agent-framework-core 1.23 and stands in :mod:`refork_methods.pin.frameworks.rules_agent_framework`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, final

from refork.compaction import CompactionResult, SummaryCall, account, untouched
from refork.errors import BadInput, MissingExtra, ServerError, UserError
from refork.types import Message
from refork_methods.pin.buffer import PinnedBuffer
from refork_methods.pin.frameworks.agent_framework_messages import (
    PLACE_ID,
    FrameworkShape,
    from_framework,
    item_of,
    messages_of,
)
from refork_methods.pin.frameworks.loop import finish
from refork_methods.pin.frameworks.turns import History, placed

try:
    from agent_framework import (
        EXCLUDE_REASON_KEY,
        EXCLUDED_KEY,
        CompactionStrategy,
        TokenizerProtocol,
        annotate_message_groups,
        apply_compaction,
    )
    from agent_framework import Message as FrameworkMessage
except ImportError as error:
    raise MissingExtra("agent-framework-core", "harness") from error

_SUMMARISED = "summarized"  # the reason that SummarizationStrategy writes on what its client was shown


@final
class AgentFrameworkCompactor:
    """A real compaction strategy as a compactor; ``tokenizer`` as ``apply_compaction`` takes it.

    The strategy alone decides; its exclusion marks are the account. Where it asks a summariser, that question
    and answer are recorded. The package itself passes over a summariser that fails or says nothing and leaves
    the history as it is; here both are raised, since a silent failure would count as a rule that survived.
    """

    def __init__(
        self,
        strategy: CompactionStrategy,
        tokenizer: TokenizerProtocol | None = None,
        name: str | None = None,
    ) -> None:
        self.strategy = strategy
        self._tokenizer = tokenizer
        self._name = name or f"agent-framework {type(strategy).__name__}"
        self._lock = Lock()  # the recorder stands in the strategy itself

    @property
    def name(self) -> str:
        """The strategy's class, or the name it was given."""
        return self._name

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """What ``apply_compaction`` leaves of the messages.

        Raises:
            BadInput: a message without an id, two with the same, or a summariser that answered nothing.
            ServerError: the summariser failed.
        """
        history = History[FrameworkMessage](messages, item_of)
        for place, item in enumerate(history.items):
            item.message_id = PLACE_ID.format(place)
        working = list(history.items)
        with self._lock, recorded(self.strategy) as asked:
            shown = finish(apply_compaction(working, strategy=self.strategy, tokenizer=self._tokenizer))
        calls = tuple(one.call for one in asked)
        for one in asked:
            _check(one, self._name)
        after = history.back(shown, messages_of, "summary")
        if [m["id"] for m in after] == history.ids:
            return untouched(messages, f"{self._name} left all {len(messages)} messages")
        seen = [
            str(message["id"])
            for item, turn in zip(history.items, history.turns, strict=True)
            if item.additional_properties.get(EXCLUDE_REASON_KEY) == _SUMMARISED
            for message in turn
        ]
        gone = [item for item in history.items if item.additional_properties.get(EXCLUDED_KEY)]
        reasons = sorted({str(item.additional_properties.get(EXCLUDE_REASON_KEY)) for item in gone})
        reason = f"{self._name} excluded {len(gone)} of {len(history.items)} messages: {', '.join(reasons)}"
        return account(messages, after, seen=seen, calls=calls, reason=reason)


@final
class PinnedCompaction:
    """Any compaction strategy (None: none) with pinned rules: every model input holds each exactly once.

    ``Agent(..., compaction_strategy=PinnedCompaction(SlidingWindowStrategy(keep_last_groups=20), buffer))``.
    Compaction is the last thing that happens to the messages before each model call, those of the function
    loop included, so this is where the pin goes in. The wrapped strategy never sees it and does not count
    it. Where a service keeps the conversation, each call sends the pin anew; keep the history local.
    ``buffer`` may be replaced while the agent runs (an operator's signed change).

    Source: arXiv:2606.22528.
    """

    def __init__(self, strategy: CompactionStrategy | None, buffer: PinnedBuffer) -> None:
        self.strategy = strategy
        self.buffer = buffer

    @property
    def tokenizer(self) -> TokenizerProtocol | None:
        """The wrapped strategy's: the package counts tokens beforehand with the tokenizer it finds here."""
        found = getattr(self.strategy, "tokenizer", None)
        return found if isinstance(found, TokenizerProtocol) else None

    async def __call__(self, messages: list[FrameworkMessage]) -> bool:
        """Compact without the pin, put it back, check it. Raises PinBroken where that cannot be."""
        before = list(messages)
        shape = FrameworkShape(self.buffer.role)
        messages[:] = self.buffer.strip(messages, shape)
        annotate_message_groups(messages, tokenizer=self.tokenizer)
        changed = await self.strategy(messages) if self.strategy is not None else False
        messages[:] = placed(messages, self.buffer, shape)
        annotate_message_groups(messages, tokenizer=self.tokenizer)
        return changed or [id(m) for m in before] != [id(m) for m in messages]


@final
class _Asked:
    """One question to a summariser's client: the answer's text, or the error."""

    def __init__(self, prompt: Sequence[FrameworkMessage]) -> None:
        self.prompt = tuple(from_framework(prompt))
        self.answer: str | None = None
        self.error: Exception | None = None

    @property
    def call(self) -> SummaryCall:
        return SummaryCall(self.prompt, self.answer)


@final
class _Recorder:
    """A chat client that passes questions on and keeps them."""

    def __init__(self, client: Any, asked: list[_Asked]) -> None:
        self._client = client
        self._asked = asked

    async def get_response(self, messages: Sequence[FrameworkMessage], **settings: Any) -> Any:
        one = _Asked(messages)
        self._asked.append(one)
        try:
            response = await self._client.get_response(messages, **settings)
        except Exception as error:
            one.error = error
            raise
        one.answer = response.text or ""
        return response


def summarisers(strategy: Any) -> Iterator[Any]:
    """The strategies with a client among a strategy and those that it is composed of."""
    if hasattr(strategy, "client"):
        yield strategy
    for inner in (*getattr(strategy, "strategies", ()), getattr(strategy, "strategy", None)):
        if inner is not None:
            yield from summarisers(inner)


@contextmanager
def recorded(strategy: CompactionStrategy) -> Iterator[list[_Asked]]:
    """Record what a strategy's summarisers are asked; their clients are put back afterwards."""
    asked: list[_Asked] = []
    found = [(one, one.client) for one in summarisers(strategy)]
    for one, client in found:
        one.client = _Recorder(client, asked)
    try:
        yield asked
    finally:
        for one, client in found:
            one.client = client


def _check(one: _Asked, where: str) -> None:
    if isinstance(one.error, UserError):
        raise one.error
    if one.error is not None:
        raise ServerError(f"the summariser failed: {one.error}", where=where) from one.error
    if not (one.answer or "").strip():
        raise BadInput(
            "the summariser answered with an empty text", where=where, hint="nothing was compacted"
        )
