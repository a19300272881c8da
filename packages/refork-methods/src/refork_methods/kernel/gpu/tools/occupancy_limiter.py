"""Occupancy: too few warps are resident, and what keeps more away."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of the most warps (arXiv 2606.26453).
LOW = 50.0
#: Twice that far from what the launch allows, the limits are not what keeps warps away (ours).
FAR = 2.0
#: An example that third parties tell of the paper; no gain to be expected of every kernel.
EXAMPLE = "Told of the paper by others: 3 to 5 times for a reduction that shared memory capped at 2 blocks."
#: Limits by name: what there is too much of, and what to do about it (ours).
LIMITS: dict[str, tuple[str, str]] = {
    "blocks_by_shared": ("shared memory", "Reduce within warps (shuffles), shrink the tile or its type."),
    "blocks_by_registers": ("registers", "Set launch bounds, shrink the tile, or split the kernel."),
    "blocks_by_warps": ("warps of a block", "Choose a block size that divides the warp slots of an SM."),
    "blocks_by_slots": ("blocks", "Make blocks larger: the slots for blocks are used up."),
}


@micro_tool(source="ncu", category="occupancy", name="gpu.OccupancyLimiter")
def occupancy_limiter(signals: Signals) -> Finding | None:
    """The smallest limit is named; where none binds, the launch is too small or uneven."""
    share = signals.get("ncu", "occupancy_pct")
    if share is None or share >= LOW:
        return None
    allowed = signals.get("ncu", "occupancy_limit_pct")
    measured = {name: signals.get("ncu", name) for name in LIMITS}
    limits = {name: value for name, value in measured.items() if value is not None}
    metrics = {"occupancy_pct": share, **limits}
    example: tuple[str, ...] = ()
    why = "The export does not say what limits it."
    action = "Profile with --section Occupancy to see whether registers, shared memory or blocks limit it."
    if allowed is not None and allowed > FAR * share:
        metrics["occupancy_limit_pct"] = allowed
        why = f"The launch would allow {allowed:.0f} %: there are too few blocks, or they end unevenly."
        action = "Launch more or smaller blocks, and give each the same work."
    elif limits:
        name = min(limits, key=lambda one: (limits[one], list(LIMITS).index(one)))
        what, action = LIMITS[name]
        why = f"The limit is {what}: {limits[name]:.0f} blocks on an SM."
        example = (EXAMPLE,) if name == "blocks_by_shared" else ()
    known = HITS["OccupancyLimiter"]
    return Finding(
        tool="gpu.OccupancyLimiter",
        category="occupancy",
        severity="critical" if share < LOW / 2 else "warn",
        cause=f"Only {share:.0f} % of the warp slots are in use. {why}",
        action=action,
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(*cited(signals, "occupancy_pct", "occupancy_limit_pct", *LIMITS), *example, known.line),
    )
