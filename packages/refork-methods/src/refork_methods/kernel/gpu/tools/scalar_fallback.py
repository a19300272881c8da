"""Compute: matrix instructions were meant, and none are in the code."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

# That the paper has such a tool is reported by third parties only; its trigger is ours: the code has scalar
# products, no matrix instruction, and matrix instructions were meant (see gpu.sass).


@micro_tool(source="sass", category="compute", bounds=("compute", "latency"), name="gpu.ScalarFallback")
def scalar_fallback(signals: Signals) -> Finding | None:
    """The compiler or a library fell back to scalar arithmetic without a word."""
    counts = signals.all("sass", "matrix_meant", "tensor", "ffma", "fmul")
    if counts is None:
        return None
    meant, matrix, multiply_adds, products = counts
    if not meant or matrix or not multiply_adds + products:
        return None
    return Finding(
        tool="gpu.ScalarFallback",
        category="compute",
        severity="critical",
        cause=f"Matrix instructions are meant, and the code has none: {multiply_adds:.0f} FFMA and "
        f"{products:.0f} FMUL do the work.",
        action="Check what the matrix path asks for: the target architecture, types, layouts, and shapes "
        "that are multiples of the fragment's.",
        metrics={"tensor": matrix, "ffma": multiply_adds, "fmul": products},
        evidence=tuple(line for line in signals.lines.get("sass", ()) if "FFMA" in line),
    )
