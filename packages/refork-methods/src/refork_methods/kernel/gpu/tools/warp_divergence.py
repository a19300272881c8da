"""Latency: few threads of a warp take part in an instruction."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

# Tool and trigger are our reconstruction: the paper (arXiv 2606.26453) has 15 tools, of which we know 13.
#: Threads of a warp's 32, and below which it is critical.
ACTIVE, CRITICAL, WARP = 24.0, 16.0, 32


@micro_tool(source="ncu", category="latency", bounds=("compute", "latency"), name="gpu.WarpDivergence")
def warp_divergence(signals: Signals) -> Finding | None:
    """Threads went different ways, or the block has fewer than a warp's."""
    active = signals.get("ncu", "active_threads")
    if active is None or active >= ACTIVE:
        return None
    branches = signals.get("sass", "branches")
    return Finding(
        tool="gpu.WarpDivergence",
        category="latency",
        severity="critical" if active < CRITICAL else "warn",
        cause=f"{active:.1f} of {WARP} threads take part in an instruction, on average: "
        f"{1 - active / WARP:.0%} of the lanes are idle.",
        action="Branch on what a whole warp shares, turn short branches into selections, or sort the work so "
        "that neighbours do the same; make blocks a multiple of 32 threads.",
        metrics={"active_threads": active} | ({} if branches is None else {"branches": branches}),
        evidence=cited(signals, "active_threads"),
    )
