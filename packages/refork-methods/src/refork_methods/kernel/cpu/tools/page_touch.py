"""Memory that is new at every call: the system maps and clears it page by page."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "PageTouch"
#: Guess: one page fault for so many bytes of results.
BYTES_PER_FAULT = 16 * 1024
#: Guess: a handful of faults belongs to any run.
LEAST_FAULTS = 16


@micro_tool(source="perf", category="memory", bounds=("memory", "latency"))
def page_touch(signals: Signals) -> Finding | None:
    """More than one page fault per 16 KiB of results in the timed calls."""
    known = together(signals, m.FAULTS, m.OUTPUT_BYTES, m.TIMED_CALLS)
    if known is None:
        return None
    faults, output, calls = known
    written = output * calls
    if faults < LEAST_FAULTS or faults * BYTES_PER_FAULT <= written:
        return None
    return Finding(
        tool=NAME,
        category="memory",
        severity="warn",
        cause=f"{faults:.0f} page faults while {written / 1024:.0f} KiB of results were written.",
        action="Allocate once and reuse the buffers, touch them before the loop, or use huge pages.",
        metrics={m.FAULTS.name: faults, "written_bytes": written},
        evidence=cited(signals, "perf", "page-faults", "faults"),
    )
