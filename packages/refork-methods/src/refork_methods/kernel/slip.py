"""A rule or a tool that broke: noted with its traceback, and the others go on.

A rule answers for itself alone, so its bug must not end a search or a diagnosis that others can finish. It
must not vanish either: whoever asks the rules keeps what broke, tells the user and stores the traceback.
"""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass
from typing import Self, final

from refork.types import Json


@final
@dataclass(frozen=True, slots=True)
class Slip:
    """``rule``: which one broke, and on what. ``error``: one line. ``trace``: the traceback."""

    rule: str
    error: str
    trace: str = ""

    @classmethod
    def of(cls, rule: str, error: Exception) -> Self:
        """The slip of a rule that raised."""
        line = traceback.format_exception_only(error)[-1].strip()
        return cls(rule, line, "".join(traceback.format_exception(error)))

    def to_json(self) -> Json:
        """Plain JSON."""
        return asdict(self)
