"""Global memory: the same bytes are loaded many times, and none are kept in shared memory."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Times a byte is loaded, and percent of DRAM peak (arXiv 2606.26453).
REUSED, DRAM = 4.0, 40.0
#: Percent of sectors found in L2 that we take for "high" (ours).
L2_HIT = 70.0


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.SharedMemTiling")
def shared_mem_tiling(signals: Signals) -> Finding | None:
    """Reuse: bytes loaded through L1 per byte read from DRAM (our measure; unused bytes of sectors count).

    The paper's condition does not say how its parts bind; ours: no shared memory, and one of both signs.
    """
    shared = signals.get("ncu", "shared_bytes")
    if shared is None or shared > 0:
        return None
    reuse = signals.get("ncu", "reuse")
    l2, dram = signals.get("ncu", "l2_hit_pct"), signals.get("ncu", "dram_pct")
    metrics: dict[str, float] = {"shared_bytes": shared}
    if reuse is not None and reuse > REUSED:
        metrics["reuse"] = reuse
        why = f"Each byte from DRAM is loaded {reuse:.3g} times"
    elif l2 is not None and dram is not None and l2 > L2_HIT and dram > DRAM:
        metrics |= {"l2_hit_pct": l2, "dram_pct": dram}
        why = f"L2 answers {l2:.0f} % of loads while DRAM is at {dram:.0f} % of its peak"
    else:
        return None
    known = HITS["SharedMemTiling"]
    return Finding(
        tool="gpu.SharedMemTiling",
        category="memory",
        severity="warn",
        cause=f"{why}, and no shared memory is used.",
        action="Load a tile into shared memory once, synchronise, and let all threads of the block use it.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(
            *cited(
                signals, "load_sectors", "dram_read_bytes", "l2_hit_pct", "dram_pct", "shared_static_bytes"
            ),
            known.line,
        ),
    )
