"""What a report shows: plain frozen data, JSON in and out. None means never computed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from refork.errors import BadInput
from refork.types import Json, NodeKind

T = TypeVar("T")

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
class CurvePoint:
    """Success after ``update`` updates; ``tokens`` sampled up to then."""

    update: int
    success: float | None = None
    low: float | None = None
    high: float | None = None
    tokens: int | None = None
    note: str | None = None


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """One event: mean success of the leaves below it, how many they are, and its part in the sweep.

    ``on_trace``: part of the swept run. ``forked``: a fork began with it.
    """

    id: str
    parent: str | None
    kind: NodeKind
    label: str
    success: float | None = None
    leaves: int = 1
    on_trace: bool = False
    forked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeData:
    """The rollout tree of one task. Parents may come in any order."""

    task: str = ""
    nodes: tuple[TreeNode, ...] = ()


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


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the job and how long it took."""

    title: str
    detail: str = ""
    seconds: float | None = None


@_finite
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything ``render`` shows. Parts that are None or empty are left out of the page."""

    title: str
    command: str
    world: str
    policy: Json = field(default_factory=dict)
    seconds: float | None = None
    versions: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)
    curve: tuple[CurvePoint, ...] = ()
    before: RateData | None = None
    after: RateData | None = None
    gain: Gain | None = None
    tree: TreeData | None = None
    trace: Trace | None = None
    effect: EffectData | None = None
    stages: tuple[Stage, ...] = ()
    code: str = ""

    def to_json(self) -> Json:
        """Plain JSON values: what :meth:`from_json` reads.

        Raises: BadInput for a figure that is not finite.
        """
        data: Json = TypeAdapter(ReportData).dump_python(self, mode="json")
        try:
            json.dumps(data, allow_nan=False)
        except ValueError as error:
            raise BadInput("a figure of the report is not a finite number", where=str(error)) from error
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> ReportData:
        """The report data that :meth:`to_json` wrote; unknown keys are passed over.

        Raises: BadInput naming the first field that does not fit.
        """
        return read(ReportData, data)


def read(kind: type[T], data: Mapping[str, Any]) -> T:
    """``data`` as one of the classes of this module; unknown keys are passed over.

    Raises: BadInput naming the first field that does not fit.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{kind.__name__}: {first['msg']}", where=where) from error
