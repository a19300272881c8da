"""Memory that moves as fast as it can: only fewer bytes help."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "BandwidthRoof"
#: Guess: closer to the calibrated triad than this, noise is all that is left.
LEAST_SHARE = 0.80


@micro_tool(source=("timing", "cachegrind"), category="memory", bounds=("memory",))
def bandwidth_roof(signals: Signals) -> Finding | None:
    """More than 80 % of the bandwidth that the triad reached on this machine."""
    known = together(signals, m.BYTES_SHARE, m.SECONDS)
    if known is None or known[0] <= LEAST_SHARE:
        return None
    share, seconds = known
    return Finding(
        tool=NAME,
        category="memory",
        severity="info",
        cause=f"{share:.0%} of the memory's measured bandwidth over {seconds:.3g} s: this is the roof.",
        action="Move fewer bytes: fuse with the neighbouring pass, non-temporal stores, a narrower type.",
        metrics={m.BYTES_SHARE.name: share},
        evidence=cited(signals, "cachegrind", "DLmr"),
    )
