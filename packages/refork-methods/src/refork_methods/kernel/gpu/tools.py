"""The 15 tools for GPU kernels; importing this registers them.

Source: arXiv 2606.26453 for the list. Names and triggers of the first nine are the paper's; of the next three
the name is; the last three are reconstructed by us. Each says so where it has its thresholds. What to do
is ours unless it says otherwise; expected gains are the paper's means, where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from refork_methods.kernel.gpu.ncu import STALLS
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import CheckResult, MicroTool, Severity, micro_tool, registered


def cited(signals: Signals, *names: str) -> tuple[str, ...]:
    """The lines of an ncu export that these metrics were read from."""
    starts = tuple(f"{name} = " for name in names)
    return tuple(line for line in signals.lines.get("ncu", ()) if line.startswith(starts))


def ncu(signals: Signals, name: str) -> float | None:
    """A metric of Nsight Compute."""
    return signals.get("ncu", name)


def stalls(signals: Signals) -> dict[str, float]:
    """Shares of a warp's time in percent, by reason, of those that were measured."""
    shares = {reason: ncu(signals, f"stall_{reason}_pct") for reason in STALLS}
    return {reason: share for reason, share in shares.items() if share is not None}


def spills(signals: Signals) -> dict[str, float]:
    """Traffic with local memory above 0, by what saw it; empty where there is none or none was looked for."""
    seen = {
        "spill_store_bytes": signals.get("ptxas", "spill_store_bytes"),
        "spill_load_bytes": signals.get("ptxas", "spill_load_bytes"),
        "stl": signals.get("sass", "stl"),
        "ldl": signals.get("sass", "ldl"),
        "local_stores": ncu(signals, "local_stores"),
        "local_loads": ncu(signals, "local_loads"),
    }
    return {name: value for name, value in seen.items() if value}


def registers(signals: Signals) -> float | None:
    """Registers a thread, from the profile, else from the assembler."""
    measured = ncu(signals, "registers_per_thread")
    return signals.get("ptxas", "registers_per_thread") if measured is None else measured


@final
@dataclass(frozen=True, slots=True)
class Hit:
    """Rounds in which a tool fired, their share with more than 1.5 times the speed, and the mean gain."""

    fires: int
    share: float
    gain: float

    @property
    def expected(self) -> tuple[float, float]:
        """The mean gain, as both ends of a range."""
        return self.gain, self.gain

    @property
    def line(self) -> str:
        """Whose figure it is."""
        return (
            f"Mean gain {self.gain:.2f}x over {self.fires} rounds, {self.share:.1%} of them above 1.5x "
            "(arXiv 2606.26453, A100)."
        )


HITS: dict[str, Hit] = {
    "RegisterSpill": Hit(44, 0.182, 1.44),
    "OccupancyLimiter": Hit(241, 0.133, 1.48),
    "WarpStall": Hit(318, 0.110, 1.41),
    "SharedMemTiling": Hit(172, 0.093, 1.42),
    "LaunchOverhead": Hit(141, 0.085, 1.32),
    "TensorCore": Hit(835, 0.081, 1.31),
    "MemoryCoalescing": Hit(439, 0.059, 1.24),
    "Vectorization": Hit(595, 0.040, 1.16),
}


# Tool and trigger are our reconstruction: the paper (arXiv 2606.26453) has 15 tools, of which we know 13.
#: Extra passes per access, and from where on it is critical.
CONFLICTS, BANK_CONFLICT_CRITICAL = 1.0, 7.0


@micro_tool(source="ncu", category="latency", name="gpu.BankConflict")
def bank_conflict(signals: Signals) -> CheckResult | None:
    """Loads and stores together."""
    extra = signals.get("ncu", "conflicts_per_access")
    if extra is None or extra <= CONFLICTS:
        return None
    names = ("load_conflicts", "store_conflicts", "shared_loads", "shared_stores")
    return CheckResult(
        severity="critical" if extra > BANK_CONFLICT_CRITICAL else "warn",
        cause=f"An access to shared memory takes {1 + extra:.3g} passes instead of 1: its threads meet in "
        "the same banks.",
        action="Pad the rows of the shared array by one element, or swizzle its columns by the row.",
        metrics={"conflicts_per_access": extra},
        evidence=cited(signals, *names),
    )


#: Percent of a warp's time (arXiv 2606.26453).
WAITING = 30.0
#: From here on it is critical (ours).
BARRIER_STALL_CRITICAL = 60.0


@micro_tool(source="ncu", category="latency", name="gpu.BarrierStall")
def barrier_stall(signals: Signals) -> CheckResult | None:
    """The share of time at barriers, and how many the code has where it is known."""
    share = stalls(signals).get("barrier")
    if share is None or share <= WAITING:
        return None
    barriers = signals.get("sass", "bar")
    known = "" if barriers is None else f", at {barriers:.0f} places of the code"
    return CheckResult(
        severity="critical" if share > BARRIER_STALL_CRITICAL else "warn",
        cause=f"Warps wait at barriers {share:.0f} % of their time{known}.",
        action="Work within warps (shuffles, __syncwarp), load into a second buffer while the first is used, "
        "or make blocks smaller.",
        metrics={"stall_barrier_pct": share} | ({} if barriers is None else {"bar": barriers}),
        evidence=cited(signals, "stall_barrier_cycles", "stall_barrier_pct", "warp_cycles_per_issue"),
    )


#: Percent of DRAM peak (arXiv 2606.26453).
FULL = 80.0


@micro_tool(source="ncu", category="memory", bounds=("memory",), name="gpu.HighDRAMThroughput")
def high_dram_throughput(signals: Signals) -> CheckResult | None:
    """Nothing but fewer bytes makes it faster."""
    share = signals.get("ncu", "dram_pct")
    if share is None or share <= FULL:
        return None
    read, written = signals.get("ncu", "dram_read_bytes"), signals.get("ncu", "dram_write_bytes")
    moved = "" if read is None or written is None else f" ({read:.3g} bytes read, {written:.3g} written)"
    return CheckResult(
        severity="info",
        cause=f"DRAM runs at {share:.0f} % of its peak{moved}: the kernel is at the roof.",
        action="Move fewer bytes: fuse it with its neighbours, use a narrower type, do not write what can be "
        "computed again.",
        metrics={"dram_pct": share},
        evidence=cited(signals, "dram_pct", "dram_read_bytes", "dram_write_bytes"),
    )


#: Registers a thread (arXiv 2606.26453).
MANY = 96
#: Registers of an SM and its warp slots on A100 and H100, for the number of warps in the cause.
FILE, SLOTS, WARP = 65536, 64, 32


@micro_tool(source=("ncu", "ptxas"), category="occupancy", name="gpu.HighRegisterUsage")
def high_register_usage(signals: Signals) -> CheckResult | None:
    """More registers, fewer warps to hide latency with."""
    used = registers(signals)
    if used is None or used <= MANY:
        return None
    warps = int(FILE // (used * WARP))
    return CheckResult(
        severity="warn",
        cause=f"A thread takes {used:.0f} registers: an SM of {FILE} holds at most {warps} of {SLOTS} warps.",
        action="Set __launch_bounds__, shrink the tile of a thread, or split the kernel; time it, for tiled "
        "matrix kernels want many registers.",
        metrics={"registers_per_thread": used},
        evidence=cited(signals, "registers_per_thread") or signals.lines.get("ptxas", ()),
    )


#: Percent (arXiv 2606.26453); of launching and running together: our reading.
MUCH = 20.0
#: From here on it is critical (ours).
MOST = 50.0


@micro_tool(source="nsys", category="launch", name="gpu.LaunchOverhead")
def launch_overhead(signals: Signals) -> CheckResult | None:
    """Time in launching calls over that time and the kernels' own."""
    share = signals.get("nsys", "launch_pct")
    if share is None or share <= MUCH:
        return None
    metrics = {"launch_pct": share}
    detail = ""
    counted = signals.all("nsys", "launches", "launches_s", "kernel_runs", "kernels_s")
    if counted is not None:
        launches, launching, runs, running = counted
        metrics |= {"launches": launches, "launch_us": 1e6 * launching / launches}
        metrics["kernel_us"] = 1e6 * running / runs
        detail = (
            f" {launches:.0f} launches take {metrics['launch_us']:.3g} us each, "
            f"a kernel runs {metrics['kernel_us']:.3g} us."
        )
    known = HITS["LaunchOverhead"]
    return CheckResult(
        severity="critical" if share > MOST else "warn",
        cause=f"Launching is {share:.0f} % of launching and running.{detail}",
        action="Fuse small kernels, record them as a CUDA graph, or keep one persistent kernel running.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(*signals.lines.get("nsys", ()), known.line),
    )


#: Percent of sectors found in L1, and of a warp's time (arXiv 2606.26453).
L1_HIT, MEMORY_COALESCING_STALLED = 30.0, 40.0
#: Percent of a warp's time from which it is critical, and which stalls are of memory: ours.
MEMORY_COALESCING_CRITICAL = 60.0
OF_MEMORY = ("long_scoreboard", "lg_throttle")


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.MemoryCoalescing")
def memory_coalescing(signals: Signals) -> CheckResult | None:
    """Neighbouring threads read far apart, or nothing is read twice while it is in L1."""
    hit, shares = signals.get("ncu", "l1_hit_pct"), stalls(signals)
    measured = [shares[one] for one in OF_MEMORY if one in shares]
    if hit is None or not measured:
        return None
    waiting = sum(measured)
    if hit >= L1_HIT or waiting <= MEMORY_COALESCING_STALLED:
        return None
    known = HITS["MemoryCoalescing"]
    return CheckResult(
        severity="critical" if waiting > MEMORY_COALESCING_CRITICAL else "warn",
        cause=f"Only {hit:.0f} % of sectors are found in L1, and warps wait for memory {waiting:.0f} % of "
        "their time.",
        action="Let neighbouring threads read neighbouring addresses; stage what is read in another order "
        "through shared memory.",
        metrics={"l1_hit_pct": hit, "memory_stall_pct": waiting},
        expected_gain=known.expected,
        evidence=(*cited(signals, "l1_hit_pct", *(f"stall_{one}_cycles" for one in OF_MEMORY)), known.line),
    )


#: Percent of the most warps (arXiv 2606.26453).
LOW = 50.0
#: Twice that far from what the launch allows, the limits are not what keeps warps away (ours).
FAR = 2.0
#: An example that third parties tell of the paper; no gain to be expected of every kernel.
EXAMPLE = "Told of the paper by others: 3 to 5 times for a reduction that shared memory capped at 2 blocks."
#: Limits by name: what there is too much of, and what to do about it (ours).
LIMITS: dict[str, tuple[str, str]] = {
    "blocks_by_shared": ("shared memory", "Reduce within warps (shuffles), shrink the tile or its type."),
    "blocks_by_registers": ("registers", "Set launch bounds, shrink the tile, or split the kernel."),
    "blocks_by_warps": ("warps of a block", "Choose a block size that divides the warp slots of an SM."),
    "blocks_by_slots": ("blocks", "Make blocks larger: the slots for blocks are used up."),
}


@micro_tool(source="ncu", category="occupancy", name="gpu.OccupancyLimiter")
def occupancy_limiter(signals: Signals) -> CheckResult | None:
    """The smallest limit is named; where none binds, the launch is too small or uneven."""
    share = signals.get("ncu", "occupancy_pct")
    if share is None or share >= LOW:
        return None
    allowed = signals.get("ncu", "occupancy_limit_pct")
    measured = {name: signals.get("ncu", name) for name in LIMITS}
    limits = {name: value for name, value in measured.items() if value is not None}
    metrics = {"occupancy_pct": share, **limits}
    example: tuple[str, ...] = ()
    why = "The export does not say what limits it."
    action = "Profile with --section Occupancy to see whether registers, shared memory or blocks limit it."
    if allowed is not None and allowed > FAR * share:
        metrics["occupancy_limit_pct"] = allowed
        why = f"The launch would allow {allowed:.0f} %: there are too few blocks, or they end unevenly."
        action = "Launch more or smaller blocks, and give each the same work."
    elif limits:
        name = min(limits, key=lambda one: (limits[one], list(LIMITS).index(one)))
        what, action = LIMITS[name]
        why = f"The limit is {what}: {limits[name]:.0f} blocks on an SM."
        example = (EXAMPLE,) if name == "blocks_by_shared" else ()
    known = HITS["OccupancyLimiter"]
    return CheckResult(
        severity="critical" if share < LOW / 2 else "warn",
        cause=f"Only {share:.0f} % of the warp slots are in use. {why}",
        action=action,
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(*cited(signals, "occupancy_pct", "occupancy_limit_pct", *LIMITS), *example, known.line),
    )


#: Case A: percent stalled on memory, and of both peaks (arXiv 2606.26453).
REGISTER_SPILL_STALLED, IDLE = 15.0, 50.0
#: Case B: percent of memory peak (arXiv 2606.26453; the rest of its condition is not known to us).
BUSY = 60.0


def _case(signals: Signals) -> tuple[Severity, str] | None:
    """How grave, and what spills cost; None where a profile shows that they cost little.

    The paper has a third case that we do not know; ours: no profile was taken, so that the code alone speaks.
    """
    if not signals.has("ncu"):
        return "warn", "what they cost was not measured"
    waiting = stalls(signals).get("long_scoreboard")
    shares = signals.all("ncu", "compute_pct", "memory_pct")
    if shares is not None and waiting is not None and waiting > REGISTER_SPILL_STALLED and max(shares) < IDLE:
        return "critical", f"warps wait for memory {waiting:.0f} % of their time while both peaks are far"
    memory = signals.get("ncu", "memory_pct")
    if memory is not None and memory > BUSY:
        return "critical", f"they add to memory traffic at {memory:.0f} % of its peak"
    return None


@micro_tool(source=("sass", "ptxas", "ncu"), category="latency", name="gpu.RegisterSpill")
def register_spill(signals: Signals) -> CheckResult | None:
    """Spills in the code, the assembler's report or the profile, if they cost."""
    seen, case = spills(signals), _case(signals)
    if not seen or case is None:
        return None
    severity, cost = case
    known = HITS["RegisterSpill"]
    listed = ", ".join(f"{name} {value:.0f}" for name, value in seen.items())
    return CheckResult(
        severity=severity,
        cause=f"Registers spill to local memory ({listed}); {cost}.",
        action="Shrink the tile of a thread or unroll less, compute again instead of keeping, or relax "
        "__launch_bounds__ and maxrregcount.",
        metrics=seen,
        expected_gain=known.expected,
        evidence=(
            *(line for line in signals.lines.get("sass", ()) if "LDL" in line or "STL" in line),
            *(line for line in signals.lines.get("ptxas", ()) if "spill" in line),
            *cited(signals, "local_loads", "local_stores", "stall_long_scoreboard_cycles", "memory_pct"),
            known.line,
        ),
    )


# That the paper has such a tool is reported by third parties only; its trigger is ours: the code has scalar
# products, no matrix instruction, and matrix instructions were meant (see gpu.cuda_code).


@micro_tool(source="sass", category="compute", bounds=("compute", "latency"), name="gpu.ScalarFallback")
def scalar_fallback(signals: Signals) -> CheckResult | None:
    """The compiler or a library fell back to scalar arithmetic without a word."""
    counts = signals.all("sass", "matrix_meant", "tensor", "ffma", "fmul")
    if counts is None:
        return None
    meant, matrix, multiply_adds, products = counts
    if not meant or matrix or not multiply_adds + products:
        return None
    return CheckResult(
        severity="critical",
        cause=f"Matrix instructions are meant, and the code has none: {multiply_adds:.0f} FFMA and "
        f"{products:.0f} FMUL do the work.",
        action="Check what the matrix path asks for: the target architecture, types, layouts, and shapes "
        "that are multiples of the fragment's.",
        metrics={"tensor": matrix, "ffma": multiply_adds, "fmul": products},
        evidence=tuple(line for line in signals.lines.get("sass", ()) if "FFMA" in line),
    )


#: Times a byte is loaded, and percent of DRAM peak (arXiv 2606.26453).
REUSED, DRAM = 4.0, 40.0
#: Percent of sectors found in L2 that we take for "high" (ours).
L2_HIT = 70.0


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.SharedMemTiling")
def shared_mem_tiling(signals: Signals) -> CheckResult | None:
    """Reuse: bytes loaded through L1 per byte read from DRAM (our measure; unused bytes of sectors count).

    The paper's condition does not say how its parts bind; ours: no shared memory, and one of both signs.
    """
    shared = signals.get("ncu", "shared_bytes")
    if shared is None or shared > 0:
        return None
    reuse = signals.get("ncu", "reuse")
    l2, dram = signals.get("ncu", "l2_hit_pct"), signals.get("ncu", "dram_pct")
    metrics: dict[str, float] = {"shared_bytes": shared}
    if reuse is not None and reuse > REUSED:
        metrics["reuse"] = reuse
        why = f"Each byte from DRAM is loaded {reuse:.3g} times"
    elif l2 is not None and dram is not None and l2 > L2_HIT and dram > DRAM:
        metrics |= {"l2_hit_pct": l2, "dram_pct": dram}
        why = f"L2 answers {l2:.0f} % of loads while DRAM is at {dram:.0f} % of its peak"
    else:
        return None
    known = HITS["SharedMemTiling"]
    return CheckResult(
        severity="warn",
        cause=f"{why}, and no shared memory is used.",
        action="Load a tile into shared memory once, synchronise, and let all threads of the block use it.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(
            *cited(
                signals, "load_sectors", "dram_read_bytes", "l2_hit_pct", "dram_pct", "shared_static_bytes"
            ),
            known.line,
        ),
    )


#: Percent of the tensor pipe's peak (the tool's name is the paper's, arXiv 2606.26453; the trigger ours).
UNUSED = 10.0
#: Share of multiply-adds in single-precision arithmetic from which we take it for matrix work (ours).
MATRIX = 0.8


def _multiply_adds(signals: Signals) -> float | None:
    """Their share, in what ran where it was counted, else in the code; None where there is no arithmetic."""
    counted = signals.all("ncu", "ffma_threads", "fmul_threads", "fadd_threads")
    counted = counted or signals.all("sass", "ffma", "fmul", "fadd")
    return counted[0] / sum(counted) if counted is not None and sum(counted) > 0 else None


@micro_tool(source="ncu", category="compute", bounds=("compute", "latency"), name="gpu.TensorCore")
def tensor_core(signals: Signals) -> CheckResult | None:
    """Multiply-adds by the scalar pipes while the tensor pipe is idle."""
    used, share = signals.get("ncu", "tensor_pct"), _multiply_adds(signals)
    if used is None or share is None or used >= UNUSED or share < MATRIX:
        return None
    known = HITS["TensorCore"]
    return CheckResult(
        severity="warn",
        cause=f"{share:.0%} of single-precision arithmetic is multiply-adds, and the tensor pipe is at "
        f"{used:.1f} %.",
        action="If this is matrix work and TF32, BF16 or FP16 are exact enough: use WMMA, WGMMA or CuTe, or "
        "call cuBLAS.",
        metrics={"tensor_pct": used, "multiply_add_share": share},
        expected_gain=known.expected,
        evidence=(*cited(signals, "tensor_pct", "ffma_threads", "fmul_threads", "fadd_threads"), known.line),
    )


#: Sectors as a multiple of the ideal (arXiv 2606.26453); what the ideal is, is ours.
EXCESS = 1.2
#: From here on it is critical (ours).
UNCOALESCED_CRITICAL = 4.0
#: Bytes of a sector, and sectors of a warp's widest access (32 threads of 16 bytes).
SECTOR, WIDEST = 32.0, 16.0


def _excess(signals: Signals, side: str) -> tuple[float, str] | None:
    """Times the ideal for loads or stores, and how it is known: used bytes, else the widest access."""
    used = signals.get("ncu", f"{side}_bytes_per_sector")
    if used is not None and used > 0:
        return SECTOR / used, f"{used:.3g} of {SECTOR:.0f} bytes of a sector are used"
    asked = signals.get("ncu", f"{side}_sectors_per_request")
    if asked is None:
        return None
    return asked / WIDEST, f"{asked:.3g} sectors per request, {WIDEST:.0f} at most if they were neighbours"


@micro_tool(source="ncu", category="memory", bounds=("memory", "latency"), name="gpu.Uncoalesced")
def uncoalesced(signals: Signals) -> CheckResult | None:
    """Loads and stores apart where they were measured, else both together as ncu derives it."""
    sides = {f"{side}s": _excess(signals, side) for side in ("load", "store")}
    known = {which: found for which, found in sides.items() if found is not None}
    both = signals.get("ncu", "sector_excess")
    if both is not None:
        known["accesses"] = (both, "so the addresses that ran tell")
    bad = {which: found for which, found in known.items() if found[0] > EXCESS}
    if not bad:
        return None
    which = max(bad, key=lambda one: (one in sides, bad[one][0]))
    excess, detail = bad[which]
    names = [
        f"{one}_{what}" for one in ("load", "store") for what in ("sectors", "requests", "bytes_per_sector")
    ]
    return CheckResult(
        severity="critical" if excess > UNCOALESCED_CRITICAL else "warn",
        cause=f"Global {which} move {excess:.3g} times the sectors they need: {detail}.",
        action="Let threads of a warp touch neighbouring addresses: transpose through a padded tile in "
        "shared memory, or turn arrays of structures into structures of arrays.",
        metrics={"sector_excess": excess},
        evidence=cited(signals, *names, "l2_sectors", "l2_ideal_sectors"),
    )


#: Share of loads of 32 bits or less (the tool's name is the paper's, arXiv 2606.26453; the trigger ours).
NARROW = 0.5
#: With loads of 4, 8 and 16 bytes, a mean below this means that more than half are of 4.
MEAN_BYTES = 6.0
#: Loads in the code from which a share says something (ours).
FEW = 2


def _narrow(signals: Signals) -> tuple[dict[str, float], str] | None:
    """What shows that most loads are narrow: the code, else bytes per thread and request."""
    widths = signals.all("sass", "ldg_32", "ldg_64", "ldg_128", "ldg_256")
    if widths is not None:
        share = widths[0] / sum(widths) if sum(widths) >= FEW else 0.0
        if share <= NARROW:
            return None
        return {"narrow_loads": share}, f"{widths[0]:.0f} of {sum(widths):.0f} global loads in the code"
    parts = signals.all("ncu", "load_sectors_per_request", "load_bytes_per_sector", "active_threads")
    if parts is None or parts[2] <= 0 or (mean := parts[0] * parts[1] / parts[2]) >= MEAN_BYTES:
        return None
    return {
        "bytes_per_load": mean
    }, f"Most global loads (a thread gets {mean:.2g} bytes from each, on average)"


@micro_tool(source=("sass", "ncu"), category="memory", bounds=("memory", "latency"), name="gpu.Vectorization")
def vectorization(signals: Signals) -> CheckResult | None:
    """More than half of the loads bring 32 bits or less to a thread."""
    found = _narrow(signals)
    if found is None:
        return None
    metrics, what = found
    known = HITS["Vectorization"]
    return CheckResult(
        severity="info",
        cause=f"{what} bring 32 bits or less.",
        action="Load 128 bits at once (float4, int4) from pointers aligned to 16 bytes.",
        metrics=metrics,
        expected_gain=known.expected,
        evidence=(
            *(line for line in signals.lines.get("sass", ()) if "LDG" in line),
            *cited(signals, "load_sectors", "load_requests", "load_bytes_per_sector"),
            known.line,
        ),
    )


# Tool and trigger are our reconstruction: the paper (arXiv 2606.26453) has 15 tools, of which we know 13.
#: Threads of a warp's 32, and below which it is critical.
ACTIVE, WARP_DIVERGENCE_CRITICAL, WARP = 24.0, 16.0, 32


@micro_tool(source="ncu", category="latency", bounds=("compute", "latency"), name="gpu.WarpDivergence")
def warp_divergence(signals: Signals) -> CheckResult | None:
    """Threads went different ways, or the block has fewer than a warp's."""
    active = signals.get("ncu", "active_threads")
    if active is None or active >= ACTIVE:
        return None
    branches = signals.get("sass", "branches")
    return CheckResult(
        severity="critical" if active < WARP_DIVERGENCE_CRITICAL else "warn",
        cause=f"{active:.1f} of {WARP} threads take part in an instruction, on average: "
        f"{1 - active / WARP:.0%} of the lanes are idle.",
        action="Branch on what a whole warp shares, turn short branches into selections, or sort the work so "
        "that neighbours do the same; make blocks a multiple of 32 threads.",
        metrics={"active_threads": active} | ({} if branches is None else {"branches": branches}),
        evidence=cited(signals, "active_threads"),
    )


#: Percent of a warp's time (arXiv 2606.26453).
DOMINANT, WARP_STALL_CRITICAL = 40.0, 60.0
#: What to do, by reason: the first three after the paper, the rest ours.
ACTIONS = {
    "long_scoreboard": "Tile through shared memory, and load the next tile before this one is used.",
    "short_scoreboard": "Pad or swizzle shared arrays, and take special functions out of the loop.",
    "barrier": "Synchronise less often: work within warps, or use two buffers in turn.",
    "lg_throttle": "Issue fewer, wider accesses: 128-bit loads, values kept in registers.",
    "mio_throttle": "Issue fewer accesses to shared memory: wider ones, or a larger tile in registers.",
    "math_pipe_throttle": "Use a cheaper operation or another pipe (tensor cores, a narrower type).",
    "wait": "Give each thread several independent results to work on.",
    "no_instruction": "Unroll less: the code does not fit the instruction cache.",
    "imc_miss": "Index constants by what all threads share, or put them into shared memory.",
}
OTHERWISE = "Give the scheduler more to choose from: more warps, or more independent work in each."


@micro_tool(source="ncu", category="latency", name="gpu.WarpStall")
def warp_stall(signals: Signals) -> CheckResult | None:
    """The largest share, the warp's own turns left out."""
    shares = stalls(signals)
    if not shares:
        return None
    reason = max(shares, key=lambda one: shares[one])
    share = shares[reason]
    if share <= DOMINANT:
        return None
    known = HITS["WarpStall"]
    return CheckResult(
        severity="critical" if share > WARP_STALL_CRITICAL else "warn",
        cause=f"For {share:.0f} % of its time a warp {STALLS[reason]} ({reason})."
        if STALLS[reason].startswith("waits")
        else f"For {share:.0f} % of a warp's time: {STALLS[reason]} ({reason}).",
        action=ACTIONS.get(reason, OTHERWISE),
        metrics={f"stall_{reason}_pct": share},
        expected_gain=known.expected,
        evidence=(
            *cited(signals, f"stall_{reason}_cycles", f"stall_{reason}_pct", "warp_cycles_per_issue"),
            known.line,
        ),
    )


_TOOLS = registered(__name__)


def gpu_tools() -> tuple[MicroTool, ...]:
    """All 15."""
    return _TOOLS
