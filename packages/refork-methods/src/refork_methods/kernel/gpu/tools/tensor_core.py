"""Compute: matrix work runs on the scalar pipes."""

from __future__ import annotations

from refork_methods.kernel.finding import Finding
from refork_methods.kernel.gpu.evidence import cited
from refork_methods.kernel.gpu.paper import HITS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

#: Percent of the tensor pipe's peak (the tool's name is the paper's, arXiv 2606.26453; the trigger ours).
UNUSED = 10.0
#: Share of multiply-adds in single-precision arithmetic from which we take it for matrix work (ours).
MATRIX = 0.8


def _multiply_adds(signals: Signals) -> float | None:
    """Their share, in what ran where it was counted, else in the code; None where there is no arithmetic."""
    counted = signals.all("ncu", "ffma_threads", "fmul_threads", "fadd_threads")
    counted = counted or signals.all("sass", "ffma", "fmul", "fadd")
    return counted[0] / sum(counted) if counted is not None and sum(counted) > 0 else None


@micro_tool(source="ncu", category="compute", bounds=("compute", "latency"), name="gpu.TensorCore")
def tensor_core(signals: Signals) -> Finding | None:
    """Multiply-adds by the scalar pipes while the tensor pipe is idle."""
    used, share = signals.get("ncu", "tensor_pct"), _multiply_adds(signals)
    if used is None or share is None or used >= UNUSED or share < MATRIX:
        return None
    known = HITS["TensorCore"]
    return Finding(
        tool="gpu.TensorCore",
        category="compute",
        severity="warn",
        cause=f"{share:.0%} of single-precision arithmetic is multiply-adds, and the tensor pipe is at "
        f"{used:.1f} %.",
        action="If this is matrix work and TF32, BF16 or FP16 are exact enough: use WMMA, WGMMA or CuTe, or "
        "call cuBLAS.",
        metrics={"tensor_pct": used, "multiply_add_share": share},
        expected_gain=known.expected,
        evidence=(*cited(signals, "tensor_pct", "ffma_threads", "fmul_threads", "fadd_threads"), known.line),
    )
