"""Occupancy: a thread takes many registers."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited, registers
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Registers a thread (arXiv 2606.26453).
MANY = 96
#: Registers of an SM and its warp slots on A100 and H100, for the number of warps in the cause.
FILE, SLOTS, WARP = 65536, 64, 32


@micro_tool(source=("ncu", "ptxas"), category="occupancy", name="gpu.HighRegisterUsage")
def high_register_usage(signals: Signals) -> Finding | None:
    """More registers, fewer warps to hide latency with."""
    used = registers(signals)
    if used is None or used <= MANY:
        return None
    warps = int(FILE // (used * WARP))
    return Finding(
        tool="gpu.HighRegisterUsage",
        category="occupancy",
        severity="warn",
        cause=f"A thread takes {used:.0f} registers: an SM of {FILE} holds at most {warps} of {SLOTS} warps.",
        action="Set __launch_bounds__, shrink the tile of a thread, or split the kernel; time it, for tiled "
        "matrix kernels want many registers.",
        metrics={"registers_per_thread": used},
        evidence=cited(signals, "registers_per_thread") or signals.lines.get("ptxas", ()),
    )
