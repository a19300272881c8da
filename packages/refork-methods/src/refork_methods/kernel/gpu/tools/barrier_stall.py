"""Latency: warps wait for each other at barriers."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited, stalls
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of a warp's time (arXiv 2606.26453).
WAITING = 30.0
#: From here on it is critical (ours).
CRITICAL = 60.0


@micro_tool(source="ncu", category="latency", name="gpu.BarrierStall")
def barrier_stall(signals: Signals) -> Finding | None:
    """The share of time at barriers, and how many the code has where it is known."""
    share = stalls(signals).get("barrier")
    if share is None or share <= WAITING:
        return None
    barriers = signals.get("sass", "bar")
    known = "" if barriers is None else f", at {barriers:.0f} places of the code"
    return Finding(
        tool="gpu.BarrierStall",
        category="latency",
        severity="critical" if share > CRITICAL else "warn",
        cause=f"Warps wait at barriers {share:.0f} % of their time{known}.",
        action="Work within warps (shuffles, __syncwarp), load into a second buffer while the first is used, "
        "or make blocks smaller.",
        metrics={"stall_barrier_pct": share} | ({} if barriers is None else {"bar": barriers}),
        evidence=cited(signals, "stall_barrier_cycles", "stall_barrier_pct", "warp_cycles_per_issue"),
    )
