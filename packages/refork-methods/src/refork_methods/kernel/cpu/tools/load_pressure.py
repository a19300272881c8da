"""Vector arithmetic that fetches its operands anew each time."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "LoadPressure"
#: Guess, from cores that load two vectors and do two fused multiply-adds (four operations) a cycle.
MOST_READS = 0.5
#: Guess: twice a 32-byte read for each 32 bytes that are needed is no reuse to be won.
MOST_READS_PER_BYTE = 2 / 32
#: The profiled program has no wider vectors.
MOST_BYTES = 32
_BYTES = (16, 32, 64)


@micro_tool(source=("cachegrind", "objdump"), category="memory", bounds=("memory",))
def load_pressure(signals: Signals) -> Finding | None:
    """Vectorised, and more than a read per two vector operations, of data that is read many times.

    Reads per flop are counted in vectors, because one of 8 numbers is one read for 8 flops.
    """
    known = together(signals, m.READS_PER_FLOP, m.READS_PER_BYTE, m.VECTOR_LOOPS, m.ITEM_BYTES)
    widths = together(signals, m.PACKED_128, m.PACKED_256, m.PACKED_512)
    if known is None or widths is None or not any(widths):
        return None
    rate, per_byte, vector, item = known
    wide = max(size for size, count in zip(_BYTES, widths, strict=True) if count)
    reads = rate * min(wide, MOST_BYTES) / item
    if not vector or reads <= MOST_READS or per_byte <= MOST_READS_PER_BYTE:
        return None
    return Finding(
        tool=NAME,
        category="memory",
        severity="warn",
        cause=f"{reads:.3g} reads per vector operation, {per_byte:.3g} per needed byte: too many.",
        action="Register tile: compute 4 or more rows or columns at once, so that each load serves several.",
        metrics={"reads_per_vector_operation": reads, m.READS_PER_BYTE.name: per_byte},
        evidence=cited(signals, "cachegrind", "Dr="),
    )
