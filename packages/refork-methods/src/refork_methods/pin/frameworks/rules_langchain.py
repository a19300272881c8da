"""Which messages langmem, langgraph's summary node and langchain's middleware show a summariser, and keep.

Closed forms over the sizes of the messages, which call none of the packages: driving the packages is a test
of these rules, and the rules are a prediction about the packages.

Source: arXiv:2606.22528 measures what survives; that a front trim must be told from an omission is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, final

from refork.compaction import Counter, Fate
from refork.types import Message

#: As langchain takes it: ("tokens", 3000) or ("messages", 20).
Size: TypeAlias = tuple[str, int]


@final
@dataclass(frozen=True, slots=True)
class Sized:
    """What the rules need of a history, one entry a message.

    ``sizes``: tokens. ``tails[i][k]``: tokens of message i cut to its last k + 1 lines; never all its lines.
    ``human``: user turns. ``system``: system messages. ``results``: how many tool results right behind a
    message answer its calls.
    """

    sizes: tuple[int, ...]
    tails: tuple[tuple[int, ...], ...]
    human: tuple[bool, ...]
    system: tuple[bool, ...]
    results: tuple[int, ...]

    def span(self, start: int, stop: int) -> int:
        """Tokens of messages start to stop - 1."""
        return sum(self.sizes[start:stop])


@final
@dataclass(frozen=True, slots=True)
class Window:
    """What a compaction does with messages, by index.

    ``fired``: whether there is a compaction. Messages ``start`` to ``stop - 1`` are shown whole to the
    summariser, and the ``lines`` last lines of message ``start - 1``; ``also`` is shown besides. ``asked``:
    whether the summariser is called at all. Messages from ``kept_messages`` on stay.
    """

    fired: bool
    start: int = 0
    stop: int = 0
    kept_messages: int = 0
    lines: int = 0
    also: tuple[int, ...] = ()
    asked: bool = True

    def visible(self, index: int) -> bool:
        """Whether the next model input holds the message itself."""
        return not self.fired or index >= self.kept_messages

    def covers(self, index: int) -> bool:
        """Whether the summariser is shown the whole message."""
        return self.fired and self.asked and (self.start <= index < self.stop or index in self.also)

    def touched(self, index: int) -> bool:
        """Whether the summariser is shown any of the message."""
        cut = self.asked and self.lines > 0 and index == self.start - 1
        return self.covers(index) or (self.fired and cut)

    def fate(self, index: int) -> Fate:
        """The fate of a one-line rule in a message, if the summary does not hold it."""
        if self.visible(index):
            return "visible"
        return "omitted" if self.covers(index) else "trimmed"


def sized(messages: Sequence[Message], counter: Counter) -> Sized:
    """Sizes and kinds of messages. ``counter`` must be additive over messages, as the packages' own is."""
    return Sized(
        sizes=tuple(counter([m]) for m in messages),
        tails=tuple(_tails(m, counter) for m in messages),
        human=tuple(m.get("role") == "user" for m in messages),
        system=tuple(m.get("role") in ("system", "developer") for m in messages),
        results=tuple(_results(messages, i) for i in range(len(messages))),
    )


def _tails(message: Message, counter: Counter) -> tuple[int, ...]:
    lines = str(message.get("content") or "").split("\n")
    return tuple(counter([{**message, "content": "\n".join(lines[-k:])}]) for k in range(1, len(lines)))


def _results(messages: Sequence[Message], index: int) -> int:
    calls = {call.get("id") for call in messages[index].get("tool_calls") or []}
    count = 0
    for message in messages[index + 1 :]:
        if message.get("role") != "tool" or message.get("tool_call_id") not in calls:
            break
        count += 1
    return count


def trimmed(history: Sized, start: int, stop: int, limit: int) -> tuple[int, int] | None:
    """First message shown whole, and lines shown of the one before it, when a span is cut from the front.

    The longest suffix of at most ``limit`` tokens, with as many last lines of the next older message as still
    fit, is cut again to open with a user turn. None: no user turn is left, so nothing is shown.
    """
    first = next((i for i in range(start, stop) if history.span(i, stop) <= limit), stop)
    lines = 0
    if first > start:
        room = limit - history.span(first, stop)  # negative where a running summary alone is over the limit
        lines = sum(tail <= room for tail in history.tails[first - 1])
        if lines and history.human[first - 1]:
            return first, lines
    opens = next((i for i in range(first, stop) if history.human[i]), None)
    return None if opens is None else (opens, 0)


def langmem_window(
    history: Sized,
    *,
    max_tokens: int,
    max_tokens_before_summary: int | None = None,
    max_summary_tokens: int = 256,
    system: int = 0,
    summary: int = 0,
) -> Window:
    """The window of ``langmem.short_term.summarize_messages`` on a history without its system message.

    ``system``: tokens of the system message at index 0, set aside and put back. ``summary``: tokens of the
    running summary as a system message, 0 if there is none. The span ends at the first message where the
    count reaches ``max_tokens_before_summary`` and the rest fits; it is cut from the front if it is over
    ``max_tokens``, and shown whole after all if no user turn is left in the cut.
    """
    trigger = max_tokens if max_tokens_before_summary is None else max_tokens_before_summary
    room = max_tokens - max_summary_tokens - system
    total = sum(history.sizes)
    counts = accumulate(history.sizes)
    ends = [i for i, n in enumerate(counts) if n >= trigger and total - n <= room]
    if not ends:
        return Window(fired=False)
    # langmem extends the span over the results of the call that it ends at, even past the count.
    stop = ends[0] + 1 + history.results[ends[0]]
    limit = max_tokens - summary
    if history.span(0, stop) <= limit:
        return Window(fired=True, start=0, stop=stop, kept_messages=stop)
    start, lines = trimmed(history, 0, stop, limit) or (0, 0)
    return Window(fired=True, start=start, stop=stop, kept_messages=stop, lines=lines)


def middleware_window(
    history: Sized,
    *,
    trigger: Size | None,
    keep: Size = ("messages", 20),
    trim_tokens_to_summarize: int | None = 4000,
) -> Window:
    """The window of langchain's ``SummarizationMiddleware`` on an agent's state messages.

    All before the kept tail is the span. Unless ``trim_tokens_to_summarize`` is None it is cut from the front
    to fit and to open with a user turn, but a system message at index 0 is shown always. If nothing is left,
    the summariser is not asked and a fixed sentence takes the history's place.
    """
    total, count = sum(history.sizes), len(history.sizes)
    if trigger is None or (total if trigger[0] == "tokens" else count) < trigger[1]:
        return Window(fired=False)
    kept = _tail(history, keep)
    if kept == 0:
        return Window(fired=False)
    if trim_tokens_to_summarize is None:
        return Window(fired=True, start=0, stop=kept, kept_messages=kept)
    also = (0,) if history.system[0] else ()
    limit = max(0, trim_tokens_to_summarize - sum(history.sizes[i] for i in also))
    found = trimmed(history, len(also), kept, limit)
    start, lines = found or (kept, 0)
    asked = bool(also) or found is not None
    return Window(fired=True, start=start, stop=kept, kept_messages=kept, lines=lines, also=also, asked=asked)


def _tail(history: Sized, keep: Size) -> int:
    """Where the kept tail begins; a call and its results stay together. 0: all stays."""
    count = len(history.sizes)
    if keep[0] == "messages":
        cut = count - keep[1]
    elif sum(history.sizes) <= keep[1]:
        return 0
    else:
        fits = next(i for i in range(count + 1) if history.span(i, count) <= keep[1])
        cut = min(fits, count - 1)
    if cut <= 0:
        return 0
    asks = [i for i in range(cut) if i + history.results[i] >= cut]
    return asks[0] if asks else cut


def summary_node_window(count: int, *, trigger: int = 6, keep: int = 2) -> Window:
    """The window of langgraph's documented node: over ``trigger`` messages all are shown, ``keep`` stay."""
    if count <= trigger:
        return Window(fired=False)
    return Window(fired=True, start=0, stop=count, kept_messages=max(count - keep, 0))
