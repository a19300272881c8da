"""Iterations that wait for the one before."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "DependencyChain"
#: Measured: 5.08 against 1.5 cycles (3.4) for a scalar dot product.
MOST_RATIO = 1.5
CRITICAL = 3.0
#: Guess: counts that reach less than this share of both ceilings wait for each other, or for a far table.
MOST_SHARE = 0.5


@micro_tool(source=("mca", "objdump"), category="latency", bounds=("compute", "latency"))
def dependency_chain(signals: Signals) -> Finding | None:
    """1.5 times the cycles that an iteration needs without dependencies; or counts that wait in memory."""
    return _in_registers(signals) or _in_memory(signals)


def _in_registers(signals: Signals) -> Finding | None:
    known = together(signals, m.LOOP_CYCLES, m.BLOCK_CYCLES)
    if known is None or not known[1]:
        return None
    cycles, block = known
    ratio = cycles / block
    if ratio <= MOST_RATIO:
        return None
    return Finding(
        tool=NAME,
        category="latency",
        severity="critical" if ratio > CRITICAL else "warn",
        cause=(
            f"{cycles:.3g} cycles per iteration where its instructions need {block:.3g}: each waits for the"
            f" last, and the ports stand idle. The model allows {ratio:.2g} times as fast."
        ),
        action="Break the chain: 4 or more accumulators, joined after the loop.",
        metrics={m.LOOP_CYCLES.name: cycles, m.BLOCK_CYCLES.name: block},
        evidence=cited(signals, "mca", "Cycles", "RThroughput"),
    )


def _in_memory(signals: Signals) -> Finding | None:
    """The model of the ports does not follow what passes through memory."""
    known = together(signals, m.UPDATES, m.FLOPS_SHARE, m.BYTES_SHARE)
    if known is None or not known[0] or max(known[1:]) >= MOST_SHARE:
        return None
    return Finding(
        tool=NAME,
        category="latency",
        severity="warn",
        cause=(
            f"Sums in memory at places that an index names, at {known[2]:.0%} of the memory's bandwidth:"
            " where indices repeat, each waits until the one before is stored."
        ),
        action="Sum into several tables in turn, joined after the loop; compare where entries are few.",
        metrics={m.UPDATES.name: known[0], m.BYTES_SHARE.name: known[2]},
    )
