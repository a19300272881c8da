"""What the conversions of all frameworks share: turns, the side map of ids, placing a pin with its check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, final

from refork.compaction import checked_ids
from refork.errors import BadInput, CannotDo, PinBroken
from refork.types import Json, Message
from refork_methods.pin.buffer import MessageShape, PinnedBuffer
from refork_methods.pin.constraint import MARK

T = TypeVar("T")
#: Messages of the OpenAI form that are one message of the framework: the results of one round of calls.
Turn: TypeAlias = tuple[Message, ...]

# Between the parts of a message that a text alone cannot rebuild. Not white space, so such a message never
# looks like a bare block, which may be dropped whole.
SEAM = "\u2063"


def turns(messages: Sequence[Message]) -> list[Turn]:
    """The messages, consecutive tool results together: frameworks hold a round's in one message."""
    found: list[Turn] = []
    for message in messages:
        if message.get("role") == "tool" and found and found[-1][0].get("role") == "tool":
            found[-1] = (*found[-1], message)
        else:
            found.append((message,))
    return found


def calls_of(message: Message) -> list[tuple[str, str, str]]:
    """The tool calls of a message as (id, name, arguments as JSON text).

    Raises: BadInput for a call without a function name.
    """
    found: list[tuple[str, str, str]] = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not function.get("name"):
            raise BadInput("a tool call names no function", where=f"message {message.get('id')!r}")
        said = function.get("arguments")
        arguments = said if isinstance(said, str) else json.dumps(said if said is not None else {})
        found.append((str(call.get("id") or ""), str(function["name"]), arguments))
    return found


def called_names(messages: Iterable[Message]) -> dict[str, str]:
    """The function's name of every call id."""
    return {key: name for message in messages for key, name, _ in calls_of(message)}


def tool_call(key: str, name: str, arguments: str) -> Json:
    """A call in the OpenAI form."""
    return {"id": key, "type": "function", "function": {"name": name, "arguments": arguments}}


def fresh_id(wish: str, taken: Iterable[str]) -> str:
    """The wish, numbered where it is taken."""
    used = set(taken)
    if wish not in used:
        return wish
    number = 2
    while f"{wish}.{number}" in used:
        number += 1
    return f"{wish}.{number}"


def _pinned(message: Message) -> bool:
    return content_text(message.get("content")).startswith(f"<{MARK} ")


@final
class History(Generic[T]):
    """A history in a framework's messages, and the way back to ours with every id.

    Raises: BadInput for a message without an id, or two with the same.
    """

    def __init__(self, messages: Sequence[Message], convert: Callable[[Turn, dict[str, str]], T]) -> None:
        self.ids = checked_ids(messages)
        names = called_names(messages)
        self.turns = turns(messages)
        self.items: list[T] = [convert(turn, names) for turn in self.turns]
        self._place = {id(item): place for place, item in enumerate(self.items)}

    def turn_of(self, item: T) -> int | None:
        """Which turn a framework's message is, by identity; None where it is new."""
        return self._place.get(id(item))

    def copied(self, item: T) -> int | None:
        """Which turn a copy of a message is, by content; None where it is new.

        Raises: CannotDo for a copy of one of several equal messages.
        """
        equal = [place for place, old in enumerate(self.items) if old == item]
        if len(equal) > 1:
            raise CannotDo(
                "the framework returned a copy of one of several equal messages, so its id cannot be told",
                where=f"messages {', '.join(str(self.turns[p][0]['id']) for p in equal)}",
            )
        return equal[0] if equal else None

    def back(
        self,
        items: Sequence[T],
        restore: Callable[[T], list[Message]],
        prefix: str,
        *,
        copies: bool = False,
    ) -> list[Message]:
        """Our messages again: kept ones as they were given, new ones with an id that none had.

        ``copies``: whether the framework may return copies. Content tells then, unless one message is known
        by identity: who returns a message itself does not copy, and what merely looks like one is new.
        """
        by_content = copies and not any(id(item) in self._place for item in items)
        out: list[Message] = []
        taken = set(self.ids)
        for item in items:
            place = self.copied(item) if by_content else self.turn_of(item)
            if place is not None:
                out.extend(self.turns[place])
                continue
            for message in restore(item):
                name = fresh_id(str(message.get("id") or (MARK if _pinned(message) else prefix)), taken)
                taken.add(name)
                out.append({**message, "id": name})
        return out


def join_seams(parts: Sequence[str]) -> str:
    """Parts as one text that can be taken apart again."""
    return SEAM + SEAM.join(parts)


def split_seams(text: str, count: int) -> list[str]:
    """Inverse of :func:`join_seams`; all in the first part where the seams do not fit."""
    parts = text.removeprefix(SEAM).split(SEAM)
    if len(parts) == count:
        return parts
    return [text.replace(SEAM, ""), *[""] * (count - 1)][:count]


def placed(items: Sequence[T], buffer: PinnedBuffer, shape: MessageShape[T]) -> list[T]:
    """A framework's messages with exactly one pinned block, checked.

    Raises: PinBroken where the result does not hold every rule once, byte for byte.
    """
    out = buffer.insert(items, shape)
    found = buffer.check_texts([shape.text(item) for item in out])
    if not found.ok:
        raise PinBroken(
            "the pinned rules are not in this model input as the operator wrote them",
            where=f"copies {dict(found.copies)}, altered {found.altered}",
            hint="wrap the outermost context or strategy, so that nothing edits messages after it",
        )
    return out


def content_text(content: Any) -> str:
    """The text of a message's content: text parts joined."""
    if isinstance(content, list):
        return "".join(str(p.get("text") or "") if isinstance(p, dict) else str(p) for p in content)
    return "" if content is None else str(content)
