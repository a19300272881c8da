"""Compaction strategies that need no framework: truncation, head and tail, a summary, summaries of summaries.

All leave a system message at the front alone, keep tool results with the call they answer, and fire when the
history is over ``budget`` tokens.

Source: arXiv:2606.22528 (the four strategies it compares); the prompts and defaults are ours, since the paper
does not state its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.chat import ChatModel
from refork.compaction import (
    CompactionResult,
    Counter,
    SummaryCall,
    account,
    approximate_tokens,
    checked_ids,
    untouched,
)
from refork.errors import BadInput
from refork.policies.base import Policy
from refork.types import Message, token_array

#: What the summariser is asked. As in the frameworks, the task's continuity is all it asks for.
INSTRUCTION = (
    "Summarise the conversation above so that the task can go on without it. Keep the facts that are needed "
    "next. At most {words} words."
)
LEAD = "Summary of the conversation so far:\n"


def policy_tokens(policy: Policy) -> Counter:
    """Count with a policy's own tokenizer and template."""

    def count(messages: Sequence[Message]) -> int:
        return len(policy.render([], token_array([]), list(messages)).tokens) if messages else 0

    return count


def split_system(messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """The leading system messages (``developer`` ones too, as newer models call them), and the rest."""
    leads = ("system", "developer")
    at = next((i for i, m in enumerate(messages) if m.get("role") not in leads), len(messages))
    return list(messages[:at]), list(messages[at:])


def tail_start(messages: Sequence[Message], keep: int) -> int:
    """Where a tail of at least ``keep`` messages begins that does not part a tool result from its call."""
    start = max(len(messages) - keep, 0)
    while 0 < start < len(messages) and messages[start].get("role") == "tool":
        start -= 1
    return start


def head_end(messages: Sequence[Message], keep: int) -> int:
    """Where a head of at least ``keep`` messages ends that does not part a tool result from its call."""
    end = min(keep, len(messages))
    while 0 < end < len(messages) and messages[end].get("role") == "tool":
        end += 1
    return end


def _over(messages: Sequence[Message], budget: int, counter: Counter) -> CompactionResult | None:
    checked_ids(messages)
    tokens = counter(messages)
    return untouched(messages, f"{tokens} tokens, budget {budget}") if tokens <= budget else None


def _positive(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise BadInput(f"{name} is {value}; it must be at least 1")


@final
@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop the oldest messages until the rest fits; the last one always stays."""

    budget: int
    counter: Counter = approximate_tokens
    name: str = "truncate"

    def __post_init__(self) -> None:
        _positive(budget=self.budget)

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """The newest messages that fit."""
        if (same := _over(messages, self.budget, self.counter)) is not None:
            return same
        system, rest = split_system(messages)
        start = 0
        while start < len(rest) - 1 and self.counter([*system, *rest[start:]]) > self.budget:
            start += 1
            # A result whose call was just dropped goes too, even if it would fit.
            while start < len(rest) - 1 and rest[start].get("role") == "tool":
                start += 1
        if start == 0:
            return untouched(messages, "over the budget, but the last message always stays")
        return account(messages, [*system, *rest[start:]], reason=f"dropped the {start} oldest")


@final
@dataclass(frozen=True, slots=True)
class HeadTail:
    """Keep the first ``head`` and the last ``tail`` messages, drop the middle."""

    budget: int
    head: int = 1
    tail: int = 4
    counter: Counter = approximate_tokens
    name: str = "head-tail"

    def __post_init__(self) -> None:
        _positive(budget=self.budget, head=self.head, tail=self.tail)

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """Head and tail."""
        if (same := _over(messages, self.budget, self.counter)) is not None:
            return same
        system, rest = split_system(messages)
        end = head_end(rest, self.head)
        start = max(tail_start(rest, self.tail), end)
        if start == end:
            return untouched(messages, f"over the budget, but head and tail are all there is: {len(rest)}")
        kept = [*system, *rest[:end], *rest[start:]]
        return account(messages, kept, reason=f"dropped {start - end} in the middle")


@dataclass(frozen=True, slots=True)
class _Asked:
    call: SummaryCall
    text: str


def _ask(model: ChatModel, shown: Sequence[Message], words: int, draw: int) -> _Asked:
    prompt = (*shown, {"role": "user", "content": INSTRUCTION.format(words=words)})
    text = model.reply([{k: v for k, v in m.items() if k != "id"} for m in prompt], draw=draw).text
    if not text.strip():
        raise BadInput(
            "the summariser answered with an empty text", where=model.name, hint="nothing was compacted"
        )
    return _Asked(SummaryCall(prompt, text), " ".join(text.split()[:words]))


def _summary(text: str, place: str) -> Message:
    return {"role": "user", "content": LEAD + text, "id": f"summary-{place}"}


@dataclass(frozen=True, slots=True)
class _Span:
    """A history in three: the protected slot, what a summary takes the place of, and what stays."""

    system: list[Message]
    old: list[Message]
    tail: list[Message]

    def replaced(self, messages: Sequence[Message], asked: Sequence[_Asked]) -> CompactionResult:
        """The account of a summary in the old messages' place; the last answer is the summary."""
        summary = _summary(asked[-1].text, str(self.old[-1]["id"]))
        return account(
            messages,
            [*self.system, summary, *self.tail],
            seen=[str(m["id"]) for m in self.old],
            calls=[one.call for one in asked],
            reason=f"summarised {len(self.old)} messages in {len(asked)} call{'s' * (len(asked) > 1)}",
        )


def _span(messages: Sequence[Message], budget: int, keep: int, counter: Counter) -> _Span | CompactionResult:
    """What a summary would take the place of; the untouched result where there is nothing to do."""
    if (same := _over(messages, budget, counter)) is not None:
        return same
    system, rest = split_system(messages)
    start = tail_start(rest, keep)
    if start == 0:
        return untouched(messages, f"nothing stands before the last {keep}")
    return _Span(system, rest[:start], rest[start:])


@final
@dataclass(frozen=True, slots=True)
class Summarise:
    """One summary of at most ``words`` words takes the place of all but the last ``keep`` messages.

    A longer answer is cut at the limit, as a completion limit would. An earlier summary is summarised again.
    """

    model: ChatModel
    budget: int
    keep: int = 2
    words: int = 80
    counter: Counter = approximate_tokens
    draw: int = 0
    name: str = "summarise"

    def __post_init__(self) -> None:
        _positive(budget=self.budget, keep=self.keep, words=self.words)

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """Summary and tail. Raises BadInput where the summariser answers nothing."""
        span = _span(messages, self.budget, self.keep, self.counter)
        if isinstance(span, CompactionResult):
            return span
        asked = _ask(self.model, span.old, self.words, self.draw)
        return span.replaced(messages, [asked])


@final
@dataclass(frozen=True, slots=True)
class Hierarchical:
    """Summaries of ``chunk`` messages each, then one summary of these."""

    model: ChatModel
    budget: int
    keep: int = 2
    words: int = 80
    chunk: int = 6
    counter: Counter = approximate_tokens
    draw: int = 0
    name: str = "hierarchical"

    def __post_init__(self) -> None:
        _positive(budget=self.budget, keep=self.keep, words=self.words, chunk=self.chunk)

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """Summary of summaries, and tail. Raises BadInput where the summariser answers nothing."""
        span = _span(messages, self.budget, self.keep, self.counter)
        if isinstance(span, CompactionResult):
            return span
        parts = [span.old[i : i + self.chunk] for i in range(0, len(span.old), self.chunk)]
        asked = [_ask(self.model, part, self.words, self.draw) for part in parts]
        if len(asked) > 1:
            middle = [_summary(one.text, str(part[-1]["id"])) for one, part in zip(asked, parts, strict=True)]
            asked.append(_ask(self.model, middle, self.words, self.draw))
        return span.replaced(messages, asked)
