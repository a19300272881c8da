"""Kernels compiled and measured: chains that a problem has, places of evidence, and whole diagnoses."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.diagnose.conftest import KNOWN, needs_gcc, needs_valgrind
from refork.errors import BadInput
from refork_methods.kernel import diagnose as diagnosing
from refork_methods.kernel.bench import Bench, Calibration, Candidate
from refork_methods.kernel.cpu import metrics as m
from refork_methods.kernel.cpu.perf import calls_for, repeated, sampled
from refork_methods.kernel.cpu.static import read_code
from refork_methods.kernel.diagnose import ceilings_of, diagnose
from refork_methods.kernel.diagnose_told import told_lines
from refork_methods.kernel.problem import read_problem
from support.repository import ROOT

PLANTED = ROOT / "benchmarks" / "parts" / "kernels" / "planted"
FLAGS = ("-O3", "-mavx2", "-mfma")
COLUMNS = """// refork: entry=columns n=256 a=n*n s=n:out flops=n*n bytes=4*n*n+4*n rtol=1e-3
void columns(int n, const float *restrict a, float *restrict s)
{
    for (int j = 0; j < n; j++) {
        float sum = 0;
        for (int i = 0; i < n; i++)
            sum += a[i * n + j];
        s[j] = sum;
    }
}
"""


@needs_gcc
@pytest.mark.skipif(shutil.which("llvm-mca") is None, reason="llvm-mca is not installed")
@pytest.mark.parametrize(
    ("body", "inherent"),
    [
        ("for (int i = 0; i < n; i++) v += x[i];", False),
        ("for (int i = 0; i < n; i++) v = x[i] / (v + 1.0f);", True),
        ("for (int i = 0; i < n; i++) v = 3.5f * v * (1.0f - v);", True),
        # Each row has a chain, rows have none among them.
        ("for (int j = 0; j < n; j++) for (int i = 0; i < n; i++) v = x[i] / (v + x[j]);", False),
    ],
)
def test_a_chain_is_the_problems_where_no_order_of_sums_breaks_it(
    tmp_path: Path, body: str, inherent: bool
) -> None:
    source = tmp_path / "f.c"
    source.write_text(f"float f(int n, const float *x) {{ float v = 1; {body} return v; }}\n")
    assert read_code(source, tmp_path / "out", "f", FLAGS).inherent is inherent


@needs_gcc
def test_code_that_does_not_compile_is_the_users_to_mend(tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text("void f(int n) { n = ; }\n")
    with pytest.raises(BadInput, match="expected expression"):
        read_code(source, tmp_path / "out", "f", FLAGS)


@needs_gcc
@needs_valgrind
def test_a_strided_sum_from_its_source_to_sentences(
    opened: Callable[[str], Bench], known: Calibration
) -> None:
    bench = opened(COLUMNS)
    found = diagnose(
        bench.problem, bench=bench, calibration=known, parts=("code", "cachegrind"), seconds=1e-4
    )
    strided = next(one for one in found.diagnosis.findings if one.tool == "StridedAccess")
    assert strided.evidence[0].startswith("kernel.c:7: ")
    assert found.lines[7] == "sum += a[i * n + j];"
    # One call, and each number of the matrix missed: the tool's figure is the simulation's.
    assert (m.EXCESS_PER_FLOP.of(found.signals) or 0) > 0.9
    assert m.SECONDS.of(found.signals) == 1e-4
    assert found.signals.absent["perf"] == "not asked for"
    assert "CallOverhead" in found.diagnosis.blind
    told_json = json.loads(json.dumps(found.to_json()))
    assert told_json["class"]["theory"] == "memory"
    assert told_json["findings"][0]["sentence"]
    lines = [line.text for line in told_lines(found, width=80)]
    assert lines[0].startswith("columns(n=256)")
    assert any("|     sum += a[i * n + j];" in line for line in lines)
    assert any(line.startswith("Absent: perf: not asked for") for line in lines)
    assert all(len(line) <= 80 or " " not in line.strip("| ") for line in lines)
    again = diagnose(
        bench.problem, bench=bench, calibration=known, parts=("code", "cachegrind"), seconds=1e-4
    )
    # Simulated counts are exact; one call or another differs by the inputs' place in memory alone.
    assert m.READS.of(again.signals) == m.READS.of(found.signals)


@needs_gcc
@needs_valgrind
@pytest.mark.parametrize(("work", "reads"), [("flops=n*n", 1.0), ("flops=65536", None)])
def test_a_smaller_simulated_call_is_counted_by_its_own_work(
    opened: Callable[[str], Bench], known: Calibration, monkeypatch: pytest.MonkeyPatch,
    work: str, reads: float | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(diagnosing, "CACHE", 0)
    bench = opened(COLUMNS.replace("flops=n*n bytes=4*n*n+4*n", work))
    found = diagnose(bench.problem, bench=bench, calibration=known, parts=("cachegrind",), seconds=0.1)
    assert found.to_json()["simulated_sizes"] == {"n": 128}
    assert m.READS_PER_FLOP.of(found.signals) == (reads and pytest.approx(reads, abs=0.05))


@needs_gcc
def test_a_candidate_that_does_not_stand_is_read_but_not_run(
    opened: Callable[[str], Bench], known: Calibration
) -> None:
    bench = opened(COLUMNS)
    wild = Candidate(COLUMNS.replace("s[j] = sum", "s[j + (1 << 20)] = sum"), bench.problem.flags)
    found = diagnose(bench.problem, wild, bench=bench, calibration=known)
    assert found.seconds is None
    assert found.evaluated is not None
    assert not found.evaluated.ok
    assert set(found.signals.absent) >= {"timing", "cachegrind", "perf"}
    assert any(note.startswith("it does not stand") for note in found.notes)
    assert m.LOOPS.of(found.signals)
    with pytest.raises(BadInput, match="part soon"):
        diagnose(bench.problem, bench=bench, calibration=known, parts=("soon",))


@needs_gcc
def test_without_valgrind_and_perf_the_code_still_speaks(
    opened: Callable[[str], Bench], known: Calibration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = opened(COLUMNS.replace(" flops=n*n bytes=4*n*n+4*n", ""))
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("gcc", "objdump", "objcopy", "as", "ld"):
        (tools / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tools))
    found = diagnose(bench.problem, bench=bench, calibration=known, seconds=1e-4)
    assert found.signals.absent["cachegrind"] == "valgrind is not installed"
    assert found.signals.absent["perf"] == "perf is not installed"
    assert found.work is None
    assert any("flops are not declared" in note for note in found.notes)
    assert found.diagnosis.classified.theory is None
    assert found.headroom is None


@needs_gcc
def test_samples_are_those_of_the_calls(opened: Callable[[str], Bench]) -> None:
    bench = opened(COLUMNS)
    driver = bench.profiled(bench.original)
    assert repeated(driver, 7).argv[-1] == "7"
    assert (calls_for(1.0), calls_for(1e-9)) == (2, 100_000)
    found = sampled(driver, 50, stack=False, output_bytes=1024)
    if found.has("perf"):
        assert (m.FAULTS.of(found) or 0) < 50
        assert 0 <= (m.INSIDE.of(found) or 0) <= 1
    else:
        assert found.absent["perf"]


@needs_gcc
@pytest.mark.parametrize(
    ("name", "tool"),
    [("scalar", "CpuScalarFallback"), ("slow", "SlowOps"), ("spill", "CpuRegisterSpill")],
)
def test_code_tools_tell_a_planted_flaw_from_its_twin(name: str, tool: str, tmp_path: Path) -> None:
    said = []
    for kind in ("flaw", "fixed"):
        problem = read_problem(PLANTED / f"{name}_{kind}.c")
        # Not entered: nothing is run.
        bench = Bench(problem, tmp_path / kind, calibration=KNOWN)
        found = diagnose(problem, bench=bench, calibration=KNOWN, parts=("code",), seconds=1e-5)
        said.append(tool in {one.tool for one in found.diagnosis.findings})
    assert said == [True, False]


def test_ceilings_fit_the_numbers_and_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "f.c"
    path.write_text("// refork: entry=f n=65536 x=n\ndouble f(int n, const double *x) { return x[n - 1]; }\n")
    problem = read_problem(path)
    once, _ = ceilings_of(problem, KNOWN, 1)
    assert (once.flops, once.bandwidth) == (KNOWN.flops64, KNOWN.cached)
    often, notes = ceilings_of(problem, KNOWN, 40)
    assert often.bandwidth == KNOWN.bandwidth
    assert notes == ["the ceiling of arithmetic is that of double precision"]
    # What is read and written lies in memory once.
    path.write_text("// refork: entry=f n=131072 x=n:inout\nvoid f(int n, double *x) { x[n - 1] = 1; }\n")
    assert ceilings_of(read_problem(path), KNOWN, 1)[0].bandwidth == KNOWN.cached
