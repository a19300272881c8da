"""Data that is used again after the cache has dropped it."""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.finding import Finding
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import micro_tool

NAME = "CapacityMiss"
#: Measured (float matmul, N = 512, simulated 32 KiB cache): 0.032 untiled, 0.009 in tiles of 64 rows of K.
LEAST_MISSES = 0.01
#: Above, the accesses stride.
MOST_MISSES = 0.10
#: Measured there on one core of a cloud VM (x86, AVX-512): 15-21 to 34 GF/s by tiles and 4 rows together.
GAIN = (1.6, 2.3)


@micro_tool(source="cachegrind", category="memory", bounds=("memory",))
def capacity_miss(signals: Signals) -> Finding | None:
    """0.01 to 0.10 D1 read misses per flop beyond the needed lines, of data larger than the cache."""
    known = together(signals, m.EXCESS_PER_FLOP, m.NEEDED_BYTES, m.D1_BYTES)
    if known is None:
        return None
    misses, size, cache = known
    if not LEAST_MISSES < misses <= MOST_MISSES or size <= cache:
        return None
    return Finding(
        tool=NAME,
        category="memory",
        severity="warn",
        cause=(
            f"{misses:.3g} D1 read misses per flop beyond the needed lines: {size / 1024:.0f} KiB are used"
            f" again and again through a cache of {cache / 1024:.0f} KiB."
        ),
        action=(
            "Block the loops so that what is used again fits: try tiles of 32 to 128 iterations."
            " The gain is that of a float matmul of 512 on a cloud VM."
        ),
        metrics={m.EXCESS_PER_FLOP.name: misses, m.NEEDED_BYTES.name: size},
        expected_gain=GAIN,
        evidence=cited(signals, "cachegrind"),
    )
