"""langmem: its short-term summaries as a compactor, and pinned with one line.

Two things of the package decide whether a rule can survive at all (langmem 0.0.30). A span over
``max_tokens`` is cut from the front before the summariser is asked, so an early rule is gone before any model
could keep it; with the default ``max_tokens_before_summary`` that is every span that does not hit the budget
to the token. And a system message at index 0 is set aside and put back. The rules are in
:func:`~refork_methods.pin.frameworks.rules_langchain.langmem_window`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from refork.chat import ChatModel
from refork.compaction import CompactionResult, Counter, account, checked_ids, untouched
from refork.errors import BadInput, MissingExtra
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
    with_messages,
)
from refork_methods.pin.frameworks.turns import placed

try:
    from langchain_core.messages import BaseMessage, RemoveMessage
    from langchain_core.runnables import Runnable, RunnableLambda
    from langgraph.warnings import LangGraphDeprecationWarning

    # langmem imports names that langgraph has moved; that is for nobody here to mend.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LangGraphDeprecationWarning)
        from langmem.short_term import (  # type: ignore[import-untyped]
            RunningSummary,
            SummarizationNode,
            SummarizationResult,
            summarize_messages,
        )
except ImportError as error:
    raise MissingExtra("langmem", "harness") from error

#: What langmem's default final prompt puts before a summary.
_LEAD = "Summary of the conversation so far: "
_PACKAGE = "langmem"


@final
@dataclass(frozen=True, slots=True)
class LangMemCompactor:
    """``langmem.short_term.summarize_messages`` with the package's own prompts.

    ``counter`` None counts as the package does. A running summary is carried over by the summary message of
    the history itself, so compacting again, or in another process, gives what a graph with the whole history
    in its state would. langmem only makes room for ``max_summary_tokens``; to enforce it, limit the model.
    """

    model: ChatModel
    max_tokens: int
    max_tokens_before_summary: int | None = None
    max_summary_tokens: int = 256
    counter: Counter | None = None
    draw: int = 0
    name: str = "langmem"

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """The context that langmem gives the model.

        Raises: BadInput for ids, for settings that langmem refuses, or where the summariser answers nothing.
        """
        checked_ids(messages)
        bare, running = _split(messages)
        chat = LangChainChat(self.model, self.draw)
        try:
            with own_errors():
                result = summarize_messages(
                    to_langchain(bare),
                    running_summary=running,
                    model=chat,
                    max_tokens=self.max_tokens,
                    max_tokens_before_summary=self.max_tokens_before_summary,
                    max_summary_tokens=self.max_summary_tokens,
                    token_counter=package_counter(self.counter),
                )
        except ValueError as error:
            raise BadInput(f"langmem refuses: {error}", where=self.name) from error
        if not chat.asked:
            return untouched(messages, f"langmem saw no span of {self._trigger} tokens with a rest that fits")
        require_summary(chat.asked, self.model.name)
        return self._compaction(messages, result, chat.asked[-1])

    @property
    def _trigger(self) -> int:
        return self.max_tokens if self.max_tokens_before_summary is None else self.max_tokens_before_summary

    def _compaction(
        self, before: Sequence[Message], result: SummarizationResult, asked: Question
    ) -> CompactionResult:
        after = from_langchain(result.messages)
        kept = {m["id"] for m in after if m.get("id")}
        gone = [str(m["id"]) for m in before if m["id"] not in kept]
        name = summary_id(_PACKAGE, gone, asked.answer)
        after = [m if m.get("id") else {**m, "id": name} for m in after]
        shown = {message.id for message in asked.messages}
        told = [m for m in before if m["id"] in shown or (_is_summary(m) and _carried(m, asked))]
        cut = len(gone) - len(told)
        reason = f"langmem summarised {len(told)} messages" + (
            f"; {cut} older ones were cut off before the summariser" if cut else ""
        )
        return account(before, after, seen=[m["id"] for m in told], calls=[asked.call()], reason=reason)


def _is_summary(message: Message) -> bool:
    return str(message["id"]).startswith(f"{_PACKAGE}-summary-")


def _carried(summary: Message, asked: Question) -> bool:
    """Whether a question holds the earlier summary, which langmem writes into its instruction."""
    return str(summary["content"]).removeprefix(_LEAD) in asked.messages[-1].text


def _split(messages: Sequence[Message]) -> tuple[list[Message], RunningSummary | None]:
    """The history without its summary message, and the running summary that this stands for."""
    found = [m for m in messages if _is_summary(m)]
    if not found:
        return list(messages), None
    text = str(found[-1]["content"]).removeprefix(_LEAD)
    bare = [m for m in messages if not _is_summary(m)]
    return bare, RunningSummary(summary=text, summarized_message_ids=set(), last_summarized_message_id=None)


def pinned_node(node: SummarizationNode, buffer: PinnedBuffer) -> Runnable[Any, Any]:
    """A SummarizationNode whose output always holds the pinned rules, and which never summarises them.

    Use it in the graph in the node's place. It works with an output key of its own and with one that
    overwrites the history.
    """
    shape = LangChainShape(buffer.role)

    def bare(state: Any) -> Any:
        return with_messages(state, node.input_messages_key, lambda given: buffer.strip(given, shape))

    def insert_pins(update: Mapping[str, Any]) -> dict[str, Any]:
        messages: list[BaseMessage] = update[node.output_messages_key]
        # A node that overwrites the history starts with an order to remove it: that is no message.
        orders = [m for m in messages if isinstance(m, RemoveMessage)]
        texts = [m for m in messages if not isinstance(m, RemoveMessage)]
        return {**update, node.output_messages_key: [*orders, *placed(texts, buffer, shape)]}

    pinned: Runnable[Any, Any] = RunnableLambda(bare) | node | RunnableLambda(insert_pins)
    return pinned
