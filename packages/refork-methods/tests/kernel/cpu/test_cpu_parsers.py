"""What valgrind, objdump, gcc, llvm-mca and perf printed of a small matmul, read; damaged texts refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from refork.errors import BadInput
from refork_methods.kernel.cpu import cachegrind, objdump, perf, static
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.diagnose import diagnose_cpu
from refork_methods.kernel.cpu.objdump import innermost
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.signals import Signals

DATA = Path(__file__).parent / "data"
#: Of the profiled runs.
N = 128
FLOPS = 2 * N**3


def text(name: str) -> str:
    return (DATA / name).read_text()


def test_cachegrind_counts_the_kernel_alone() -> None:
    naive, lines = cachegrind.parse(text("naive.cachegrind"), "naive")
    rows, _ = cachegrind.parse(text("rows.cachegrind"), "rows")
    assert naive[m.D1_BYTES.name] == 32768
    assert naive[m.LINE_BYTES.name] == 64
    assert naive[m.D1_READ_MISSES.name] / FLOPS > 0.45
    assert rows[m.D1_READ_MISSES.name] / FLOPS < 0.05
    # Three loads of 8 numbers for 32 flops, and those around the loop: each vector counts once, as the
    # profiled program has no fused multiply-add with an operand in memory (with them: 0.54).
    assert 3 / 32 < rows[m.READS.name] / FLOPS < 4 / 32
    assert 0.5 < naive[m.KERNEL_SHARE.name] < 1
    assert naive[m.MISPREDICTIONS.name] < naive[m.BRANCHES.name]
    assert len(lines) == 1
    assert lines[0].startswith("matmul.c:7: Ir=")
    # One set: the columns fit, so that nearly all misses were conflicts.
    full, _ = cachegrind.parse(text("naive-full.cachegrind"), "naive")
    misses = cachegrind.fully_associative(full)[m.FULL_MISSES.name]
    assert naive[m.D1_READ_MISSES.name] / misses > 10
    # The whole file: the kernel is alone in it.
    assert cachegrind.parse(text("rows.cachegrind"), "none", file="matmul.c")[0] == rows


def test_cachegrind_refuses_what_is_damaged_and_leaves_out_what_is_not_there() -> None:
    good = text("rows.cachegrind")
    for bad, match in (
        ("", "no events"),
        (good.replace("summary:", "sum:"), "no summary"),
        (good.replace("fn=rows", "fn=other"), "no function rows"),
        (good.replace("fn=rows\n", "fn=rows\n12 x 1\n"), "is not 13 counts"),
        (good.replace("summary:", "summary: " + "1 " * 20), "is not 13 counts"),
    ):
        with pytest.raises(BadInput, match=match):
            cachegrind.parse(bad, "rows")
    few = "events: Ir Dr\nfl=a.c\nfn=rows.constprop.0\n3 10 4\n4 5\nsummary: 20 4\n"
    values, _ = cachegrind.parse(few, "rows")
    assert values == {"instructions": 15, "reads": 4, "kernel_instruction_share": 0.75}
    with pytest.raises(BadInput, match="no D1 misses"):
        cachegrind.fully_associative(values)


def test_objdump_tells_vector_loops_from_sums_in_order() -> None:
    naive, _ = objdump.parse(text("objdump.txt"), "naive")
    rows, _ = objdump.parse(text("objdump.txt"), "rows")
    slow, lines = objdump.parse(text("objdump.txt"), "slow")
    assert (naive[m.FP_LOOPS.name], naive[m.VECTOR_LOOPS.name]) == (1, 0)
    # Two rows at once, and one: the remainders between the loops are none.
    assert (rows[m.LOOPS.name], rows[m.VECTOR_LOOPS.name]) == (2, 2)
    assert (rows[m.PACKED_256.name], rows[m.PACKED_128.name], rows[m.FMA.name]) == (3, 0, 3)
    assert rows[m.STACK_LOADS.name] == rows[m.STACK_STORES.name] == 0
    assert slow[m.DIVISIONS.name] >= 1
    assert slow[m.LIBM_CALLS.name] == 2
    assert any("vdivss" in line for line in lines)
    loop = objdump.loop_assembly(text("objdump.txt"), "rows")
    assert loop is not None
    assert loop.splitlines()[0] == ".Lloop:"
    assert loop.splitlines()[-1] == "jne .Lloop"
    assert loop.count("vfmadd") == 2
    plain, _ = objdump.parse(text("objdump-O0.txt"), "naive")
    assert (plain[m.LOOPS.name], plain[m.PACKED.name], plain[m.SCALAR.name]) == (1, 0, 2)
    assert plain[m.STACK_LOADS.name] > 5
    with pytest.raises(BadInput, match="no function gone"):
        objdump.parse(text("objdump.txt"), "gone")
    with pytest.raises(BadInput, match="no function naive"):
        objdump.parse("0000000000000000 <naive>:\n", "naive")


def test_objdump_reads_bytes_calls_and_stores() -> None:
    raw = (
        "0000000000401000 <f>:\n"
        "  401000:\tc5 fa 10 07          \tvmovss (%rdi),%xmm0\n"
        "  401004:\te8 f7 ff ff ff       \tcall   400100 <expf@plt>\n"
        "  401009:\tc5 fa 11 44 24 0c    \tvmovss %xmm0,0xc(%rsp)\n"
        "  40100f:\tc5 f8 2e 44 24 08    \tvucomiss 0x8(%rsp),%xmm0\n"
        "  401015:\t48 83 7c 24 08 00    \tcmpq   $0x0,0x8(%rsp)\n"
        "  40101b:\t75 e3                \tjne    401000 <f>\n"
        "  40101d:\tc3                   \tret\n"
    )
    values, _ = objdump.parse(raw, "f")
    assert values[m.LIBM_CALLS.name] == 1
    assert (values[m.STACK_LOADS.name], values[m.STACK_STORES.name]) == (2, 1)
    assert values[m.LOOP_INSTRUCTIONS.name] == 6
    assert [objdump.is_libm(one) for one in ("__expf_finite@plt", "sincosf", "powder", "_ZGVdN8v_expf")] == [
        True,
        True,
        False,
        False,
    ]
    assert [objdump.widest_bits(one) for one in ("sse2 avx512f avx", "sse2 avx", "sse2")] == [512, 256, 128]
    assert innermost([]) == []


def test_optinfo_gives_reasons_by_line() -> None:
    values, lines = static.parse_optinfo(text("optinfo.txt"))
    assert values[m.VECTORISED.name] == 2
    assert values[m.VECTOR_BYTES.name] == 32
    assert values[m.MISSED_CALL.name] == 1
    assert "optimized" in lines[0]
    inside, _ = static.parse_optinfo(text("optinfo.txt"), lines=range(2, 11))
    assert inside[m.MISSED_STRIDE.name] > 0
    none, _ = static.parse_optinfo(text("optinfo.txt"), lines=range(900, 901))
    assert m.VECTOR_BYTES.name not in none
    with pytest.raises(BadInput, match="no record"):
        static.parse_optinfo("matmul.c:7:40 optimized\n")


def test_mca_reads_cycles_and_the_busiest_port() -> None:
    values, lines = static.parse_mca(text("dot.mca"))
    assert values[m.LOOP_CYCLES.name] == 4.11
    assert values[m.BLOCK_CYCLES.name] == 1.0
    assert values[m.PORT_USE.name] == pytest.approx(1 / 4.11)
    assert lines[-1].startswith("Zn3FPP0: 1 of 4.11 cycles")
    short = text("dot.mca").split("Resources:")[0]
    assert m.PORT_USE.name not in static.parse_mca(short)[0]
    for bad in (
        text("dot.mca").replace("Total Cycles", "Cycles"),
        text("dot.mca").replace("411", "0"),
        text("dot.mca").replace(" 1.00  ", " 1,00  "),
    ):
        with pytest.raises(BadInput):
            static.parse_mca(bad)


def test_perf_shares_samples_and_faults() -> None:
    spilled = """
0000000000401136 <k>:
  401136:\tvmovss 0x8(%rsp),%xmm0
  40113a:\tvaddss %xmm1,%xmm0,%xmm0
  40113e:\tlea    0x8(%rsp),%rax
0000000000401150 <k.constprop.0>:
  401150:\tvmovss %xmm0,0x10(%rsp)
0000000000401160 <other>:
  401160:\tvmovss 0x8(%rsp),%xmm0
"""
    samples = {0x401136: 3, 0x40113A: 5, 0x40113E: 1, 0x401150: 1, 0x401160: 90, 0x9: 7}
    share, hottest = perf.on_stack(samples, spilled, "k")
    assert share == {m.STACK_SHARE.name: 0.4}
    assert hottest[:2] == ("50.00% vaddss %xmm1,%xmm0,%xmm0", "30.00% vmovss 0x8(%rsp),%xmm0")
    for nothing in (({}, spilled), (samples, "nothing\n")):
        with pytest.raises(BadInput, match="no samples of instructions of k"):
            perf.on_stack(*nothing, "k")
    assert perf.parse_stat(text("perf-stat.txt")) > 50
    for bad, match in (
        ("<not supported>,,page-faults,0,100.00,,\n", "does not count"),
        ("nothing\n", "no count"),
    ):
        with pytest.raises(BadInput, match=match):
            perf.parse_stat(bad)


def test_real_texts_to_a_diagnosis() -> None:
    cache, missed = cachegrind.parse(text("naive.cachegrind"), "naive")
    full, _ = cachegrind.parse(text("naive-full.cachegrind"), "naive")
    code, _ = objdump.parse(text("objdump.txt"), "naive")
    records, said = static.parse_optinfo(text("optinfo.txt"), lines=range(2, 11))
    ports, model = static.parse_mca(text("dot.mca"))
    signals = Signals(
        {
            "cachegrind": cache | cachegrind.fully_associative(full),
            "objdump": code | {m.WIDEST_BITS.name: 256},
            "optinfo": records,
            "mca": ports,
        },
        {"cachegrind": missed, "optinfo": said, "mca": model},
        {"counters": "not in this machine"},
    )
    found = diagnose_cpu(signals, Work(FLOPS, 12 * N * N), Ceilings(48e9, 12e9))
    names = {one.tool for one in found.findings}
    assert {"CpuScalarFallback", "StridedAccess", "ConflictMiss", "DependencyChain", "NarrowVector"} <= names
    assert "CallOverhead" in found.blind
    scalar = next(one for one in found.findings if one.tool == "CpuScalarFallback")
    assert "Interchange" in scalar.action
    assert "strided load" in scalar.evidence[0]
