"""Lines that push each other out of one set of the cache while others stand empty."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "ConflictMiss"
#: Measured: 16 for a float matmul with rows of 1 KiB (N = 256), 8 ways against a cache of one set.
MOST_RATIO = 2.0
CRITICAL = 8.0
#: Guess: fewer misses than these per access cost nothing worth mending.
LEAST_SHARE = 0.01


@micro_tool(source="cachegrind", category="memory", bounds=("memory",))
def conflict_miss(signals: Signals) -> Finding | None:
    """Twice the misses of a fully associative cache of the same size."""
    known = together(signals, m.D1_READ_MISSES, m.D1_WRITE_MISSES, m.READS, m.WRITES, m.FULL_MISSES)
    if known is None:
        return None
    read_misses, write_misses, reads, writes, full = known
    misses = read_misses + write_misses
    ratio = misses / max(full, 1.0)
    if ratio <= MOST_RATIO or misses - full < LEAST_SHARE * (reads + writes):
        return None
    return Finding(
        tool=NAME,
        category="memory",
        severity="critical" if ratio > CRITICAL else "warn",
        cause=(
            f"{misses:.3g} D1 misses, {full:.3g} in a cache without sets: {ratio:.2g} times as many,"
            " because addresses a power of two apart share a set."
        ),
        action="Pad the leading dimension by one cache line, or copy the tile to a contiguous buffer.",
        metrics={"conflict_ratio": ratio, m.FULL_MISSES.name: full},
        evidence=cited(signals, "cachegrind"),
    )
