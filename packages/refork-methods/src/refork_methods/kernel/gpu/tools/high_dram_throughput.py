"""Global memory: the kernel is at the roof of DRAM."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of DRAM peak (arXiv 2606.26453).
FULL = 80.0


@micro_tool(source="ncu", category="memory", bounds=("memory",), name="gpu.HighDRAMThroughput")
def high_dram_throughput(signals: Signals) -> Finding | None:
    """Nothing but fewer bytes makes it faster."""
    share = signals.get("ncu", "dram_pct")
    if share is None or share <= FULL:
        return None
    read, written = signals.get("ncu", "dram_read_bytes"), signals.get("ncu", "dram_write_bytes")
    moved = "" if read is None or written is None else f" ({read:.3g} bytes read, {written:.3g} written)"
    return Finding(
        tool="gpu.HighDRAMThroughput",
        category="memory",
        severity="info",
        cause=f"DRAM runs at {share:.0f} % of its peak{moved}: the kernel is at the roof.",
        action="Move fewer bytes: fuse it with its neighbours, use a narrower type, do not write what can be "
        "computed again.",
        metrics={"dram_pct": share},
        evidence=cited(signals, "dram_pct", "dram_read_bytes", "dram_write_bytes"),
    )
