"""What a tool found in measurements: a cause with numbers, an action, and what it may gain."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeAlias, final

from refork.errors import BadInput
from refork.types import Json

Severity: TypeAlias = Literal["info", "warn", "critical"]
#: What holds a kernel back, as a tool's field of work.
Category: TypeAlias = Literal["compute", "memory", "latency", "occupancy", "launch"]

SEVERITIES: tuple[Severity, ...] = ("info", "warn", "critical")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sentence of diagnosis, with its evidence.

    ``metrics`` are the measured values that fired the tool, by name with the unit in it. ``expected_gain`` is
    the speed-up (least, most) that the action may bring, as a ratio of times; None where nothing is known of
    it. ``evidence`` are lines as the measuring programs printed them, or of the source.
    """

    tool: str
    category: Category
    severity: Severity
    cause: str
    action: str
    metrics: dict[str, float] = field(default_factory=dict)
    expected_gain: tuple[float, float] | None = None
    evidence: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.cause or not self.action:
            raise BadInput("a finding has a cause and an action", where=f"tool {self.tool}")
        bad = [name for name, value in self.metrics.items() if not math.isfinite(value)]
        if bad:
            raise BadInput(f"metric {bad[0]} is not finite", where=f"tool {self.tool}")
        gain = self.expected_gain
        if gain is not None and not 0 < gain[0] <= gain[1] < math.inf:
            raise BadInput(f"an expected gain of {gain}", where=f"tool {self.tool}", hint="0 < least <= most")

    @property
    def sentence(self) -> str:
        """Cause, action and gain, as an engineer reads them."""
        gain = self.expected_gain
        if gain is None:
            return f"{self.cause} {self.action}"
        times = f"{gain[0]:.3g}" if gain[0] == gain[1] else f"{gain[0]:.3g} to {gain[1]:.3g}"
        return f"{self.cause} {self.action} Expected: {times} times as fast."

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
