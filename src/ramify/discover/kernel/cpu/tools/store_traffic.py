"""Results written again and again on their way."""

from __future__ import annotations

from ramify.discover.kernel.cpu import metrics as m
from ramify.discover.kernel.cpu.metrics import cited, together
from ramify.discover.kernel.finding import Finding
from ramify.discover.kernel.signals import Signals
from ramify.discover.kernel.tool import micro_tool

NAME = "StoreTraffic"
#: Measured (float matmul, N = 512): 0.057 per flop with the sum in memory, 0.020 with it in registers.
MOST_WRITES = 0.05
#: Guess: a pass that writes each 4-byte result at most this often has nothing to save.
MOST_REWRITES = 4.0
ITEM_BYTES = 4


@micro_tool(source="cachegrind", category="memory", bounds=("memory",))
def store_traffic(signals: Signals) -> Finding | None:
    """More than 0.05 writes per useful flop, unless they are the results, written once."""
    rate = m.WRITES_PER_FLOP.of(signals)
    if rate is None or rate <= MOST_WRITES:
        return None
    found = {m.WRITES_PER_FLOP.name: rate}
    cause = f"{rate:.3g} data writes per flop: sums go to memory and back."
    known = together(signals, m.WRITES, m.CALLS, m.OUTPUT_BYTES)
    if known is not None and known[2]:
        writes, calls, output = known
        times = writes / calls / (output / ITEM_BYTES)
        if times <= MOST_REWRITES:
            return None
        found["writes_per_result"] = times
        cause = f"{rate:.3g} data writes per flop, {times:.3g} for each {ITEM_BYTES} bytes of results."
    return Finding(
        tool=NAME,
        category="memory",
        severity="warn",
        cause=cause,
        action="Accumulate in registers and store once: unroll an outer loop and jam it into the inner one.",
        metrics=found,
        evidence=cited(signals, "cachegrind", "Dw="),
    )
