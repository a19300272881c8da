"""Global memory: loads are narrow."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Share of loads of 32 bits or less (the tool's name is the paper's, arXiv 2606.26453; the trigger ours).
NARROW = 0.5
#: With loads of 4, 8 and 16 bytes, a mean below this means that more than half are of 4.
MEAN_BYTES = 6.0
#: Loads in the code from which a share says something (ours).
FEW = 2


def _narrow(signals: Signals) -> tuple[dict[str, float], str] | None:
    """What shows that most loads are narrow: the code, else bytes per thread and request."""
    widths = signals.all("sass", "ldg_32", "ldg_64", "ldg_128", "ldg_256")
    if widths is not None:
        share = widths[0] / sum(widths) if sum(widths) >= FEW else 0.0
        if share <= NARROW:
            return None
        return {"narrow_loads": share}, f"{widths[0]:.0f} of {sum(widths):.0f} global loads in the code"
    parts = signals.all("ncu", "load_sectors_per_request", "load_bytes_per_sector", "active_threads")
    if parts is None or parts[2] <= 0 or (mean := parts[0] * parts[1] / parts[2]) >= MEAN_BYTES:
        return None
    return {
        "bytes_per_load": mean
    }, f"Most global loads (a thread gets {mean:.2g} bytes from each, on average)"


@micro_tool(source=("sass", "ncu"), category="memory", bounds=("memory", "latency"), name="gpu.Vectorization")
def vectorization(signals: Signals) -> Finding | None:
    """More than half of the loads bring 32 bits or less to a thread."""
    found = _narrow(signals)
    if found is None:
        return None
    metrics, what = found
    known = HITS["Vectorization"]
    return Finding(
        tool="gpu.Vectorization",
        category="memory",
        severity="info",
        cause=f"{what} bring 32 bits or less.",
        action="Load 128 bits at once (float4, int4) from pointers aligned to 16 bytes.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(
            *(line for line in signals.lines.get("sass", ()) if "LDG" in line),
            *cited(signals, "load_sectors", "load_requests", "load_bytes_per_sector"),
            known.line,
        ),
    )
