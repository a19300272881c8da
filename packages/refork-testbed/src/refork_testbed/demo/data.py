"""What the demo's report shows: plain frozen data. None means never computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from refork.report.data import EffectData, Gain, RateData, Trace
from refork.types import Json, NodeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Success after ``update`` updates; ``tokens`` sampled up to then."""

    update: int
    success: float | None = None
    low: float | None = None
    high: float | None = None
    tokens: int | None = None
    note: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of the job and how long it took."""

    title: str
    detail: str = ""
    seconds: float | None = None


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
