"""The tools for GPU kernels, one file each; importing this registers them.

Source: arXiv 2606.26453 for the list. Names and triggers of the first nine are the paper's; of the next three
the name is; the last three are reconstructed by us. Each file says so where it has its thresholds. What to do
is ours unless it says otherwise; expected gains are the paper's means, where it has one.
"""

from __future__ import annotations

from refork_methods.kernel.gpu.tools import (
    bank_conflict,
    barrier_stall,
    high_dram_throughput,
    high_register_usage,
    launch_overhead,
    memory_coalescing,
    occupancy_limiter,
    register_spill,
    scalar_fallback,
    shared_mem_tiling,
    tensor_core,
    uncoalesced,
    vectorization,
    warp_divergence,
    warp_stall,
)
from refork_methods.kernel.tool import MicroTool, registered

_MODULES = (
    memory_coalescing, high_dram_throughput, occupancy_limiter, high_register_usage,
    warp_stall, barrier_stall, launch_overhead, uncoalesced,
    register_spill, shared_mem_tiling, tensor_core, vectorization,
    scalar_fallback, bank_conflict, warp_divergence,
)  # fmt: skip
_BY_MODULE = {tool.check.__module__: tool for tool in registered().values()}
_TOOLS = tuple(_BY_MODULE[module.__name__] for module in _MODULES)


def gpu_tools() -> tuple[MicroTool, ...]:
    """All 15, in the order of the paper's list."""
    return _TOOLS
