"""What a run may use, and what came of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from refork.errors import BadInput

#: ok: a value. error: the tool raised. refused: it never ran. timeout, memory: over a limit.
#: killed: it ended, or was ended, without an answer.
Kind: TypeAlias = Literal["ok", "error", "refused", "timeout", "memory", "killed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may use.

    ``seconds`` is wall time in the tool itself, without the answering of its calls. ``memory`` are bytes
    beyond what the interpreter has, ``output`` bytes of one call or result, ``calls`` how many it may make.
    ``turn`` is wall time from one call to the next, the result included; None: only their sum counts.
    """

    seconds: float = 2.0
    memory: int = 128 << 20
    output: int = 1 << 20
    calls: int = 1000
    turn: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "memory", "output"):
            if not getattr(self, name) > 0:
                raise BadInput(f"the limit {name!r} must be above 0, not {getattr(self, name)!r}")
        if self.turn is not None and not self.turn > 0:
            raise BadInput(f"the limit 'turn' must be above 0, not {self.turn!r}")
        if self.calls < 0:
            raise BadInput(f"the limit 'calls' must be 0 or more, not {self.calls!r}")


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """How a run went: its value (None unless ``ok``), or why there is none; what the tool itself took.

    ``value`` and ``error`` come from the tool and are to be trusted as little as the tool. ``calls`` counts
    the functions it called; ``seconds`` is wall time without the answering of calls.
    """

    kind: Kind
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    calls: int = 0

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.kind == "ok"


class UnconfinedWarning(UserWarning):
    """Code of a model or a stranger runs without a wall, as ``unconfined`` asks; it says what is open."""


def warn_open(what: str, opened: str) -> None:
    """Say what is open to code that runs ``unconfined``."""
    text = f"{what} is unconfined here, as asked; open to it: {opened}"
    warnings.warn(text, UnconfinedWarning, stacklevel=2)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the sandbox: whether it holds here, and what there is to say about it."""

    name: str
    on: bool
    note: str = ""
