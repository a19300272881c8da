"""Nsight Compute's CSV exports, taken on any machine, as signals: no GPU and no ncu is needed here.

``ncu --import report.ncu-rep --csv --page raw`` gives one row a launch and a row of units; ``--page details``
(and ``ncu --metrics ... --csv``) one row a metric. Both are read. What ncu could not measure is absent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork_methods.kernel.gpu.profiler_exports import Table, Unit, factor, named, number, tables, text_of
from refork_methods.kernel.signals import Signals


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """One row: our name (with its unit), the unit, raw names, its label on the details page, the meaning."""

    name: str
    unit: Unit
    raw: tuple[str, ...]
    label: str
    meaning: str


#: Why a warp cannot issue; each is a share of the time between two of its instructions.
STALLS: dict[str, str] = {
    "long_scoreboard": "waits for global or local memory",
    "lg_throttle": "queue of global and local accesses is full",
    "short_scoreboard": "waits for shared memory or special functions",
    "mio_throttle": "queue of shared memory and special functions is full",
    "tex_throttle": "queue of the texture unit is full",
    "math_pipe_throttle": "arithmetic pipe is busy",
    "barrier": "waits for other warps at a barrier",
    "membar": "waits at a memory fence",
    "wait": "waits a fixed latency of the last instruction",
    "branch_resolving": "waits for the target of a branch",
    "no_instruction": "waits for instructions to be fetched",
    "imc_miss": "missed in the cache of constants",
    "drain": "waits at exit for stores to drain",
    "dispatch_stall": "dispatcher holds the issue back",
    "sleeping": "sleeps on purpose",
    "misc": "another reason",
}

_PEAK = ".avg.pct_of_peak_sustained_elapsed"
_ACTIVE = ".avg.pct_of_peak_sustained_active"
_GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"


def _row(name: str, unit: Unit, raw: str, label: str, meaning: str) -> Metric:
    return Metric(name, unit, tuple(raw.split()), label, meaning)


def _side(name: str, operation: str, meaning: str) -> tuple[Metric, ...]:
    """Sectors, requests and bytes per sector of global loads or stores."""
    average = f"l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{operation}.ratio"
    used = f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{operation}.ratio"
    return (
        _row(f"{name}_sectors", "", _GLOBAL.format("sectors", operation), "", f"32-byte sectors {meaning}"),
        _row(
            f"{name}_requests", "", _GLOBAL.format("requests", operation), "", f"requests of warps {meaning}"
        ),
        _row(f"{name}_sectors_per_request", "", average, "", f"sectors per request {meaning}"),
        _row(
            f"{name}_bytes_per_sector", "byte", used, "", f"used bytes of each sector {meaning}, at most 32"
        ),
    )


def _stall(reason: str, meaning: str) -> tuple[Metric, Metric]:
    label = "Stall " + reason.replace("_", " ").title().replace("Mio", "MIO").replace("Imc", "IMC").replace(
        "Lg ", "LG "
    )
    ratio = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    share = f"smsp__warp_issue_stalled_{reason}_per_warp_active.pct"
    return (
        _row(f"stall_{reason}_cycles", "", ratio, label, f"cycles per instruction: {meaning}"),
        _row(f"stall_{reason}_pct", "%", share, "", f"share of a warp's time: {meaning}"),
    )


METRICS: tuple[Metric, ...] = (
    _row("duration_s", "s", "gpu__time_duration.sum gpu__time_duration.avg", "Duration", "time on the GPU"),
    _row("compute_pct", "%", f"sm__throughput{_PEAK}", "Compute (SM) Throughput", "share of compute peak"),
    _row("memory_pct", "%", f"gpu__compute_memory_throughput{_PEAK}", "Memory Throughput",
         "share of the peak of the busiest part of the memory system"),
    _row("dram_pct", "%", f"gpu__dram_throughput{_PEAK} dram__throughput{_PEAK}", "DRAM Throughput",
         "share of DRAM peak"),
    _row("dram_read_bytes", "byte", "dram__bytes_read.sum", "", "bytes read from DRAM"),
    _row("dram_write_bytes", "byte", "dram__bytes_write.sum", "", "bytes written to DRAM"),
    _row("l1_hit_pct", "%", "l1tex__t_sector_hit_rate.pct", "L1/TEX Hit Rate", "sectors found in L1"),
    _row("l2_hit_pct", "%", "lts__t_sector_hit_rate.pct", "L2 Hit Rate", "sectors found in L2"),
    _row("occupancy_pct", "%", f"sm__warps_active{_ACTIVE}", "Achieved Occupancy", "warp slots in use"),
    _row("occupancy_limit_pct", "%", "sm__maximum_warps_per_active_cycle_pct", "Theoretical Occupancy",
         "resident warps that the launch allows"),
    _row("blocks_by_registers", "", "launch__occupancy_limit_registers", "Block Limit Registers",
         "blocks per SM that registers allow"),
    _row("blocks_by_shared", "", "launch__occupancy_limit_shared_mem", "Block Limit Shared Mem",
         "blocks per SM that shared memory allows"),
    _row("blocks_by_warps", "", "launch__occupancy_limit_warps", "Block Limit Warps",
         "blocks per SM that warp slots allow"),
    _row("blocks_by_slots", "", "launch__occupancy_limit_blocks", "Block Limit SM",
         "blocks per SM that block slots allow"),
    _row("registers_per_thread", "", "launch__registers_per_thread", "Registers Per Thread", "registers"),
    _row("shared_static_bytes", "byte", "launch__shared_mem_per_block_static",
         "Static Shared Memory Per Block", "shared memory that the source declares"),
    _row("shared_dynamic_bytes", "byte", "launch__shared_mem_per_block_dynamic",
         "Dynamic Shared Memory Per Block", "shared memory that the launch adds"),
    _row("block_threads", "", "launch__block_size", "Block Size", "threads in a block"),
    _row("grid_blocks", "", "launch__grid_size", "Grid Size", "blocks in the grid"),
    _row("warp_cycles_per_issue", "", "smsp__average_warp_latency_per_inst_issued.ratio",
         "Warp Cycles Per Issued Instruction", "cycles between two instructions of a warp"),
    _row("active_threads", "", "smsp__thread_inst_executed_per_inst_executed.ratio",
         "Avg. Active Threads Per Warp", "threads of 32 that take part in an instruction"),
    _row("tensor_pct", "%",
         f"sm__pipe_tensor_cycles_active{_ACTIVE} sm__inst_executed_pipe_tensor{_ACTIVE} "
         f"sm__pipe_tensor_op_hmma_cycles_active{_ACTIVE}", "", "share of the tensor pipe's peak"),
    _row("ffma_threads", "", "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", "", "FP32 multiply-adds"),
    _row("fmul_threads", "", "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", "", "FP32 products"),
    _row("fadd_threads", "", "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", "", "FP32 sums"),
    *_side("load", "ld", "of global loads"),
    *_side("store", "st", "of global stores"),
    _row("l2_sectors", "", "memory_l2_theoretical_sectors_global", "", "sectors that accesses ask of L2"),
    _row("l2_ideal_sectors", "", "memory_l2_theoretical_sectors_global_ideal", "",
         "sectors that they would ask if neighbours read neighbours"),
    _row("local_loads", "", "smsp__inst_executed_op_local_ld.sum smsp__sass_inst_executed_op_local_ld.sum",
         "",          "loads of local memory"),
    _row("local_stores", "", "smsp__inst_executed_op_local_st.sum smsp__sass_inst_executed_op_local_st.sum",
         "",          "stores of local memory"),
    _row("shared_loads", "", "smsp__inst_executed_op_shared_ld.sum", "", "shared loads of warps"),
    _row("shared_stores", "", "smsp__inst_executed_op_shared_st.sum", "", "shared stores of warps"),
    _row("load_conflicts", "", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "",
         "extra passes of shared loads"),
    _row("store_conflicts", "", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "",
         "extra passes of shared stores"),
    *(row for reason, meaning in STALLS.items() for row in _stall(reason, meaning)),
)  # fmt: skip

BY_RAW: Mapping[str, tuple[int, Metric]] = {
    raw: (place, metric) for metric in METRICS for place, raw in enumerate(metric.raw)
}
BY_LABEL: Mapping[str, Metric] = {metric.label: metric for metric in METRICS if metric.label}


def derived(measured: Mapping[str, float]) -> dict[str, float]:
    """What follows from the measured values; nothing where a part is missing or a divisor is 0.

    Ratios of sectors asked of L2 to the ideal, of extra passes to accesses of shared memory, of bytes loaded
    through L1 to bytes read from DRAM; stalls in percent of a warp's time; a block's shared memory in all.
    """
    more: dict[str, float] = {}

    def ratio(name: str, over: tuple[str, ...], under: tuple[str, ...], scale: float = 1.0) -> None:
        if name in measured or any(one not in measured for one in (*over, *under)):
            return
        divisor = sum(measured[one] for one in under)
        if divisor > 0:
            more[name] = scale * sum(measured[one] for one in over) / divisor

    ratio("sector_excess", ("l2_sectors",), ("l2_ideal_sectors",))
    ratio("conflicts_per_access", ("load_conflicts", "store_conflicts"), ("shared_loads", "shared_stores"))
    ratio("reuse", ("load_sectors",), ("dram_read_bytes",), 32.0)
    for side in ("load", "store"):
        ratio(f"{side}_sectors_per_request", (f"{side}_sectors",), (f"{side}_requests",))
    for reason in STALLS:
        ratio(f"stall_{reason}_pct", (f"stall_{reason}_cycles",), ("warp_cycles_per_issue",), 100.0)
    # A block has both kinds: what the source declares and what the launch adds.
    if "shared_static_bytes" in measured and "shared_dynamic_bytes" in measured:
        more["shared_bytes"] = measured["shared_static_bytes"] + measured["shared_dynamic_bytes"]
    return more


_KERNEL, _ID = "Kernel Name", "ID"
_LONG = ("Metric Name", "Metric Unit", "Metric Value")


@final
@dataclass(slots=True)
class Launch:
    """One profiled launch: its number, its kernel, measured values by our names, and the lines to cite."""

    number: str
    kernel: str
    values: dict[str, float] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    _rank: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, unit: str, value: str, where: str) -> None:
        """One cell, if it is a known metric and was measured; of a metric the first raw name counts."""
        rank, metric = BY_RAW.get(name, (len(BY_RAW), BY_LABEL.get(name)))
        if metric is None:
            return
        measured = number(value, where=where)
        if measured is None or self._rank.get(metric.name, len(BY_RAW) + 1) <= rank:
            return
        times = factor(unit, metric.unit, where=where)
        # Labels are shared by several metrics and told apart by their units; raw names are not.
        if times is None and name in BY_RAW:
            wanted = f"not in {metric.unit or 'counts'!r}"
            hint = "export with --print-units base"
            raise BadInput(f"{name} in {unit or 'no unit'!r}, {wanted}", where=where, hint=hint)
        if times is not None:
            self._rank[metric.name] = rank
            self.values[metric.name] = measured * times
            shown = f"{name} {value} {unit}".rstrip()
            self.lines[metric.name] = f"{metric.name} = {measured * times:.9g} ({shown})"


def _cells(table: Table, name: str) -> Iterator[tuple[str, str, str, str, str, str]]:
    """Launch, kernel, metric, unit, value and place of each cell, of either form."""
    if set(_LONG) <= set(table.header):
        for place, row in table.rows:
            title, unit, value = (row[column] for column in _LONG)
            yield row[_ID], row[_KERNEL], title.strip(), unit, value, f"{name}, line {place}, {title}"
        return
    (first, units), *rows = table.rows or [(0, {_ID: "?"})]
    if units[_ID].strip():
        where, hint = f"{name}, line {first}", "ncu --csv --page raw prints it"
        raise BadInput("no row of units below the header", where=where, hint=hint)
    for place, row in rows:
        for column, value in row.items():
            # Sizes of block and grid are printed twice: as (x, y, z), and as metrics.
            if not value.startswith("("):
                yield row[_ID], row[_KERNEL], column, units[column], value, f"{name}, line {place}, {column}"


def launches(text: str, *, name: str = "ncu export") -> list[Launch]:
    """Every launch of an export, in its order.

    Raises:
        BadInput: there is no table of ncu, or it is damaged; with the line.
    """
    found: dict[tuple[int, str], Launch] = {}
    for at, table in enumerate(tables(text, (_ID, _KERNEL), name=name, upto=_LONG[-1])):
        if "Metric Name" in table.header and "Metric Value" not in table.header:
            raise BadInput("a summary over launches", where=name, hint="export without --print-summary")
        for which, kernel, metric, unit, value, where in _cells(table, name):
            found.setdefault((at, which), Launch(which, kernel)).take(metric, unit, value, where)
    if not found:
        hint = "ncu --import FILE.ncu-rep --csv --page raw > FILE.csv"
        raise BadInput("no launch of a kernel in it", where=name, hint=hint)
    for one in found.values():
        one.values |= derived(one.values)
    return list(found.values())


def ncu_signals(text: str, kernel: str | None = None, *, name: str = "ncu export") -> Signals:
    """Signals of a kernel's last launch: the one named (whole, or a part of one name), or the only one.

    Raises:
        BadInput: a damaged export, no such kernel, or nothing in it that is read.
    """
    known = launches(text, name=name)
    chosen = named(kernel, (one.kernel for one in known), name)
    launch = [one for one in known if one.kernel == chosen][-1]
    if not launch.values:
        raise BadInput(
            f"no known metric of {launch.kernel}",
            where=name,
            hint="profile with ncu --set full, or --set detailed",
        )
    lines = (f"launch {launch.number} of {launch.kernel}", *launch.lines.values())
    return Signals({"ncu": launch.values}, {"ncu": lines})


def read_ncu(path: Path, kernel: str | None = None) -> Signals:
    """Signals of one kernel of an exported file."""
    return ncu_signals(text_of(path), kernel, name=path.name)
