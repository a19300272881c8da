"""Reads that jump through memory: nearly every one brings a cache line of which little is used."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "StridedAccess"
#: Measured (float matmul, N = 512, simulated 32 KiB cache): 0.505 across rows, 0.032 along them.
MOST_MISSES = 0.10
CRITICAL = 0.30
#: Measured there on one core of a cloud VM (x86, AVX-512), gcc -O3: 1.3-1.4 to 15-18 GF/s by interchange.
GAIN = (10.7, 13.8)
_OF = " The gain is that of a float matmul of 512 on a cloud VM."


@micro_tool(source="cachegrind", category="memory", bounds=("memory",))
def strided_access(signals: Signals) -> Finding | None:
    """More than a tenth of a D1 read miss per useful flop, beyond one for each line that is needed."""
    misses = m.EXCESS_PER_FLOP.of(signals)
    if misses is None or misses <= MOST_MISSES:
        return None
    severe = misses > CRITICAL
    return Finding(
        tool=NAME,
        category="memory",
        severity="critical" if severe else "warn",
        cause=f"{misses:.3g} D1 read misses per flop beyond the needed lines: the inner loop strides.",
        action="Interchange the loops to run along memory, or transpose or pack the operand once."
        + _OF * severe,
        metrics={m.EXCESS_PER_FLOP.name: misses},
        # The measured case is one of the severe ones; of a mild one nothing is known.
        expected_gain=GAIN if severe else None,
        evidence=cited(signals, "cachegrind"),
    )
