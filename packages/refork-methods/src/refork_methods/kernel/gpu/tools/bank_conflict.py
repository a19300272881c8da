"""Latency: threads of a warp meet in one bank of shared memory."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

# Tool and trigger are our reconstruction: the paper (arXiv 2606.26453) has 15 tools, of which we know 13.
#: Extra passes per access, and from where on it is critical.
CONFLICTS, CRITICAL = 1.0, 7.0


@micro_tool(source="ncu", category="latency", name="gpu.BankConflict")
def bank_conflict(signals: Signals) -> Finding | None:
    """Loads and stores together."""
    extra = signals.get("ncu", "conflicts_per_access")
    if extra is None or extra <= CONFLICTS:
        return None
    names = ("load_conflicts", "store_conflicts", "shared_loads", "shared_stores")
    return Finding(
        tool="gpu.BankConflict",
        category="latency",
        severity="critical" if extra > CRITICAL else "warn",
        cause=f"An access to shared memory takes {1 + extra:.3g} passes instead of 1: its threads meet in "
        "the same banks.",
        action="Pad the rows of the shared array by one element, or swizzle its columns by the row.",
        metrics={"conflicts_per_access": extra},
        evidence=cited(signals, *names),
    )
