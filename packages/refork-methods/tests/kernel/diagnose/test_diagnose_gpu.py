"""GPU kernels from exports and from CUDA sources, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel.diagnose.conftest import KNOWN, needs_gcc
from refork.errors import BadInput, UserError
from refork_methods.kernel.bench.calibration import calibration_path
from refork_methods.kernel.commands import app
from refork_methods.kernel.diagnose_told import told_lines
from refork_methods.kernel.gpu.diagnose import SYNTHETIC, diagnose_exports

DATA = Path(__file__).parents[1] / "gpu" / "data"
EXAMPLE = Path("example:transpose")


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["diagnose", *arguments])
    if isinstance(done.exception, UserError):
        return 2, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.output


def test_the_shipped_export_is_diagnosed_and_said_to_be_synthetic() -> None:
    naive = diagnose_exports(EXAMPLE, kernel="naive")
    assert SYNTHETIC in naive.notes
    assert "gpu.Uncoalesced" in {one.tool for one in naive.diagnosis.findings}
    tiled = diagnose_exports(EXAMPLE, kernel="tiled")
    assert "gpu.Uncoalesced" not in {one.tool for one in tiled.diagnosis.findings}
    assert "gpu.LaunchOverhead" in naive.diagnosis.blind
    assert naive.signals.absent["nsys"] == "no export of it was given"
    warned = [line for line in told_lines(naive) if line.kind == "warn" and "synthetic" in line.text]
    assert len(warned) == 1
    assert json.loads(json.dumps(naive.to_json()))["kernel"].startswith("transpose_naive")


def test_exports_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="2 kernels"):
        diagnose_exports(EXAMPLE)
    with pytest.raises(BadInput, match=r"cannot read gone\.csv"):
        diagnose_exports(tmp_path / "gone.csv")
    with pytest.raises(BadInput, match="no export"):
        diagnose_exports()


def test_code_alone_is_diagnosed() -> None:
    found = diagnose_exports(code=[DATA / "ptxas.txt", DATA / "cuobjdump.txt"], kernel="spilled")
    assert "gpu.RegisterSpill" in {one.tool for one in found.diagnosis.findings}
    assert found.signals.absent.keys() == {"ncu", "nsys"}
    assert any("not classified" in line.text for line in told_lines(found))


def test_the_command_takes_a_source_or_an_export(tmp_path: Path) -> None:
    assert run() == run(str(DATA / "kernels.cu"), "--ncu", "x.csv")
    assert "give a source, or an export" in run()[1]
    code, said = run("--ncu", "example:transpose", "--kernel", "naive")
    assert code == 1
    assert "gpu.MemoryCoalescing, critical" in said
    code, said = run("--ncu", "example:transpose", "--kernel", "naive", "--json")
    assert json.loads(said)["notes"][1] == SYNTHETIC
    assert "no such file" in run(str(tmp_path / "gone.c"))[1]


@needs_gcc
def test_the_command_measures_a_c_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    kept = calibration_path()
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(KNOWN.to_json()))
    source = tmp_path / "half.c"
    source.write_text(
        "void half(int n, const float *x, float *y) { for (int i = 0; i < n; i++) y[i] = x[i] / 3; }\n"
    )
    assert "KEY=VALUE" in run(str(source), "--set", "n")[1]
    sizes = ("--set", "n=4096", "--set", "x=n", "--set", "y=n:out")
    code, said = run(str(source), *sizes, "--flag=-O2", "--quick", "--json")
    found = json.loads(said[said.index("{") :])
    assert code == 1
    assert found["flags"] == ["-O2"]
    assert "SlowOps" in {one["tool"] for one in found["findings"]}
    assert found["roofline"]["seconds"] > 0
