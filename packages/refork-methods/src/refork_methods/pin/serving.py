"""Pinned rules in every chat that is served, and what becomes of a tool call that breaks one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.types import Json, Message
from refork_methods.pin import PinnedBuffer, read_policy, require


@final
@dataclass(frozen=True, slots=True)
class Pins:
    """The operator's rules of one server.

    ``withhold``: a message whose tool calls break a rule with a checker goes out without them.
    """

    buffer: PinnedBuffer
    withhold: bool = True

    @classmethod
    def read(cls, file: Path, *, withhold: bool = True) -> Pins:
        """Rules of a policy file. Raises BadInput where it is none."""
        return cls(PinnedBuffer(read_policy(file)), withhold)

    @property
    def note(self) -> Json:
        """What an answer says of them."""
        return {"sha256": self.buffer.digest, "rules": [rule.id for rule in self.buffer.constraints]}

    def apply(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages that a model is to see: every rule in them once, byte for byte; forgeries defused.

        Raises: PinBroken where that cannot be had.
        """
        placed = self.buffer.apply([dict(message) for message in messages])
        require(self.buffer, placed)
        # Ids are for the account of a compaction and no part of a chat request.
        return tuple({key: value for key, value in message.items() if key != "id"} for message in placed)

    def judged(self, message: Message) -> tuple[Message, Json]:
        """An answer's message as it may go out, and what is noted of it.

        ``broken`` names the rules that its tool calls break, with the checker's reason; ``unread`` those
        whose checker could not judge a call. Rules without a checker are for the model alone.
        """
        broken: Json = {}
        unread: Json = {}
        if message.get("tool_calls"):
            from refork_methods.pin.checkers import grade  # loads the SQL reader

            for rule in self.buffer.constraints:
                if rule.checker is None:
                    continue
                found = grade(message, rule.checker)
                if found.outcome == "violation":
                    broken[rule.id] = found.reason
                elif found.outcome in ("unparseable", "error"):
                    unread[rule.id] = found.reason
        note = self.note | ({"broken": broken} if broken else {}) | ({"unread": unread} if unread else {})
        if not broken or not self.withhold:
            return message, note
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        said = f"A tool call was withheld: it breaks the pinned rule {', '.join(broken)}."
        text = kept.get("content")
        kept["content"] = f"{text}\n{said}" if text else said
        return kept, note | {"withheld": True}
