"""Micro-profiling tools: functions from measurements to a finding, and which of them run.

Source: arXiv 2606.26453. A model does not choose tools: all that fit a kernel's class run.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Literal, Self, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.kernel.roofline import Bound, Classified
from refork_methods.kernel.signals import Signals, Source

Severity: TypeAlias = Literal["info", "warn", "critical"]
#: What holds a kernel back, as a tool's field of work.
Category: TypeAlias = Literal["compute", "memory", "latency", "occupancy", "launch"]

SEVERITIES: tuple[Severity, ...] = ("info", "warn", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What a tool says where it fires: one sentence of diagnosis, with its evidence.

    ``metrics`` are the measured values that fired the tool, by name with the unit in it. ``expected_gain`` is
    the speed-up (least, most) that the action may bring, as a ratio of times; None where nothing is known of
    it. ``evidence`` are lines as the measuring programs printed them, or of the source.
    """

    severity: Severity
    cause: str
    action: str
    metrics: dict[str, float] = field(default_factory=dict)
    expected_gain: tuple[float, float] | None = None
    evidence: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # JSON has no NaN: what slipped through here would fail only when the finding is stored.
        bad = [name for name, value in self.metrics.items() if not math.isfinite(value)]
        if bad:
            raise BadInput(f"metric {bad[0]} is not finite", where="kernel diagnosis")

    @property
    def gain(self) -> str:
        """The expected gain as a sentence, with a space before it; empty where nothing is known of it."""
        if self.expected_gain is None:
            return ""
        ends = dict.fromkeys(f"{end:.3g}" for end in self.expected_gain)
        return f" Expected: {' to '.join(ends)} times as fast."

    @property
    def sentence(self) -> str:
        """Cause, action and gain, as an engineer reads them."""
        return f"{self.cause} {self.action}{self.gain}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(CheckResult):
    """The same with the tool that says so, and the tool's field of work."""

    tool: str
    category: Category

    def to_json(self) -> Json:
        """Plain JSON."""
        return asdict(self) | {"evidence": list(self.evidence)}


def by_severity(findings: list[Finding]) -> list[Finding]:
    """The gravest first; among equals the one that may gain more."""
    return sorted(
        findings,
        key=lambda one: (
            -SEVERITIES.index(one.severity),
            -(one.expected_gain or (1.0, 1.0))[1],
            one.tool,
        ),
    )


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


#: What to say where the measurements show it; None where they do not, or are not there.
Check: TypeAlias = Callable[[Signals], CheckResult | None]

ALL: frozenset[Bound] = frozenset(("compute", "memory", "latency", "mixed"))


@final
@dataclass(frozen=True, slots=True)
class MicroTool:
    """A named check. ``sources`` it reads, and the classes of kernels (``bounds``) that it is for."""

    name: str
    sources: tuple[Source, ...]
    category: Category
    bounds: frozenset[Bound]
    rule: Check

    def check(self, signals: Signals) -> Finding | None:
        """The finding where the measurements show one."""
        found = self.rule(signals)
        if found is None:
            return None
        told = {one.name: getattr(found, one.name) for one in fields(CheckResult)}
        return Finding(**told, tool=self.name, category=self.category)


_REGISTERED: dict[str, MicroTool] = {}


def micro_tool(
    *, source: Source | tuple[Source, ...], category: Category, bounds: Iterable[Bound] = ALL, name: str = ""
) -> Callable[[Check], Check]:
    """Register a check under its function's name in CamelCase, or under ``name``.

    A kernel whose class is not among ``bounds`` is not asked; ``mixed`` ones always are.

    Raises:
        BadInput: another tool has this name.
    """
    sources = (source,) if isinstance(source, str) else tuple(source)

    def register(check: Check) -> Check:
        called = name or "".join(part.capitalize() for part in check.__name__.split("_"))
        known = _REGISTERED.get(called)
        # A module may register its own tools again, as it does when it is reloaded.
        if known is not None and known.rule.__module__ != check.__module__:
            raise BadInput(f"there is a tool {called} already", where=check.__module__, hint="give it a name")
        _REGISTERED[called] = MicroTool(called, sources, category, frozenset(bounds) | {"mixed"}, check)
        return check

    return register


def registered(module: str | None = None) -> tuple[MicroTool, ...]:
    """All tools that were registered so far, or those of one module, in the order of their registration."""
    return tuple(one for one in _REGISTERED.values() if module in (None, one.rule.__module__))


@final
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, gravest first; which tools ran; which had nothing to read (name -> why).

    ``slips``: tools that broke.
    """

    classified: Classified
    findings: tuple[Finding, ...]
    ran: tuple[str, ...]
    blind: dict[str, str]
    slips: tuple[Slip, ...] = ()

    def to_json(self) -> Json:
        """Plain JSON: the class, the findings with their sentences, and which tools ran or were blind."""
        return {
            "class": asdict(self.classified) | {"confidence": self.classified.confidence},
            "findings": [one.to_json() | {"sentence": one.sentence} for one in self.findings],
            "ran": list(self.ran),
            "blind": dict(self.blind),
            "slips": [one.to_json() for one in self.slips],
        }


def run_tools(tools: Iterable[MicroTool], signals: Signals, classified: Classified) -> Diagnosis:
    """All tools for this class of kernel on its measurements; one that has none of its sources is blind.

    A tool that raises has found nothing and is among the slips; the others are asked all the same.
    """
    findings: list[Finding] = []
    ran: list[str] = []
    blind: dict[str, str] = {}
    slips: list[Slip] = []
    for tool in sorted(tools, key=lambda one: one.name):
        if classified.bound not in tool.bounds:
            continue
        if not any(signals.has(source) for source in tool.sources):
            blind[tool.name] = "; ".join(
                f"{one}: {signals.absent.get(one, 'not measured')}" for one in tool.sources
            )
            continue
        try:
            found = tool.check(signals)
        except Exception as error:
            slips.append(Slip.of(f"tool {tool.name}", error))
            continue
        ran.append(tool.name)
        if found is not None:
            findings.append(found)
    return Diagnosis(classified, tuple(by_severity(findings)), tuple(ran), blind, tuple(slips))
