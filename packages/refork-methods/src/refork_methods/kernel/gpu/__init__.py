"""GPU kernels diagnosed from exports taken anywhere, and from code compiled here; no GPU is needed.

Source: arXiv 2606.26453 for the tools. Readers and metric tables are ours, after what the programs print.
"""

from __future__ import annotations

from refork_methods.kernel.gpu.cuda_code import cuda_signals, ptxas_signals, sass_signals
from refork_methods.kernel.gpu.diagnose import classify_gpu, diagnose_gpu
from refork_methods.kernel.gpu.ncu import launches, ncu_signals, read_ncu
from refork_methods.kernel.gpu.nsys import nsys_signals, read_nsys
from refork_methods.kernel.gpu.tools import gpu_tools

__all__ = [
    "classify_gpu",
    "cuda_signals",
    "diagnose_gpu",
    "gpu_tools",
    "launches",
    "ncu_signals",
    "nsys_signals",
    "ptxas_signals",
    "read_ncu",
    "read_nsys",
    "sass_signals",
]
