"""Whether every model call of a recorded session was shown the pinned rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.formats.openai_chat import text_of
from refork.types import Json
from refork_methods.pin import PinCheck, PinnedBuffer
from refork_methods.rot.readers import read_sessions
from refork_methods.rot.session import SessionLog


@final
@dataclass(frozen=True, slots=True)
class PinnedCall:
    """One model call, ``number`` counted from 1 in its session, and what it held of the rules."""

    session: str
    number: int
    check: PinCheck

    @property
    def ok(self) -> bool:
        """Exactly one byte-identical copy of every rule."""
        return self.check.ok

    @property
    def where(self) -> str:
        """The call, for messages."""
        return f"{self.session}, call {self.number}"

    @property
    def fault(self) -> str:
        """What is wrong, in words; empty where nothing is."""
        parts = []
        if self.check.missing:
            parts.append(f"missing {', '.join(self.check.missing)}")
        if self.check.doubled:
            parts.append(f"doubled {', '.join(self.check.doubled)}")
        if self.check.altered and not self.check.missing:
            parts.append("the block's bytes are not the operator's")
        return "; ".join(parts)

    def to_json(self) -> Json:
        """Plain fields."""
        return {
            "session": self.session,
            "call": self.number,
            "missing": list(self.check.missing),
            "doubled": list(self.check.doubled),
            "altered": self.check.altered,
        }


def pinned_calls(sessions: Iterable[SessionLog], buffer: PinnedBuffer) -> list[PinnedCall]:
    """Every model call of sessions with its check, in order."""
    return [
        PinnedCall(session.name, number, buffer.check_texts([text_of(m) for m in call.context]))
        for session in sessions
        for number, call in enumerate(session.calls, 1)
    ]


def check_pins(path: Path | str, buffer: PinnedBuffer) -> list[PinnedCall]:
    """The model calls of a log file. Raises BadInput where it is none that can be read."""
    return pinned_calls(read_sessions(path), buffer)
