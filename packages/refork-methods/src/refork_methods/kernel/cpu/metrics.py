"""Every metric of a CPU kernel: its source, its name with the unit, and one line of meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork_methods.kernel.signals import Signals, Source


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A measured value: who measures it, its name with the unit, what it means."""

    source: Source
    name: str
    meaning: str

    def of(self, signals: Signals) -> float | None:
        """Its value; None where it was not measured."""
        return signals.get(self.source, self.name)


def together(signals: Signals, *metrics: Metric) -> tuple[float, ...] | None:
    """Several values; None unless each was measured."""
    found = [metric.of(signals) for metric in metrics]
    known = tuple(value for value in found if value is not None)
    return known if len(known) == len(found) else None


def cited(signals: Signals, source: Source, *words: str) -> tuple[str, ...]:
    """The first three lines of a source that hold one of the words; without words, its first three."""
    lines = signals.lines.get(source, ())
    return tuple(line for line in lines if not words or any(word in line for word in words))[:3]


# Simulated caches: counts of the kernel's own instructions in one call.
INSTRUCTIONS = Metric("cachegrind", "instructions", "instructions executed in the kernel")
READS = Metric("cachegrind", "reads", "data reads")
WRITES = Metric("cachegrind", "writes", "data writes")
D1_READ_MISSES = Metric("cachegrind", "d1_read_misses", "reads that miss the first-level cache")
D1_WRITE_MISSES = Metric("cachegrind", "d1_write_misses", "writes that miss the first-level cache")
LL_READ_MISSES = Metric("cachegrind", "ll_read_misses", "reads that miss the last-level cache")
LL_WRITE_MISSES = Metric("cachegrind", "ll_write_misses", "writes that miss the last-level cache")
BRANCHES = Metric("cachegrind", "branches", "conditional and indirect branches executed")
MISPREDICTIONS = Metric("cachegrind", "mispredictions", "branches that a simple predictor gets wrong")
KERNEL_SHARE = Metric("cachegrind", "kernel_instruction_share", "kernel's share of all instructions, 0 to 1")
D1_BYTES = Metric("cachegrind", "d1_bytes", "size of the simulated first-level data cache")
LINE_BYTES = Metric("cachegrind", "line_bytes", "size of a cache line")
FULL_MISSES = Metric("cachegrind", "d1_misses_fully_associative", "D1 misses of a cache without sets")
READS_PER_FLOP = Metric("cachegrind", "reads_per_flop", "data reads per useful flop")
WRITES_PER_FLOP = Metric("cachegrind", "writes_per_flop", "data writes per useful flop")
MISSES_PER_FLOP = Metric("cachegrind", "d1_read_misses_per_flop", "D1 read misses per useful flop")
EXCESS_PER_FLOP = Metric(
    "cachegrind", "d1_excess_misses_per_flop", "D1 read misses beyond one per needed line, per useful flop"
)
MISSES_PER_LINE = Metric(
    "cachegrind", "d1_misses_per_line", "D1 misses for each line of all arrays, of a kernel without flops"
)
BRANCHES_PER_FLOP = Metric("cachegrind", "branches_per_flop", "branches per useful flop")
READS_PER_BYTE = Metric("cachegrind", "reads_per_needed_byte", "data reads per byte that must be moved")
NEEDED_BYTES = Metric(
    "cachegrind", "needed_bytes", "declared bytes of one call, a measure of its working set"
)

# Disassembly. "_loop": inside innermost loops, or in the whole function where it has none.
PACKED = Metric("objdump", "packed_fp_instructions", "vector floating-point operations in the function")
SCALAR = Metric("objdump", "scalar_fp_instructions", "scalar floating-point operations in the function")
PACKED_128 = Metric("objdump", "packed_128_loop", "128-bit vector operations in innermost loops")
PACKED_256 = Metric("objdump", "packed_256_loop", "256-bit vector operations in innermost loops")
PACKED_512 = Metric("objdump", "packed_512_loop", "512-bit vector operations in innermost loops")
ITEM_BYTES = Metric(
    "objdump", "item_bytes", "bytes of one number in vector operations of innermost loops, mean"
)
FMA = Metric("objdump", "fma_loop", "fused multiply-adds in innermost loops")
WIDEST_BITS = Metric("objdump", "widest_bits", "widest vector registers of the machine")
LOOPS = Metric("objdump", "innermost_loops", "innermost natural loops")
FP_LOOPS = Metric("objdump", "fp_loops", "innermost loops with floating-point operations")
VECTOR_LOOPS = Metric(
    "objdump", "vector_loops", "innermost loops with at least as many packed as scalar ones"
)
LOOP_INSTRUCTIONS = Metric("objdump", "loop_instructions", "instructions in innermost loops")
DIVISIONS = Metric("objdump", "divisions_loop", "divisions in innermost loops, integer ones too")
ROOTS = Metric("objdump", "square_roots_loop", "square roots in innermost loops")
LIBM_CALLS = Metric(
    "objdump", "libm_calls_loop", "scalar calls of the mathematics library in innermost loops"
)
OTHER_CALLS = Metric("objdump", "other_calls_loop", "other calls in innermost loops")
STACK_LOADS = Metric("objdump", "stack_loads_loop", "loads from the stack in innermost loops")
STACK_STORES = Metric("objdump", "stack_stores_loop", "stores to the stack in innermost loops")
UPDATES = Metric(
    "objdump", "indexed_updates_loop", "sums in memory at places that were loaded, in innermost loops"
)
STREAMING = Metric("objdump", "streaming_stores_loop", "stores past the caches in innermost loops")

# The compiler's records, loops counted by source line.
VECTORISED = Metric("optinfo", "loops_vectorised", "loops that gcc vectorised")
MISSED = Metric("optinfo", "loops_missed", "loops that gcc did not vectorise in any way")
VECTOR_BYTES = Metric("optinfo", "vector_bytes", "widest vectors that gcc used")
MISSED_REDUCTION = Metric("optinfo", "missed_reduction", "lines that a sum kept in order blocks")
MISSED_ALIAS = Metric("optinfo", "missed_alias", "lines where pointers may overlap")
MISSED_STRIDE = Metric("optinfo", "missed_stride", "lines whose accesses are not contiguous")
MISSED_CALL = Metric("optinfo", "missed_call", "lines with calls that cannot be vectorised")
MISSED_CONTROL = Metric("optinfo", "missed_control", "lines with branches or unknown trip counts")
MISSED_COST = Metric("optinfo", "missed_cost", "lines where vectors would not pay")

# The model of the ports, for the innermost loop; all loads hit the first-level cache.
LOOP_CYCLES = Metric("mca", "cycles_per_iteration", "cycles of one iteration in steady state")
BLOCK_CYCLES = Metric("mca", "block_throughput_cycles", "cycles of one iteration without dependencies")
IPC = Metric("mca", "instructions_per_cycle", "instructions per cycle")
PORT_USE = Metric("mca", "busiest_port_share", "share of the cycles in which the busiest port works, 0 to 1")

# Sampling, page faults of the timed calls.
SAMPLES = Metric("perf", "samples", "samples taken")
INSIDE = Metric("perf", "inside_share", "samples inside the kernel, 0 to 1")
STACK_SHARE = Metric("perf", "stack_share", "kernel's samples on loads from and stores to the stack, 0 to 1")
FAULTS = Metric("perf", "page_faults", "page faults in the timed calls")

# Our clock, and what the caller declares.
SECONDS = Metric("timing", "seconds", "seconds of one call, the least of several")
TIMED_CALLS = Metric("timing", "timed_calls", "calls over which page faults were counted")
OUTPUT_BYTES = Metric("timing", "output_bytes", "bytes of results that one call writes")
FLOPS_SHARE = Metric("timing", "flops_share", "reached share of the machine's flop rate")
BYTES_SHARE = Metric("timing", "bandwidth_share", "reached share of the machine's bandwidth")

#: All of them, by source and name.
METRICS: dict[tuple[Source, str], Metric] = {
    (one.source, one.name): one for one in list(globals().values()) if isinstance(one, Metric)
}
