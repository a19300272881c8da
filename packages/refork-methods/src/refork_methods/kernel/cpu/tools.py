"""Results written again and again on their way, or whose lines are fetched only to be written over."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "StoreTraffic"
#: Measured (float matmul, N = 512): 0.057 per flop with the sum in memory, 0.020 with it in registers.
MOST_WRITES = 0.05
#: Guess: a pass that writes each 4-byte result at most this often has nothing to save.
MOST_REWRITES = 4.0
ITEM_BYTES = 4
#: Bytes of written lines that are fetched in a call: fewer stay in a core's own caches from call to call.
LEAST_FETCHED = 1 << 20
#: Guess: a smaller part of all that moves is not worth a store that leaves its result in no cache.
LEAST_PART = 0.20


@micro_tool(source=("cachegrind", "objdump"), category="memory", bounds=("memory",))
def store_traffic(signals: Signals) -> Finding | None:
    """More than 0.05 writes per useful flop; or results that are written once, and fetched before."""
    return _again(signals) or _fetched(signals)


def _again(signals: Signals) -> Finding | None:
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


def _fetched(signals: Signals) -> Finding | None:
    """Large results, each line of which a store fetches from memory."""
    known = together(signals, m.LL_READ_MISSES, m.LL_WRITE_MISSES, m.LINE_BYTES, m.CALLS, m.STREAMING)
    if known is None or known[4]:
        return None
    read, written, line, calls, _ = known
    fetched = written * line / calls
    if fetched < LEAST_FETCHED or written < LEAST_PART * (read + 2 * written):
        return None
    least = read + written
    return Finding(
        tool=NAME,
        category="memory",
        severity="warn",
        cause=(
            f"{fetched / 1e6:.3g} MB of lines are fetched from memory only to be written over,"
            f" {written / (least + written):.0%} of all that moves."
        ),
        action="Store them past the caches (non-temporal stores), where nothing reads the results soon.",
        metrics={m.LL_WRITE_MISSES.name: written},
        expected_gain=(1.0, (least + written) / least),
        evidence=cited(signals, "cachegrind", "Dw="),
    )
