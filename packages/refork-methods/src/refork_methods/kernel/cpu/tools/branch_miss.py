"""Branches that follow the data and cannot be foretold."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "BranchMiss"
#: Guess: mispredicted share of the branches.
MOST_MISSED = 0.05
CRITICAL = 0.20
#: Guess: branches per useful flop; of kernels without flops, per instruction.
LEAST_PER_FLOP = 0.1
LEAST_PER_INSTRUCTION = 0.05


@micro_tool(source="cachegrind", category="latency", bounds=("compute", "latency"))
def branch_miss(signals: Signals) -> Finding | None:
    """More than 5 % of the branches go wrong, and there are many."""
    known = together(signals, m.BRANCHES, m.MISPREDICTIONS, m.INSTRUCTIONS)
    if known is None or not known[0]:
        return None
    branches, wrong, instructions = known
    per_flop = m.BRANCHES_PER_FLOP.of(signals)
    many = (
        per_flop > LEAST_PER_FLOP if per_flop is not None else branches > LEAST_PER_INSTRUCTION * instructions
    )
    missed = wrong / branches
    if missed <= MOST_MISSED or not many:
        return None
    often = "" if per_flop is None else f" ({per_flop:.2g} per flop)"
    return Finding(
        tool=NAME,
        category="latency",
        severity="critical" if missed > CRITICAL else "warn",
        cause=f"{missed:.0%} of {branches:.3g} branches{often} are mispredicted: they depend on the data.",
        action="Compute both sides and select (min, max, ?:), look the answer up, or sort the data first.",
        metrics={"mispredicted_share": missed, m.BRANCHES.name: branches},
        evidence=cited(signals, "cachegrind", "Bcm="),
    )
