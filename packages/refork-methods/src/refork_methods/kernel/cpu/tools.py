"""The 15 tools of CPU kernels.

Source: arXiv 2606.26453 for such tools on GPUs. The paper has none for CPUs: this set, its triggers and its
actions are our reconstruction of its idea. Of the thresholds, those marked as measured come from float
matmuls on a cloud VM (x86-64 with AVX-512, gcc 12, valgrind 3.19), the others are guesses.
"""

from __future__ import annotations

from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.metrics import cited, together
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import CheckResult, MicroTool, micro_tool, registered

#: Guess: closer to the calibrated triad than this, noise is all that is left.
BANDWIDTH_ROOF_LEAST_SHARE = 0.80


@micro_tool(source=("timing", "cachegrind"), category="memory")
def bandwidth_roof(signals: Signals) -> CheckResult | None:
    """More than 80 % of the bandwidth that the triad reached on this machine."""
    known = together(signals, m.BYTES_SHARE, m.SECONDS)
    if known is None or known[0] <= BANDWIDTH_ROOF_LEAST_SHARE:
        return None
    share, seconds = known
    return CheckResult(
        severity="info",
        cause=f"{share:.0%} of the memory's measured bandwidth over {seconds:.3g} s: this is the roof.",
        action="Move fewer bytes: fuse with the neighbouring pass, non-temporal stores, a narrower type.",
        metrics={m.BYTES_SHARE.name: share},
        evidence=cited(signals, "cachegrind", "DLmr"),
    )


#: Guess: mispredicted share of the branches.
MOST_MISSED = 0.05
BRANCH_MISS_CRITICAL = 0.20
#: Guess: branches per useful flop; of kernels without flops, per instruction.
LEAST_PER_FLOP = 0.1
LEAST_PER_INSTRUCTION = 0.05


@micro_tool(source="cachegrind", category="latency")
def branch_miss(signals: Signals) -> CheckResult | None:
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
    return CheckResult(
        severity="critical" if missed > BRANCH_MISS_CRITICAL else "warn",
        cause=f"{missed:.0%} of {branches:.3g} branches{often} are mispredicted: they depend on the data.",
        action="Compute both sides and select (min, max, ?:), look the answer up, or sort the data first.",
        metrics={"mispredicted_share": missed, m.BRANCHES.name: branches},
        evidence=cited(signals, "cachegrind", "Bcm="),
    )


#: Guess.
MOST_OUTSIDE = 0.20
#: Guess: fewer samples than these tell nothing about a fifth.
LEAST_SAMPLES = 50


@micro_tool(source="perf", category="launch")
def call_overhead(signals: Signals) -> CheckResult | None:
    """More than a fifth of the samples lie outside the kernel."""
    known = together(signals, m.INSIDE, m.SAMPLES)
    if known is None:
        return None
    inside, samples = known
    outside = 1 - inside
    if outside <= MOST_OUTSIDE or samples < LEAST_SAMPLES:
        return None
    most = f" Without them it is at most {1 / inside:.2g} times as fast." if inside > 0 else ""
    return CheckResult(
        severity="critical" if outside > 0.5 else "warn",
        cause=f"{outside:.0%} of {samples:.0f} samples lie outside the kernel, in calls around it.{most}",
        action="Inline what it calls, hand it a batch, or fuse it with its caller's loop.",
        metrics={"outside_share": outside, m.SAMPLES.name: samples},
        evidence=cited(signals, "perf", "[.]", "[k]"),
    )


#: Measured (float matmul, N = 512, simulated 32 KiB cache): 0.032 untiled, 0.009 in tiles of 64 rows of K.
LEAST_MISSES = 0.01
#: Above, the accesses stride.
CAPACITY_MISS_MOST_MISSES = 0.10
#: Measured there on one core of a cloud VM (x86, AVX-512): 15-21 to 34 GF/s by tiles and 4 rows together.
CAPACITY_MISS_GAIN = (1.6, 2.3)


@micro_tool(source="cachegrind", category="memory")
def capacity_miss(signals: Signals) -> CheckResult | None:
    """0.01 to 0.10 D1 read misses per flop beyond the needed lines, of data larger than the cache."""
    known = together(signals, m.EXCESS_PER_FLOP, m.NEEDED_BYTES, m.D1_BYTES)
    if known is None:
        return None
    misses, size, cache = known
    if not LEAST_MISSES < misses <= CAPACITY_MISS_MOST_MISSES or size <= cache:
        return None
    return CheckResult(
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
        expected_gain=CAPACITY_MISS_GAIN,
        evidence=cited(signals, "cachegrind"),
    )


#: Measured: 16 for a float matmul with rows of 1 KiB (N = 256), 8 ways against a cache of one set.
CONFLICT_MISS_MOST_RATIO = 2.0
CONFLICT_MISS_CRITICAL = 8.0
#: Guess: fewer misses than these per access cost nothing worth mending.
CONFLICT_MISS_LEAST_SHARE = 0.01


@micro_tool(source="cachegrind", category="memory")
def conflict_miss(signals: Signals) -> CheckResult | None:
    """Twice the misses of a fully associative cache of the same size."""
    known = together(signals, m.D1_READ_MISSES, m.D1_WRITE_MISSES, m.READS, m.WRITES, m.FULL_MISSES)
    if known is None:
        return None
    read_misses, write_misses, reads, writes, full = known
    misses = read_misses + write_misses
    ratio = misses / max(full, 1.0)
    if ratio <= CONFLICT_MISS_MOST_RATIO or misses - full < CONFLICT_MISS_LEAST_SHARE * (reads + writes):
        return None
    return CheckResult(
        severity="critical" if ratio > CONFLICT_MISS_CRITICAL else "warn",
        cause=(
            f"{misses:.3g} D1 misses, {full:.3g} in a cache without sets: {ratio:.2g} times as many,"
            " because addresses a power of two apart share a set."
        ),
        action="Pad the leading dimension by one cache line, or copy the tile to a contiguous buffer.",
        metrics={"conflict_ratio": ratio, m.FULL_MISSES.name: full},
        evidence=cited(signals, "cachegrind"),
    )


#: Measured: 5.08 against 1.5 cycles (3.4) for a scalar dot product.
DEPENDENCY_CHAIN_MOST_RATIO = 1.5
DEPENDENCY_CHAIN_CRITICAL = 3.0
#: Guess: counts that reach less than this share of both ceilings wait for each other, or for a far table.
MOST_SHARE = 0.5


@micro_tool(source=("mca", "objdump"), category="latency")
def dependency_chain(signals: Signals) -> CheckResult | None:
    """1.5 times the cycles that an iteration needs without dependencies; or counts that wait in memory."""
    return _in_registers(signals) or _in_memory(signals)


def _in_registers(signals: Signals) -> CheckResult | None:
    known = together(signals, m.LOOP_CYCLES, m.BLOCK_CYCLES)
    if known is None or not known[1]:
        return None
    cycles, block = known
    ratio = cycles / block
    if ratio <= DEPENDENCY_CHAIN_MOST_RATIO:
        return None
    return CheckResult(
        severity="critical" if ratio > DEPENDENCY_CHAIN_CRITICAL else "warn",
        cause=(
            f"{cycles:.3g} cycles per iteration where its instructions need {block:.3g}: each waits for the"
            f" last, and the ports stand idle. The model allows {ratio:.2g} times as fast."
        ),
        action="Break the chain: 4 or more accumulators, joined after the loop.",
        metrics={m.LOOP_CYCLES.name: cycles, m.BLOCK_CYCLES.name: block},
        evidence=cited(signals, "mca", "Cycles", "RThroughput"),
    )


def _in_memory(signals: Signals) -> CheckResult | None:
    """The model of the ports does not follow what passes through memory."""
    known = together(signals, m.UPDATES, m.FLOPS_SHARE, m.BYTES_SHARE)
    if known is None or not known[0] or max(known[1:]) >= MOST_SHARE:
        return None
    return CheckResult(
        severity="warn",
        cause=(
            f"Sums in memory at places that an index names, at {known[2]:.0%} of the memory's bandwidth:"
            " where indices repeat, each waits until the one before is stored."
        ),
        action="Sum into several tables in turn, joined after the loop; compare where entries are few.",
        metrics={m.UPDATES.name: known[0], m.BYTES_SHARE.name: known[2]},
    )


#: Guess, from cores that load two vectors and do two fused multiply-adds (four operations) a cycle.
MOST_READS = 0.5
#: Guess: twice a 32-byte read for each 32 bytes that are needed is no reuse to be won.
MOST_READS_PER_BYTE = 2 / 32
#: The profiled program has no wider vectors.
MOST_BYTES = 32
_BYTES = (16, 32, 64)


@micro_tool(source=("cachegrind", "objdump"), category="memory")
def load_pressure(signals: Signals) -> CheckResult | None:
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
    return CheckResult(
        severity="warn",
        cause=f"{reads:.3g} reads per vector operation, {per_byte:.3g} per needed byte: too many.",
        action="Register tile: compute 4 or more rows or columns at once, so that each load serves several.",
        metrics={"reads_per_vector_operation": reads, m.READS_PER_BYTE.name: per_byte},
        evidence=cited(signals, "cachegrind", "Dr="),
    )


#: Guess: below this share of operations at full width the narrow ones are not just a loop's remainder.
LEAST_WIDE = 0.5
_WIDTHS = (128.0, 256.0, 512.0)


@micro_tool(source="objdump", category="compute")
def narrow_vector(signals: Signals) -> CheckResult | None:
    """Less than half of the packed operations of innermost loops use the widest registers."""
    counts = together(signals, m.PACKED_128, m.PACKED_256, m.PACKED_512, m.WIDEST_BITS)
    if counts is None or not sum(counts[:3]):
        return None
    widest = counts[3]
    wide = sum(count for bits, count in zip(_WIDTHS, counts[:3], strict=True) if bits >= widest)
    share = wide / sum(counts[:3])
    if share >= LEAST_WIDE:
        return None
    used = max(bits for bits, count in zip(_WIDTHS, counts[:3], strict=True) if count)
    return CheckResult(
        severity="warn" if used < widest / 2 else "info",
        cause=f"{share:.0%} of the vector operations have {widest:.0f} bits; the widest have {used:.0f}.",
        action=(
            "Compile with -march=native, align the arrays, and time"
            f" -mprefer-vector-width={widest:.0f}: some processors run slower with it."
        ),
        metrics={"wide_share": share, m.WIDEST_BITS.name: widest},
        evidence=cited(signals, "objdump", "ps ", "pd "),
    )


#: Guess: one page fault for so many bytes of results.
BYTES_PER_FAULT = 16 * 1024
#: Guess: a handful of faults belongs to any run.
LEAST_FAULTS = 16


@micro_tool(source="perf", category="memory")
def page_touch(signals: Signals) -> CheckResult | None:
    """More than one page fault per 16 KiB of results in the timed calls."""
    known = together(signals, m.FAULTS, m.OUTPUT_BYTES, m.TIMED_CALLS)
    if known is None:
        return None
    faults, output, calls = known
    written = output * calls
    if faults < LEAST_FAULTS or faults * BYTES_PER_FAULT <= written:
        return None
    return CheckResult(
        severity="warn",
        cause=f"{faults:.0f} page faults while {written / 1024:.0f} KiB of results were written.",
        action="Allocate once and reuse the buffers, touch them before the loop, or use huge pages.",
        metrics={m.FAULTS.name: faults, "written_bytes": written},
        evidence=cited(signals, "perf", "page-faults", "faults"),
    )


#: Measured (float matmul, N = 512): 0.057 per flop with the sum in memory, 0.020 with it in registers.
MOST_WRITES = 0.05
#: Guess: a pass that writes each 4-byte result at most this often has nothing to save.
MOST_REWRITES = 4.0
ITEM_BYTES = 4
#: Bytes of written lines that are fetched in a call: fewer stay in a core's own caches from call to call.
LEAST_FETCHED = 1 << 20
#: Guess: a smaller part of all that moves is not worth a store that leaves its result in no cache.
LEAST_PART = 0.20


@micro_tool(source=("cachegrind", "objdump"), category="memory")
def store_traffic(signals: Signals) -> CheckResult | None:
    """More than 0.05 writes per useful flop; or results that are written once, and fetched before."""
    return _again(signals) or _fetched(signals)


def _again(signals: Signals) -> CheckResult | None:
    rate = m.WRITES_PER_FLOP.of(signals)
    if rate is None or rate <= MOST_WRITES:
        return None
    found = {m.WRITES_PER_FLOP.name: rate}
    cause = f"{rate:.3g} data writes per flop: sums go to memory and back."
    known = together(signals, m.WRITES, m.OUTPUT_BYTES)
    if known is not None and known[1]:
        times = known[0] / (known[1] / ITEM_BYTES)
        if times <= MOST_REWRITES:
            return None
        found["writes_per_result"] = times
        cause = f"{rate:.3g} data writes per flop, {times:.3g} for each {ITEM_BYTES} bytes of results."
    return CheckResult(
        severity="warn",
        cause=cause,
        action="Accumulate in registers and store once: unroll an outer loop and jam it into the inner one.",
        metrics=found,
        evidence=cited(signals, "cachegrind", "Dw="),
    )


def _fetched(signals: Signals) -> CheckResult | None:
    """Large results, each line of which a store fetches from memory."""
    known = together(signals, m.LL_READ_MISSES, m.LL_WRITE_MISSES, m.LINE_BYTES, m.STREAMING)
    if known is None or known[3]:
        return None
    read, written, line, _ = known
    fetched = written * line
    if fetched < LEAST_FETCHED or written < LEAST_PART * (read + 2 * written):
        return None
    least = read + written
    return CheckResult(
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


#: Measured (float matmul, N = 512, simulated 32 KiB cache): 0.505 across rows, 0.032 along them.
STRIDED_ACCESS_MOST_MISSES = 0.10
STRIDED_ACCESS_CRITICAL = 0.30
#: Measured there on one core of a cloud VM (x86, AVX-512), gcc -O3: 1.3-1.4 to 15-18 GF/s by interchange.
STRIDED_ACCESS_GAIN = (10.7, 13.8)
_OF = " The gain is that of a float matmul of 512 on a cloud VM."


@micro_tool(source="cachegrind", category="memory")
def strided_access(signals: Signals) -> CheckResult | None:
    """More than a tenth of a D1 read miss per useful flop, beyond one for each line that is needed."""
    misses = m.EXCESS_PER_FLOP.of(signals)
    if misses is None:
        return _lines_again(signals)
    if misses <= STRIDED_ACCESS_MOST_MISSES:
        return None
    severe = misses > STRIDED_ACCESS_CRITICAL
    return CheckResult(
        severity="critical" if severe else "warn",
        cause=f"{misses:.3g} D1 read misses per flop beyond the needed lines: the inner loop strides.",
        action="Interchange the loops to run along memory, or transpose or pack the operand once."
        + _OF * severe,
        metrics={m.EXCESS_PER_FLOP.name: misses},
        # The measured case is one of the severe ones; of a mild one nothing is known.
        expected_gain=STRIDED_ACCESS_GAIN if severe else None,
        evidence=cited(signals, "cachegrind"),
    )


#: Guess: a line of 16 floats that is used in halves misses twice.
MOST_LINE_MISSES, LINE_MISSES_CRITICAL = 3.0, 8.0


def _lines_again(signals: Signals) -> CheckResult | None:
    """A copy has no flops: its lines tell."""
    times = m.MISSES_PER_LINE.of(signals)
    if times is None or times <= MOST_LINE_MISSES:
        return None
    return CheckResult(
        severity="critical" if times > LINE_MISSES_CRITICAL else "warn",
        cause=f"Each line of the arrays misses the first cache {times:.3g} times: it is not used up at once.",
        action="Go in tiles of 8 to 64 rows and columns, so that lines are used whole while they are there.",
        metrics={m.MISSES_PER_LINE.name: times},
        evidence=cited(signals, "cachegrind"),
    )


#: Guess.
LEAST_USE = 0.90
_MEMORY = (strided_access, capacity_miss, conflict_miss, bandwidth_roof, store_traffic, load_pressure)


@micro_tool(source="mca", category="compute")
def port_pressure(signals: Signals) -> CheckResult | None:
    """A port busy in more than 90 % of the cycles, and no finding about memory."""
    use = m.PORT_USE.of(signals)
    if use is None or use <= LEAST_USE or any(check(signals) for check in _MEMORY):
        return None
    fused = m.FMA.of(signals)
    first = "Use fused multiply-adds (-mfma, -ffp-contract=fast), then a" if fused == 0 else "A"
    return CheckResult(
        severity="info",
        cause=f"The busiest port works in {use:.0%} of the cycles: these instructions cannot run faster.",
        action=f"{first} better algorithm: fewer operations per result.",
        metrics={m.PORT_USE.name: use} | ({m.FMA.name: fused} if fused is not None else {}),
        evidence=cited(signals, "mca", "per iteration"),
    )


#: Guess: samples on stack accesses; without samples, the share of the loop's instructions.
REGISTER_SPILL_LEAST_SHARE = 0.05


@micro_tool(source=("objdump", "perf"), category="latency", name="CpuRegisterSpill")
def register_spill(signals: Signals) -> CheckResult | None:
    """Stack loads or stores in an innermost loop that take more than 5 % of the samples."""
    known = together(signals, m.STACK_LOADS, m.STACK_STORES, m.LOOP_INSTRUCTIONS)
    if known is None:
        return None
    loads, stores, instructions = known
    if not loads + stores or not instructions:
        return None
    sampled = m.STACK_SHARE.of(signals)
    share = (loads + stores) / instructions if sampled is None else sampled
    if share <= REGISTER_SPILL_LEAST_SHARE:
        return None
    of = "the loop's instructions (no samples were taken)" if sampled is None else "the samples"
    return CheckResult(
        severity="info" if sampled is None else "warn",
        cause=f"Inner loop with {loads:.0f} stack loads and {stores:.0f} stack stores, {share:.0%} of {of}.",
        action="Use fewer registers at once: a smaller register tile or unroll, or recompute a value.",
        metrics={m.STACK_LOADS.name: loads, m.STACK_STORES.name: stores, "stack_share": share},
        evidence=cited(signals, "objdump", "(%rsp)", "(%rbp)"),
    )


#: Measured: a naive matmul is scalar at every flag of gcc 12 that keeps the order of sums.
LEAST_SCALAR = 1
_WHY = {
    m.MISSED_REDUCTION: (
        "gcc keeps the order of a sum",
        "Sum in several accumulators, or allow other orders with -fassociative-math -fno-signed-zeros"
        " -fno-trapping-math.",
    ),
    m.MISSED_ALIAS: ("gcc must assume that pointers overlap", "Declare them restrict."),
    m.MISSED_STRIDE: (
        "neighbouring iterations do not read neighbouring numbers",
        "Interchange the loops so that the innermost one runs along memory, or pack the operand.",
    ),
    m.MISSED_CALL: ("a call in the loop has no vector form", "Inline it, or use vector mathematics."),
    m.MISSED_CONTROL: ("the loop branches or its end is unknown", "Make it a counted loop without branches."),
    m.MISSED_COST: ("gcc holds vectors for slower here", "Give it longer inner loops, or force omp simd."),
}
_NOT_TRIED = ("gcc's vectoriser did not run", "Compile with -O3 -march=native.")
_UNKNOWN = (
    "gcc gave no reason",
    "Look for a value that one iteration hands to the next, and compute it apart.",
)


@micro_tool(source=("objdump", "optinfo"), category="compute", name="CpuScalarFallback")
def scalar_fallback(signals: Signals) -> CheckResult | None:
    """No packed arithmetic, or in no innermost loop as much of it as of scalar arithmetic."""
    scalar, packed = m.SCALAR.of(signals), m.PACKED.of(signals)
    if scalar is None or packed is None or scalar < LEAST_SCALAR:
        return None
    loops, vector = m.FP_LOOPS.of(signals), m.VECTOR_LOOPS.of(signals)
    if packed and (not loops or vector):
        return None
    counted = [(metric.of(signals) or 0.0, metric) for metric in _WHY]
    most = max(counted, key=lambda one: one[0])
    # Products as vectors and sums as scalars: that is how gcc keeps the order of a sum.
    unsaid = _UNKNOWN if signals.has("optinfo") else _NOT_TRIED
    why, action = _WHY[most[1]] if most[0] else _WHY[m.MISSED_REDUCTION] if packed else unsaid
    return CheckResult(
        severity="warn" if packed else "critical",
        cause=f"{scalar:.0f} scalar and {packed:.0f} vector floating-point instructions: {why}.",
        action=action,
        metrics={m.SCALAR.name: scalar, m.PACKED.name: packed},
        evidence=cited(signals, "optinfo", "missed") or cited(signals, "objdump"),
    )


#: Guess: one in an innermost loop is enough, it takes as long as ten or more other instructions.
LEAST = 1


@micro_tool(source="objdump", category="compute")
def slow_ops(signals: Signals) -> CheckResult | None:
    """A division, square root or call of the mathematics library in an innermost loop."""
    known = together(signals, m.DIVISIONS, m.ROOTS, m.LIBM_CALLS, m.LOOPS)
    if known is None:
        return None
    divisions, roots, libm, loops = known
    if not loops or divisions + roots + libm < LEAST:
        return None
    parts = ((divisions, "division(s)"), (roots, "square root(s)"), (libm, "call(s) of libm"))
    listed = ", ".join(f"{count:.0f} {what}" for count, what in parts if count)
    actions = [
        "Multiply by a reciprocal computed outside the loop." if divisions else "",
        "Hoist or batch the roots, or use an approximate reciprocal root with one Newton step."
        if roots
        else "",
        "Use vector mathematics (-ffast-math with libmvec, or a polynomial)." if libm else "",
    ]
    return CheckResult(
        severity="critical" if libm else "warn",
        cause=f"{listed} in the inner loop.",
        action=" ".join(one for one in actions if one),
        metrics={m.DIVISIONS.name: divisions, m.ROOTS.name: roots, m.LIBM_CALLS.name: libm},
        evidence=cited(signals, "objdump", "div", "sqrt", "call"),
    )


_TOOLS = registered(__name__)


def cpu_tools() -> tuple[MicroTool, ...]:
    """The 15 tools."""
    return _TOOLS
