"""What pages and cards show: plain frozen data. None means never computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict, with_config

from refork.types import NodeKind

_finite = with_config(ConfigDict(allow_inf_nan=False))


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class RateData:
    """A success rate (0 to 1) or a mean, its interval, and how many runs it comes from."""

    rate: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """After minus before on the same held-out tasks, with its paired interval."""

    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int | None = None
    method: str = ""
    level: float = 0.95


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of the swept run; ``value`` is the chance of success with everything before it kept."""

    text: str
    index: int
    p: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One turn of the swept run; ``tokens`` only where the policy wrote it."""

    kind: NodeKind
    text: str
    tokens: tuple[Token, ...] = ()


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """The token (by ``Token.index``) after which success falls: chance before and after it."""

    token_index: int
    text: str
    before: float | None = None
    after: float | None = None


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The swept trajectory, its outcome and its cliff."""

    steps: tuple[TraceStep, ...] = ()
    outcome: float | None = None
    cliff: Cliff | None = None


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectData:
    """Control (``base``) against change (``other``).

    ``scale``: rates, or means in their own unit; None: rates where both lie between 0 and 1.
    ``unpaired_low/high``: the interval the same draws give when pairing is ignored. ``caution``: who
    answered, where it was not the world. ``points``, ``tasks``: how many were compared together.
    """

    what: str
    before_text: str = ""
    after_text: str = ""
    score: str = "success"
    scale: Literal["rate", "mean"] | None = None
    base: RateData = field(default_factory=RateData)
    other: RateData = field(default_factory=RateData)
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    p: float | None = None
    method: str = ""
    paired: bool | None = None
    draws: int | None = None
    ungraded: int | None = None
    unpaired_low: float | None = None
    unpaired_high: float | None = None
    tokens: int | None = None
    seconds: float | None = None
    caution: str | None = None
    points: int = 1
    tasks: int = 1

    @property
    def unit(self) -> Literal["rate", "mean"]:
        """How its figures are written: as percentages, or as they are."""
        known = [arm.rate for arm in (self.base, self.other) if arm.rate is not None]
        return self.scale or ("rate" if all(0 <= rate <= 1 for rate in known) else "mean")
