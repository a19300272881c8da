"""Exports of ncu and nsys, the assembler's report and disassembly, whole and damaged.

The texts in ``data`` are of ``kernels.cu`` beside them, compiled for sm_80 by CUDA 13.0 and disassembled by
13.5; of the disassembly, lines without an instruction were left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from refork.errors import BadInput
from refork_methods.kernel.gpu.cuda_code import functions, ptxas_signals, resources, sass_signals
from refork_methods.kernel.gpu.diagnose import diagnose_gpu
from refork_methods.kernel.gpu.ncu import BY_LABEL, BY_RAW, METRICS, launches, ncu_signals, read_ncu
from refork_methods.kernel.gpu.nsys import read_nsys
from refork_methods.kernel.gpu.profiler_exports import factor, number
from refork_methods.kernel.signals import Signals

DATA = Path(__file__).parent / "data"
STALL = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
REST = '"launch__grid_size","l1tex__t_sector_hit_rate.pct"'

WIDE = f"""==PROF== Profiling "scale" - 0: 0%....50%....100% - 9 passes
==PROF== Disconnected from process 7
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","{STALL}","{LATENCY}",{REST}
"","","us","Mbyte","inst","cycle","","%"
"0","scale(float *, int)","1,205.50","2.5","6","20","16,384","n/a"
"1","add(float *, int)","3.00","0","0","10","12","0.00"
"2","add(float *, int)","4.00","0","0","10","12","0.00"
"""

LONG = """"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value","Rule","Type","Gain"
"0","add(float *)","GPU Speed Of Light Throughput","Memory Throughput","%","74.10",
"0","add(float *)","GPU Speed Of Light Throughput","Duration","usecond","2.85",""
"0","add(float *)","Memory Workload Analysis","Memory Throughput","Gbyte/second","980.2",""
"0","add(float *)","Occupancy","Block Limit SM","block","32"
"0","add(float *)","SpeedOfLight","","","","SOLBottleneck","OPT","",
"0","add(float *)","Launch Statistics","Dynamic Shared Memory Per Block","Kbyte/block","16.38",""
"0","add(float *)","Command line","l1tex__t_sector_hit_rate.pct","%","(!) n/a",""
"""

NSYS = """Processing [report.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Name
75.0,3000000,1000,3000.0,"scale(float *, int)"
25.0,1000000,100,10000.0,add

Time (%),Total Time (ns),Num Calls,Avg (ns),Name
80.0,4000000,1100,3636.4,cudaLaunchKernel
20.0,1000000,1,1000000.0,cudaMalloc
"""


def test_the_wide_form_by_name_with_units_and_separators() -> None:
    found = ncu_signals(WIDE, "scale")
    assert found.get("ncu", "duration_s") == pytest.approx(1.2055e-3)
    assert found.get("ncu", "dram_read_bytes") == 2.5e6
    assert found.get("ncu", "grid_blocks") == 16384
    assert found.get("ncu", "stall_barrier_pct") == 30
    # Not available is absent, and 0 is 0.
    assert found.get("ncu", "l1_hit_pct") is None
    assert ncu_signals(WIDE, "add(float *, int)").get("ncu", "l1_hit_pct") == 0
    assert f"stall_barrier_cycles = 6 ({STALL} 6 inst)" in found.lines["ncu"]


def test_several_kernels_are_listed_and_the_last_launch_counts() -> None:
    assert [one.number for one in launches(WIDE)] == ["0", "1", "2"]
    assert ncu_signals(WIDE, "add").get("ncu", "duration_s") == pytest.approx(4e-6)
    with pytest.raises(BadInput, match=r"2 kernels.*\n.*scale\(float \*, int\); add"):
        ncu_signals(WIDE)
    with pytest.raises(BadInput, match="0 kernels answer to matmul"):
        ncu_signals(WIDE, "matmul")


def test_the_long_form_tells_equal_labels_apart_by_their_units() -> None:
    found = ncu_signals(LONG)
    assert found.values["ncu"] == {
        "memory_pct": 74.1,
        "duration_s": pytest.approx(2.85e-6),
        "blocks_by_slots": 32,
        "shared_dynamic_bytes": pytest.approx(16380),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no launch of a kernel"),
        ("hello\n", "no launch of a kernel"),
        (WIDE[:-30], r"cells under a header of 8.*line 7|damaged line.*line 7"),
        (WIDE.replace('"","","us"', '"0","k","us"'), "no row of units.*line 4"),
        (WIDE.replace("1,205.50", "1205,50"), "'1205,50' is not a number.*line 5, gpu__time"),
        (WIDE.replace('"Mbyte"', '"furlong"'), "unit 'furlong' is not known.*line 5"),
        (WIDE.replace('"Mbyte"', '"us"'), "dram__bytes_read.sum in 'us', not in 'byte'"),
        ('"ID","Kernel Name","Metric Name","Metric Unit","Average"\n"0","k","x","%","1"\n', "a summary over"),
        (LONG.replace('"74.10"', '"fast"'), "'fast' is not a number.*line 2, Memory Throughput"),
        (LONG.replace(',"2.85",""', ',"2.85'), "damaged line.*line 3"),
        (LONG.replace(',"2.85",""', ""), "5 cells under a header of 9.*line 3"),
        ('"ID","Kernel Name","x"\n"","","%"\n"0","k","1"\n', "no known metric of k"),
    ],
)
def test_damaged_exports_are_refused_with_their_line(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ncu_signals(text, "scale" if "scale" in text else None)


def test_files_may_be_of_powershell_and_not_of_anything(tmp_path: Path) -> None:
    path = tmp_path / "ncu.csv"
    path.write_bytes(WIDE.encode("utf-16"))
    assert read_ncu(path, "scale").get("ncu", "grid_blocks") == 16384
    path.write_bytes(b"\x80\x81\x82")
    with pytest.raises(BadInput, match="not text"):
        read_ncu(path)
    with pytest.raises(BadInput, match="cannot read"):
        read_ncu(tmp_path / "none.csv")


def test_units_and_numbers() -> None:
    assert number("-1,234.5e2", where="") == -123450
    assert [number(one, where="") for one in ("", "n/a", "nan", "no data")] == [None] * 4
    assert factor("Kbyte/block", "byte", where="") == 1000
    assert factor("Ghz", "s", where="") is None
    assert factor("register/thread", "", where="") == 1


def test_the_table_of_metrics_names_nothing_twice() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)
    assert sum(len(one.raw) for one in METRICS) == len(BY_RAW)
    assert sum(bool(one.label) for one in METRICS) == len(BY_LABEL)
    assert all(one.meaning and "\n" not in one.meaning for one in METRICS)
    assert {"Stall Long Scoreboard", "Stall MIO Throttle", "Stall LG Throttle"} <= set(BY_LABEL)


def nsys(folder: Path, *texts: str, kernel: str | None = None) -> Signals:
    paths = [folder / f"{number}.csv" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(f"{text}\n")
    return read_nsys(*paths, kernel=kernel)


def test_nsys_gives_the_share_of_launching(tmp_path: Path) -> None:
    found = nsys(tmp_path, NSYS, kernel="scale")
    assert found.get("nsys", "launch_pct") == pytest.approx(50)
    assert found.get("nsys", "launches") == 1100
    assert found.get("nsys", "kernel_mean_s") == pytest.approx(3e-6)
    assert found.get("nsys", "kernel_share_pct") == pytest.approx(75)
    assert [one.tool for one in diagnose_gpu(found).findings] == ["gpu.LaunchOverhead"]
    kernels, calls = NSYS.split("\n\n")[1:]
    assert nsys(tmp_path, kernels, calls).get("nsys", "launch_pct") == pytest.approx(50)
    assert nsys(tmp_path, kernels).get("nsys", "launch_pct") is None
    for text, kernel, said in (
        ("nothing", None, "neither kernels nor calls"), (NSYS.replace("3000000", "soon"), None, "line 4"),
        (NSYS, "relu", "0 kernels answer to relu"), (calls, "relu", "0 kernels answer to relu"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=said):
            nsys(tmp_path, text, kernel=kernel)


def test_the_report_of_the_assembler() -> None:
    text = (DATA / "ptxas.txt").read_text()
    assert {one.kernel for one in resources(text)} == {"naive", "gemm_fp16", "spilled"}
    tiled = ptxas_signals(text, "gemm_fp16")
    assert tiled.all("ptxas", "spill_store_bytes", "shared_static_bytes") == (0, 2048)
    spilled = ptxas_signals(text, "spilled")
    stores = spilled.get("ptxas", "spill_store_bytes")
    assert stores is not None
    assert stores > 0
    assert spilled.get("ptxas", "registers_per_thread") == 32
    found = {one.tool: one for one in diagnose_gpu(spilled).findings}
    assert set(found) == {"gpu.RegisterSpill"}
    assert any("bytes spill stores" in line for line in found["gpu.RegisterSpill"].evidence)
    with pytest.raises(BadInput, match="3 kernels answer to no name"):
        ptxas_signals(text)
    with pytest.raises(BadInput, match="no kernel in it"):
        ptxas_signals("ptxas info : 0 bytes gmem")
    with pytest.raises(BadInput, match="no registers of naive"):
        ptxas_signals("ptxas info : Compiling entry function 'naive' for 'sm_80'")


@pytest.mark.parametrize("file", ["cuobjdump.txt", "nvdisasm.txt"])
def test_both_disassemblers_are_counted_alike(file: str) -> None:
    text = (DATA / file).read_text()
    assert set(functions(text)) == {"naive", "gemm_fp16", "spilled"}
    naive = sass_signals(text, "naive")
    assert naive.all("sass", "ldg_32", "ldg_128", "ldl", "ffma", "tensor") == (1, 0, 0, 0, 0)
    gemm = sass_signals(text, "gemm_fp16")
    assert gemm.all("sass", "matrix_meant", "tensor") == (1, 0)
    assert gemm.get("sass", "bar")
    assert diagnose_gpu(gemm).findings[0].tool == "gpu.ScalarFallback"
    spilled = sass_signals(text, "spilled")
    counted = spilled.all("sass", "ldg_128", "ldl", "stl")
    assert counted is not None
    assert min(counted) > 0
    assert any("STL" in line for line in spilled.lines["sass"])
    with pytest.raises(BadInput, match="3 kernels answer"):
        sass_signals(text)


def test_widths_and_matrix_instructions_by_their_names() -> None:
    code = """Function : wgmma_kernel
        /*0000*/                   LDG.E.128.CONSTANT R4, [R2.64] ;   /* 0x0 */
        /*0010*/              @!P0 LDG.E.U8 R4, desc[UR4][R2.64] ;
        /*0020*/         @!UP0     LDGSTS.E.BYPASS.128 [R5], [R2.64] ;
        /*0030*/                   HGMMA.64x128x16.F32 R24, gdesc[UR4] ;
        /*0040*/              @P2  STG.E.64 [R2.64], R4 ;
        /*0050*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0060*/                   MUFU.EX2 R4, R4 ;
        /*0070*/               @P1 BRA `(.L_x_1) ;
"""
    found = sass_signals(code)
    names = ("ldg_128", "ldg_32", "tensor", "branches", "instructions")
    assert found.all("sass", *names) == (2, 1, 2, 1, 8)
    assert found.get("sass", "matrix_meant") == 1
    with pytest.raises(BadInput, match="no instruction"):
        sass_signals("Function : empty\n")
