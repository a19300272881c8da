"""The 15 tools of CPU kernels, in order.

Source: arXiv 2606.26453 for such tools on GPUs. The paper has none for CPUs: this set, its triggers and its
actions are our reconstruction of its idea. Of the thresholds, those marked as measured come from float
matmuls on a cloud VM (x86-64 with AVX-512, gcc 12, valgrind 3.19), the others are guesses.
"""

from __future__ import annotations

from refork_methods.kernel.cpu.tools import (
    bandwidth_roof,
    branch_miss,
    call_overhead,
    capacity_miss,
    conflict_miss,
    dependency_chain,
    load_pressure,
    narrow_vector,
    page_touch,
    port_pressure,
    register_spill,
    scalar_fallback,
    slow_ops,
    store_traffic,
    strided_access,
)
from refork_methods.kernel.tool import MicroTool, registered

_MODULES = (
    scalar_fallback,
    narrow_vector,
    strided_access,
    capacity_miss,
    conflict_miss,
    bandwidth_roof,
    store_traffic,
    load_pressure,
    register_spill,
    dependency_chain,
    port_pressure,
    branch_miss,
    slow_ops,
    call_overhead,
    page_touch,
)
_TOOLS = tuple(registered()[module.NAME] for module in _MODULES)


def cpu_tools() -> tuple[MicroTool, ...]:
    """The 15 tools, in order."""
    return _TOOLS
