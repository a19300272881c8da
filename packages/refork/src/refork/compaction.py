"""The compaction seam: what makes a long history short, and what it did with every message.

A :class:`Compactor` gets messages that each carry an ``id`` and returns the shorter context together with an
account: which messages its summariser was shown, which are gone, and so whether a text that is gone was
*trimmed* (never shown to the summariser) or *omitted* (shown, and left out). Strategies that need no
framework, and the adapters of real ones, are in :mod:`refork_methods.pin`.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias, runtime_checkable
from xml.sax.saxutils import escape

from refork.errors import BadInput
from refork.formats.openai_chat import text_of
from refork.types import Message

#: What became of a text that stood in the history. ``absent``: it never did.
Fate: TypeAlias = Literal["visible", "trimmed", "omitted", "absent"]
#: Tokens of messages, as a compactor counts its budget.
Counter: TypeAlias = Callable[[Sequence[Message]], int]


@dataclass(frozen=True, slots=True)
class SummaryCall:
    """One question to the summariser: all it was shown, as messages, and its answer.

    ``answer`` None: the framework built the question and never asked.
    """

    prompt: tuple[Message, ...]
    answer: str | None


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """A shorter context and the account of it.

    ``messages`` is the new context; kept messages keep their ids, new ones are named in ``inserted``.
    ``fired``: whether the history reached the trigger; if not, ``messages`` is the history. ``seen``: ids
    that the summariser was shown. ``dropped``: ids that the new context has no more, in order.
    ``calls``: every question to the summariser. ``reason``: what the compactor did, in words.
    """

    messages: tuple[Message, ...]
    fired: bool
    seen: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    inserted: tuple[str, ...] = ()
    calls: tuple[SummaryCall, ...] = ()
    reason: str = ""

    @property
    def summary(self) -> str | None:
        """The summariser's last answer; None where it was not asked."""
        answers = [call.answer for call in self.calls if call.answer is not None]
        return answers[-1] if answers else None

    @property
    def trimmed(self) -> tuple[str, ...]:
        """Dropped ids that no summariser was shown."""
        seen = set(self.seen)
        return tuple(name for name in self.dropped if name not in seen)

    @property
    def summarised(self) -> tuple[str, ...]:
        """Dropped ids that the summariser was shown."""
        seen = set(self.seen)
        return tuple(name for name in self.dropped if name in seen)


@runtime_checkable
class Compactor(Protocol):
    """Makes a history short."""

    @property
    def name(self) -> str:
        """Which strategy of which package, for the record."""
        ...

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """The shorter context of a history whose messages all carry an ``id``.

        Raises: BadInput for a message without an id, two with the same, or an empty summary.
        """
        ...


def approximate_tokens(messages: Sequence[Message]) -> int:
    """A quarter of the characters and three a message: what is counted where no tokenizer is given."""
    return sum(math.ceil(len(text_of(m)) / 4) + 3 for m in messages)


def checked_ids(messages: Sequence[Message]) -> list[str]:
    """The ids of messages, in order.

    Raises:
        BadInput: a message without an id, or two with the same.
    """
    ids: list[str] = []
    for place, message in enumerate(messages):
        name = message.get("id")
        if not isinstance(name, str) or not name:
            raise BadInput(
                "a message has no id, so what becomes of it cannot be told",
                where=f"message {place + 1}, role {message.get('role')!r}",
                hint="number them with refork.compaction.with_ids(messages)",
            )
        ids.append(name)
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise BadInput(f"two messages have the id {twice!r}", hint="ids must differ")
    return ids


def with_ids(messages: Sequence[Message], prefix: str = "m") -> list[Message]:
    """The messages, those without an id numbered by their place, or behind the last where it is taken."""
    taken = {m["id"] for m in messages if m.get("id")}
    made = []
    for place, message in enumerate(messages):
        name, number = f"{prefix}{place}", len(messages)
        while name in taken:
            name, number = f"{prefix}{number}", number + 1
        made.append(message if message.get("id") else {**message, "id": name})
        taken.add(made[-1]["id"])
    return made


def holds(messages: Sequence[Message], text: str) -> bool:
    """Whether any message holds a text, byte for byte."""
    return any(text in text_of(message) for message in messages)


def spellings(text: str) -> tuple[str, ...]:
    """A text as it stands, and as harnesses write it into a prompt: escaped as XML, JSON or a Python literal.

    A text without quotes, line breaks, ``<``, ``>``, ``&`` or letters beyond ASCII has only itself.
    """
    return _spellings(text)


_QUOTES = (
    {"'": "&apos;"},
    {'"': "&quot;", "'": "&apos;"},
    {'"': "&#34;", "'": "&#39;"},
    {'"': "&quot;", "'": "&#39;"},
)


@lru_cache(maxsize=512)
def _spellings(text: str) -> tuple[str, ...]:
    literals = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1])
    once = dict.fromkeys(literals)
    # Arguments of tool calls are JSON inside whatever the prompt is.
    marked = [form(one) for one in once for form in (escape, html.escape)]
    marked += [escape(one, quotes) for one in once for quotes in _QUOTES]
    twice = [json.dumps(one, ensure_ascii=wide)[1:-1] for one in (*once, *marked) for wide in (True, False)]
    return tuple(dict.fromkeys([*once, *marked, *twice]))


def quotes(prompt: str, text: str) -> bool:
    """Whether a prompt holds a text in any of its :func:`spellings`."""
    return any(one in prompt for one in spellings(text))


def fate(text: str, before: Sequence[Message], result: CompactionResult) -> Fate:
    """What a compaction did with a text: an exact, mechanical account without a judge.

    ``omitted`` needs a summariser that was shown the text itself, in any of its :func:`spellings`: the
    message that held it may have been cut.
    """
    if holds(result.messages, text):
        return "visible"
    if not holds(before, text):
        return "absent"
    shown = any(quotes(text_of(m), text) for call in result.calls for m in call.prompt)
    return "omitted" if shown else "trimmed"


def account(
    before: Sequence[Message],
    after: Sequence[Message],
    *,
    seen: Sequence[str] = (),
    calls: Sequence[SummaryCall] = (),
    reason: str = "",
) -> CompactionResult:
    """The result of a compaction that fired, with dropped and inserted ids worked out."""
    old, new = checked_ids(before), checked_ids(after)
    kept = set(new)
    known = set(old)
    return CompactionResult(
        messages=tuple(after),
        fired=True,
        seen=tuple(seen),
        dropped=tuple(name for name in old if name not in kept),
        inserted=tuple(name for name in new if name not in known),
        calls=tuple(calls),
        reason=reason,
    )


def untouched(messages: Sequence[Message], reason: str) -> CompactionResult:
    """The result of a compaction that did not fire."""
    return CompactionResult(tuple(messages), fired=False, reason=reason)
