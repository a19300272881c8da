"""Latency: values that do not fit into registers go to local memory and back."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding, Severity
from refork_methods.kernel.gpu.evidence import cited, spills, stalls
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Case A: percent stalled on memory, and of both peaks (arXiv 2606.26453).
STALLED, IDLE = 15.0, 50.0
#: Case B: percent of memory peak (arXiv 2606.26453; the rest of its condition is not known to us).
BUSY = 60.0


def _case(signals: Signals) -> tuple[Severity, str] | None:
    """How grave, and what spills cost; None where a profile shows that they cost little.

    The paper has a third case that we do not know; ours: no profile was taken, so that the code alone speaks.
    """
    if not signals.has("ncu"):
        return "warn", "what they cost was not measured"
    waiting = stalls(signals).get("long_scoreboard")
    shares = signals.all("ncu", "compute_pct", "memory_pct")
    if shares is not None and waiting is not None and waiting > STALLED and max(shares) < IDLE:
        return "critical", f"warps wait for memory {waiting:.0f} % of their time while both peaks are far"
    memory = signals.get("ncu", "memory_pct")
    if memory is not None and memory > BUSY:
        return "critical", f"they add to memory traffic at {memory:.0f} % of its peak"
    return None


@micro_tool(source=("sass", "ptxas", "ncu"), category="latency", name="gpu.RegisterSpill")
def register_spill(signals: Signals) -> Finding | None:
    """Spills in the code, the assembler's report or the profile, if they cost."""
    seen, case = spills(signals), _case(signals)
    if not seen or case is None:
        return None
    severity, cost = case
    known = HITS["RegisterSpill"]
    listed = ", ".join(f"{name} {value:.0f}" for name, value in seen.items())
    return Finding(
        tool="gpu.RegisterSpill",
        category="latency",
        severity=severity,
        cause=f"Registers spill to local memory ({listed}); {cost}.",
        action="Shrink the tile of a thread or unroll less, compute again instead of keeping, or relax "
        "__launch_bounds__ and maxrregcount.",
        metrics=seen,
        expected_gain=known.expected,
        evidence=(
            *(line for line in signals.lines.get("sass", ()) if "LDL" in line or "STL" in line),
            *(line for line in signals.lines.get("ptxas", ()) if "spill" in line),
            *cited(signals, "local_loads", "local_stores", "stall_long_scoreboard_cycles", "memory_pct"),
            known.line,
        ),
    )
