"""A compactor whose output always holds the pinned rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

from refork.compaction import CompactionResult, Compactor
from refork.errors import PinBroken
from refork.types import Message
from refork_methods.pin.buffer import MessageDicts, PinnedBuffer
from refork_methods.pin.constraint import MARK


@final
class PinnedCompactor:
    """Any compactor, with the rules kept out of it and put back after it.

    The inner compactor never sees the block, so it cannot paraphrase or echo it, and its trigger does not
    count it. Whether it fired or not, the result holds exactly one copy of every rule.

    Source: arXiv:2606.22528.
    """

    def __init__(self, inner: Compactor, buffer: PinnedBuffer) -> None:
        self.inner = inner
        self.buffer = buffer

    @property
    def name(self) -> str:
        """The inner compactor's name, marked."""
        return f"pinned {self.inner.name}"

    def compact(self, messages: Sequence[Message]) -> CompactionResult:
        """Compact without the block, put it back, check it.

        Raises:
            PinBroken: the result does not hold every rule exactly once.
        """
        bare = self.buffer.strip(messages, MessageDicts(self.buffer.role))
        result = self.inner.compact(bare)
        after = tuple(self.buffer.apply(result.messages))
        require(self.buffer, after)
        # A pin that stood there before was put back, not added: the account must not list it every time.
        new = () if any(m.get("id") == MARK for m in messages) else (MARK,)
        pins = new if self.buffer.constraints else ()
        return replace(result, messages=after, inserted=(*result.inserted, *pins))


def require(buffer: PinnedBuffer, messages: Sequence[Message]) -> None:
    """Raise PinBroken unless a model input holds every pinned rule exactly once, byte for byte."""
    found = buffer.check(messages)
    if found.ok:
        return
    faults = [
        f"missing: {', '.join(found.missing)}" if found.missing else "",
        f"doubled: {', '.join(found.doubled)}" if found.doubled else "",
        "a block whose bytes are not the operator's" if found.altered and not found.missing else "",
    ]
    raise PinBroken(
        "the pinned rules are not in this model input as the operator wrote them",
        where="; ".join(fault for fault in faults if fault),
        hint="put the pin behind everything that edits messages: buffer.apply(messages) as the last step",
    )
