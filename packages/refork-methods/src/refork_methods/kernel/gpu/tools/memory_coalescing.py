"""Global memory: few sectors are found in L1, and warps wait for memory most of the time."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited, stalls
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of sectors found in L1, and of a warp's time (arXiv 2606.26453).
L1_HIT, STALLED = 30.0, 40.0
#: Percent of a warp's time from which it is critical, and which stalls are of memory: ours.
CRITICAL = 60.0
OF_MEMORY = ("long_scoreboard", "lg_throttle")


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.MemoryCoalescing")
def memory_coalescing(signals: Signals) -> Finding | None:
    """Neighbouring threads read far apart, or nothing is read twice while it is in L1."""
    hit, shares = signals.get("ncu", "l1_hit_pct"), stalls(signals)
    measured = [shares[one] for one in OF_MEMORY if one in shares]
    if hit is None or not measured:
        return None
    waiting = sum(measured)
    if hit >= L1_HIT or waiting <= STALLED:
        return None
    known = HITS["MemoryCoalescing"]
    return Finding(
        tool="gpu.MemoryCoalescing",
        category="memory",
        severity="critical" if waiting > CRITICAL else "warn",
        cause=f"Only {hit:.0f} % of sectors are found in L1, and warps wait for memory {waiting:.0f} % of "
        "their time.",
        action="Let neighbouring threads read neighbouring addresses; stage what is read in another order "
        "through shared memory.",
        metrics={"l1_hit_pct": hit, "memory_stall_pct": waiting},
        expected_gain=known.expected,
        evidence=(*cited(signals, "l1_hit_pct", *(f"stall_{one}_cycles" for one in OF_MEMORY)), known.line),
    )
