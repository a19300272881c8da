"""More values live in the innermost loop than there are registers."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "CpuRegisterSpill"
#: Guess: samples on stack accesses; without samples, the share of the loop's instructions.
LEAST_SHARE = 0.05


@micro_tool(source=("objdump", "perf"), category="latency", bounds=("compute", "latency"), name=NAME)
def register_spill(signals: Signals) -> Finding | None:
    """Stack loads or stores in an innermost loop that take more than 5 % of the samples."""
    known = together(signals, m.STACK_LOADS, m.STACK_STORES, m.LOOP_INSTRUCTIONS)
    if known is None:
        return None
    loads, stores, instructions = known
    if not loads + stores or not instructions:
        return None
    sampled = m.STACK_SHARE.of(signals)
    share = (loads + stores) / instructions if sampled is None else sampled
    if share <= LEAST_SHARE:
        return None
    of = "the loop's instructions (no samples were taken)" if sampled is None else "the samples"
    return Finding(
        tool=NAME,
        category="latency",
        severity="info" if sampled is None else "warn",
        cause=f"Inner loop with {loads:.0f} stack loads and {stores:.0f} stack stores, {share:.0%} of {of}.",
        action="Use fewer registers at once: a smaller register tile or unroll, or recompute a value.",
        metrics={m.STACK_LOADS.name: loads, m.STACK_STORES.name: stores, "stack_share": share},
        evidence=cited(signals, "objdump", "(%rsp)", "(%rbp)"),
    )
