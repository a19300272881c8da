"""The context cut to a budget: the first messages and the most recent stay, the middle is one line per turn.

Source: arXiv:2606.24820 (what is kept); the budget, the lines and the order of giving up are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from refork.compaction import Counter
from refork.types import Message

_LEAD = "Earlier turns, shortened:"
_CUT = "\n... {} characters left out ...\n"


@final
@dataclass(frozen=True, slots=True)
class Exchange:
    """What one turn added to the conversation, and the line that stands for it once it is collapsed."""

    messages: tuple[Message, ...]
    line: str


@final
@dataclass(frozen=True, slots=True)
class Context:
    """Messages to send; ``collapsed``: how many of the first exchanges stand as lines."""

    messages: tuple[Message, ...]
    collapsed: int = 0
    shortened: bool = False


def fit_context(
    first: Sequence[Message], exchanges: Sequence[Exchange], budget: int, counter: Counter
) -> Context:
    """The longest recent part that fits in ``budget`` tokens beside the first messages.

    Collapsed turns stand as lines at the end of the last first message, so that roles go on taking turns; the
    text of the first messages, the issue among it, is always whole. The last exchange is never collapsed;
    where it alone is too long, its texts lose their middle. If that is not enough the context is over budget:
    the issue is not given up.
    """
    for count in range(len(exchanges)):
        made = _with(first, exchanges, count)
        if counter(made) <= budget:
            return Context(tuple(made), count)
    if not exchanges:
        return Context(tuple(first))
    made = _with(first, exchanges, len(exchanges) - 1)
    room = budget - counter(_with(first, exchanges, len(exchanges)))
    size = max(4 * room // max(len(exchanges[-1].messages), 1), 200)
    kept = len(made) - len(exchanges[-1].messages)
    for _ in range(6):
        short = [*made[:kept], *(_shorter(one, size) for one in made[kept:])]
        if counter(short) <= budget or size <= 200:
            break
        size = max(size // 2, 200)
    return Context(tuple(short), len(exchanges) - 1, shortened=True)


def _with(first: Sequence[Message], exchanges: Sequence[Exchange], collapsed: int) -> list[Message]:
    if not collapsed:
        return [*first, *(one for exchange in exchanges for one in exchange.messages)]
    lines = "\n".join([_LEAD, *(exchange.line for exchange in exchanges[:collapsed])])
    last = {**first[-1], "content": f"{first[-1]['content']}\n\n{lines}"}
    tail = [one for exchange in exchanges[collapsed:] for one in exchange.messages]
    return [*first[:-1], last, *tail]


def _shorter(message: Message, size: int) -> Message:
    text = message.get("content")
    if not isinstance(text, str) or len(text) <= size:
        return message
    half = size // 2
    return {**message, "content": text[:half] + _CUT.format(f"{len(text) - 2 * half:,}") + text[-half:]}
