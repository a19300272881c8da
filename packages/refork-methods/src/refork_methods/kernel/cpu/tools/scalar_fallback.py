"""Floating-point work done one number at a time, where vectors could do it."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "CpuScalarFallback"
#: Measured: a naive matmul is scalar at every flag of gcc 12 that keeps the order of sums.
LEAST_SCALAR = 1
_WHY = {
    m.MISSED_REDUCTION: (
        "gcc keeps the order of a sum",
        "Sum in several accumulators, or allow other orders with -fassociative-math -fno-signed-zeros"
        " -fno-trapping-math.",
    ),
    m.MISSED_ALIAS: ("gcc must assume that pointers overlap", "Declare them restrict."),
    m.MISSED_STRIDE: (
        "neighbouring iterations do not read neighbouring numbers",
        "Interchange the loops so that the innermost one runs along memory, or pack the operand.",
    ),
    m.MISSED_CALL: ("a call in the loop has no vector form", "Inline it, or use vector mathematics."),
    m.MISSED_CONTROL: ("the loop branches or its end is unknown", "Make it a counted loop without branches."),
    m.MISSED_COST: ("gcc holds vectors for slower here", "Give it longer inner loops, or force omp simd."),
}
_NOT_TRIED = ("gcc's vectoriser did not run", "Compile with -O3 -march=native.")
_UNKNOWN = (
    "gcc gave no reason",
    "Look for a value that one iteration hands to the next, and compute it apart.",
)


@micro_tool(source=("objdump", "optinfo"), category="compute", name=NAME)
def scalar_fallback(signals: Signals) -> Finding | None:
    """No packed arithmetic, or in no innermost loop as much of it as of scalar arithmetic."""
    scalar, packed = m.SCALAR.of(signals), m.PACKED.of(signals)
    if scalar is None or packed is None or scalar < LEAST_SCALAR:
        return None
    loops, vector = m.FP_LOOPS.of(signals), m.VECTOR_LOOPS.of(signals)
    if packed and (not loops or vector):
        return None
    counted = [(metric.of(signals) or 0.0, metric) for metric in _WHY]
    most = max(counted, key=lambda one: one[0])
    # Products as vectors and sums as scalars: that is how gcc keeps the order of a sum.
    unsaid = _UNKNOWN if signals.has("optinfo") else _NOT_TRIED
    why, action = _WHY[most[1]] if most[0] else _WHY[m.MISSED_REDUCTION] if packed else unsaid
    return Finding(
        tool=NAME,
        category="compute",
        severity="warn" if packed else "critical",
        cause=f"{scalar:.0f} scalar and {packed:.0f} vector floating-point instructions: {why}.",
        action=action,
        metrics={m.SCALAR.name: scalar, m.PACKED.name: packed},
        evidence=cited(signals, "optinfo", "missed") or cited(signals, "objdump"),
    )
