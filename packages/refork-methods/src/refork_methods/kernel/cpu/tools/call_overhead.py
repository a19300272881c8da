"""Time that is not spent in the kernel but around it."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "CallOverhead"
#: Guess.
MOST_OUTSIDE = 0.20
#: Guess: fewer samples than these tell nothing about a fifth.
LEAST_SAMPLES = 50


@micro_tool(source="perf", category="launch", bounds=("latency",))
def call_overhead(signals: Signals) -> Finding | None:
    """More than a fifth of the samples lie outside the kernel."""
    known = together(signals, m.INSIDE, m.SAMPLES)
    if known is None:
        return None
    inside, samples = known
    outside = 1 - inside
    if outside <= MOST_OUTSIDE or samples < LEAST_SAMPLES:
        return None
    most = f" Without them it is at most {1 / inside:.2g} times as fast." if inside > 0 else ""
    return Finding(
        tool=NAME,
        category="launch",
        severity="critical" if outside > 0.5 else "warn",
        cause=f"{outside:.0%} of {samples:.0f} samples lie outside the kernel, in calls around it.{most}",
        action="Inline what it calls, hand it a batch, or fuse it with its caller's loop.",
        metrics={"outside_share": outside, m.SAMPLES.name: samples},
        evidence=cited(signals, "perf", "[.]", "[k]"),
    )
