"""Latency: one reason takes most of the time between two instructions of a warp."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited, stalls
from refork_methods.kernel.gpu.metrics import STALLS
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of a warp's time (arXiv 2606.26453).
DOMINANT, CRITICAL = 40.0, 60.0
#: What to do, by reason: the first three after the paper, the rest ours.
ACTIONS = {
    "long_scoreboard": "Tile through shared memory, and load the next tile before this one is used.",
    "short_scoreboard": "Pad or swizzle shared arrays, and take special functions out of the loop.",
    "barrier": "Synchronise less often: work within warps, or use two buffers in turn.",
    "lg_throttle": "Issue fewer, wider accesses: 128-bit loads, values kept in registers.",
    "mio_throttle": "Issue fewer accesses to shared memory: wider ones, or a larger tile in registers.",
    "math_pipe_throttle": "Use a cheaper operation or another pipe (tensor cores, a narrower type).",
    "wait": "Give each thread several independent results to work on.",
    "no_instruction": "Unroll less: the code does not fit the instruction cache.",
    "imc_miss": "Index constants by what all threads share, or put them into shared memory.",
}
OTHERWISE = "Give the scheduler more to choose from: more warps, or more independent work in each."


@micro_tool(source="ncu", category="latency", name="gpu.WarpStall")
def warp_stall(signals: Signals) -> Finding | None:
    """The largest share, the warp's own turns left out."""
    shares = stalls(signals)
    if not shares:
        return None
    reason = max(shares, key=lambda one: shares[one])
    share = shares[reason]
    if share <= DOMINANT:
        return None
    known = HITS["WarpStall"]
    return Finding(
        tool="gpu.WarpStall",
        category="latency",
        severity="critical" if share > CRITICAL else "warn",
        cause=f"For {share:.0f} % of its time a warp {STALLS[reason]} ({reason})."
        if STALLS[reason].startswith("waits")
        else f"For {share:.0f} % of a warp's time: {STALLS[reason]} ({reason}).",
        action=ACTIONS.get(reason, OTHERWISE),
        metrics={f"stall_{reason}_pct": share},
        expected_gain=known.expected,
        evidence=(
            *cited(signals, f"stall_{reason}_cycles", f"stall_{reason}_pct", "warp_cycles_per_issue"),
            known.line,
        ),
    )
