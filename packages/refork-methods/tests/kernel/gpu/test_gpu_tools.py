"""Each GPU tool on a flawed profile and on its healthy twin."""

from __future__ import annotations

from pathlib import Path

import pytest

import refork_methods.kernel.gpu as package
from refork_methods.kernel.gpu.diagnose import classify_gpu, diagnose_gpu
from refork_methods.kernel.gpu.ncu import read_ncu
from refork_methods.kernel.gpu.tools import HITS, gpu_tools
from refork_methods.kernel.signals import Signals

TOOLS = {tool.name.removeprefix("gpu."): tool for tool in gpu_tools()}
EXAMPLE = Path(package.__file__).parent / "examples" / "ncu_synthetic_transpose.csv"

WAITING: dict[str, float] = {"compute_pct": 31, "memory_pct": 44, "stall_long_scoreboard_pct": 27}

#: Tool -> (flawed, fixed), by source; the fixed twin is below the trigger in one thing only.
TWINS: dict[str, tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]] = {
    "MemoryCoalescing": (
        {"ncu": {"l1_hit_pct": 12, "stall_long_scoreboard_pct": 35, "stall_lg_throttle_pct": 20}},
        {"ncu": {"l1_hit_pct": 71, "stall_long_scoreboard_pct": 35, "stall_lg_throttle_pct": 20}},
    ),
    "HighDRAMThroughput": ({"ncu": {"dram_pct": 91}}, {"ncu": {"dram_pct": 80}}),
    "OccupancyLimiter": (
        {"ncu": {"occupancy_pct": 24, "blocks_by_shared": 2, "blocks_by_registers": 6, "blocks_by_warps": 8}},
        {"ncu": {"occupancy_pct": 50, "blocks_by_shared": 2, "blocks_by_registers": 6, "blocks_by_warps": 8}},
    ),
    "HighRegisterUsage": ({"ptxas": {"registers_per_thread": 168}}, {"ptxas": {"registers_per_thread": 96}}),
    "WarpStall": (
        {"ncu": {"stall_short_scoreboard_pct": 66, "stall_wait_pct": 12}},
        {"ncu": {"stall_short_scoreboard_pct": 40, "stall_wait_pct": 12}},
    ),
    "BarrierStall": ({"ncu": {"stall_barrier_pct": 37}}, {"ncu": {"stall_barrier_pct": 30}}),
    "LaunchOverhead": ({"nsys": {"launch_pct": 44}}, {"nsys": {"launch_pct": 20}}),
    "Uncoalesced": (
        {"ncu": {"load_bytes_per_sector": 32, "store_bytes_per_sector": 4}},
        {"ncu": {"load_bytes_per_sector": 32, "store_bytes_per_sector": 28}},
    ),
    "RegisterSpill": (
        {"sass": {"ldl": 12, "stl": 9}, "ncu": WAITING},
        {"sass": {"ldl": 0, "stl": 0}, "ncu": WAITING},
    ),
    "SharedMemTiling": (
        {"ncu": {"shared_bytes": 0, "reuse": 11}},
        {"ncu": {"shared_bytes": 8192, "reuse": 11}},
    ),
    "TensorCore": (
        {"ncu": {"tensor_pct": 0, "ffma_threads": 9e9, "fmul_threads": 1e8, "fadd_threads": 2e8}},
        {"ncu": {"tensor_pct": 63, "ffma_threads": 9e9, "fmul_threads": 1e8, "fadd_threads": 2e8}},
    ),
    "Vectorization": (
        {"sass": {"ldg_32": 9, "ldg_64": 0, "ldg_128": 1, "ldg_256": 0}},
        {"sass": {"ldg_32": 1, "ldg_64": 0, "ldg_128": 8, "ldg_256": 0}},
    ),
    "ScalarFallback": (
        {"sass": {"matrix_meant": 1, "tensor": 0, "ffma": 512, "fmul": 8}},
        {"sass": {"matrix_meant": 1, "tensor": 64, "ffma": 0, "fmul": 8}},
    ),
    "BankConflict": ({"ncu": {"conflicts_per_access": 31}}, {"ncu": {"conflicts_per_access": 0.02}}),
    "WarpDivergence": ({"ncu": {"active_threads": 9.5}}, {"ncu": {"active_threads": 31.2}}),
}  # fmt: skip


def signals(values: dict[str, dict[str, float]]) -> Signals:
    return Signals(values)  # type: ignore[arg-type]


def test_there_are_fifteen() -> None:
    assert TOOLS.keys() == TWINS.keys()
    assert all(tool.name.startswith("gpu.") for tool in gpu_tools())


@pytest.mark.parametrize("name", TWINS)
def test_fires_on_the_flaw_and_not_on_its_twin(name: str) -> None:
    flawed, fixed = (signals(one) for one in TWINS[name])
    found = TOOLS[name].check(flawed)
    assert found is not None
    assert found.metrics
    known = HITS.get(name)
    assert found.expected_gain == (None if known is None else (known.gain, known.gain))
    assert known is None or found.evidence[-1] == known.line
    assert TOOLS[name].check(fixed) is None
    # What was not measured is no finding, and no error.
    assert TOOLS[name].check(Signals()) is None


def test_no_twin_raises_any_alarm_of_any_tool() -> None:
    alarms = {
        name: [tool.name for tool in gpu_tools() if tool.check(signals(fixed)) is not None]
        for name, (_, fixed) in TWINS.items()
    }
    assert {name: fired for name, fired in alarms.items() if fired} == {}


def test_findings_carry_their_numbers() -> None:
    def cause(name: str) -> str:
        found = TOOLS[name].check(signals(TWINS[name][0]))
        assert found is not None
        return found.cause

    assert "shared memory: 2 blocks" in cause("OccupancyLimiter")
    assert "66 %" in cause("WarpStall")
    assert "stores move 8 times" in cause("Uncoalesced")
    assert "12 of 64 warps" in cause("HighRegisterUsage")
    assert "32 passes" in cause("BankConflict")
    assert "70%" in cause("WarpDivergence")


@pytest.mark.parametrize(
    ("values", "fires"),
    [
        ({"ptxas": {"spill_store_bytes": 64.0, "spill_load_bytes": 64.0}}, "warn"),
        ({"sass": {"ldl": 1.0}, "ncu": {"compute_pct": 20.0, "memory_pct": 75.0}}, "critical"),
        # Spills that cost little: the compute peak is near, and warps hardly wait.
        ({"sass": {"ldl": 1.0}, "ncu": {"compute_pct": 80.0, "memory_pct": 30.0}}, None),
        ({"ptxas": {"spill_store_bytes": 0.0, "spill_load_bytes": 0.0}}, None),
    ],
)
def test_the_cases_of_a_spill(values: dict[str, dict[str, float]], fires: str | None) -> None:
    found = TOOLS["RegisterSpill"].check(signals(values))
    assert (found.severity if found else None) == fires


def test_widths_are_told_from_bytes_a_thread_gets_where_no_code_is() -> None:
    def mean(sectors: float, threads: float) -> bool:
        ncu = {"load_sectors_per_request": sectors, "load_bytes_per_sector": 32.0, "active_threads": threads}
        return TOOLS["Vectorization"].check(Signals({"ncu": ncu})) is not None

    assert mean(4, 32)
    assert not mean(16, 32)
    # Half the threads at 8 bytes each are no narrow loads.
    assert not mean(4, 16)


def test_the_class_decides_which_tools_look() -> None:
    memory = classify_gpu(Signals({"ncu": {"compute_pct": 10.0, "memory_pct": 85.0}}))
    assert (memory.bound, memory.measured, memory.theory) == ("memory", "memory", None)
    compute = diagnose_gpu(Signals({"ncu": {"compute_pct": 85.0, "memory_pct": 20.0}}))
    assert compute.classified.bound == "compute"
    seen = {*compute.ran, *compute.blind}
    assert "gpu.TensorCore" in seen
    assert "gpu.MemoryCoalescing" not in seen
    looked = diagnose_gpu(Signals({"ncu": {"compute_pct": 10.0, "memory_pct": 85.0}}))
    assert "gpu.TensorCore" not in {*looked.ran, *looked.blind}
    assert "gpu.MemoryCoalescing" in looked.ran
    assert looked.blind["gpu.LaunchOverhead"] == "nsys: not measured"


def test_where_nothing_is_known_all_look() -> None:
    blank = diagnose_gpu(Signals({"ptxas": {"registers_per_thread": 200.0}}))
    assert (blank.classified.bound, blank.classified.confidence) == ("mixed", "low")
    assert len(blank.ran) + len(blank.blind) == 15
    assert [one.tool for one in blank.findings] == ["gpu.HighRegisterUsage"]


def test_the_synthetic_transpose_is_marked_and_diagnosed() -> None:
    assert EXAMPLE.read_text().startswith("# SYNTHETIC")
    naive = diagnose_gpu(read_ncu(EXAMPLE, "naive"))
    assert naive.classified.measured == "memory"
    found = {one.tool: one for one in naive.findings}
    assert {"gpu.Uncoalesced", "gpu.MemoryCoalescing", "gpu.WarpStall"} <= set(found)
    assert found["gpu.Uncoalesced"].metrics["sector_excess"] == 8
    assert any("store_sectors = 16777216 (" in line for line in found["gpu.Uncoalesced"].evidence)
    tiled = diagnose_gpu(read_ncu(EXAMPLE, "tiled"))
    assert {one.tool for one in tiled.findings if one.severity != "info"} == set()
