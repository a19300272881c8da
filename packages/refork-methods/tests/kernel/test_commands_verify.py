"""``refork kernel calibrate`` and ``verify``: what is printed, and how they end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput
from refork.sandbox.inside import seccomp
from refork_methods.kernel.bench import calibrate, load_calibration
from refork_methods.kernel.commands import app

pytest.importorskip("tree_sitter_c", reason="the extra 'languages' is not installed")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gcc", "objcopy"))) or seccomp.here() is None,
    reason="needs gcc, binutils and Linux with seccomp on x86_64 or aarch64",
)
KERNEL = "// refork: x=n\nvoid twice(int n, float *x) { for (int i = 0; i < n; i++) x[i] = 2 * x[i]; }\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REFORK_HOME", str(tmp_path / "home"))
    (tmp_path / "kernel.c").write_text(KERNEL)
    (tmp_path / "same.c").write_text(KERNEL.replace("2 * x[i]", "x[i] + x[i]"))
    (tmp_path / "wrong.c").write_text(KERNEL.replace("2 *", "3 *"))
    return tmp_path


def test_a_right_version_passes_and_a_wrong_one_fails(files: Path) -> None:
    common = ["verify", str(files / "kernel.c")]
    good = CliRunner().invoke(
        app, [*common, str(files / "same.c"), "--set", "n=200", "--json", "--repeats", "7"]
    )
    assert good.exit_code == 0, good.output
    told = json.loads(good.stdout)
    assert (told["ok"], told["error"], told["calibrated"]) == (True, 0, False)
    assert told["low"] <= told["speedup"] <= told["high"]
    bad = CliRunner().invoke(app, [*common, str(files / "wrong.c"), "--set", "n=200", "--set", "entry=twice"])
    assert bad.exit_code == 1
    assert "FAIL at check: x[" in bad.stdout
    shown = CliRunner().invoke(app, [*common, str(files / "same.c"), "--set", "n=200", "--entry", "twice"])
    assert shown.exit_code == 0
    assert "pass" in shown.stdout
    assert "held back by process" in shown.stdout


def test_what_the_user_can_mend(files: Path) -> None:
    for extra, said in (
        ([], "what is n"),
        (["--set", "n"], "setting 'n'"),
        (["--set", "n=2", "--entry", "no"], "no"),
    ):
        result = CliRunner().invoke(app, ["verify", str(files / "kernel.c"), str(files / "same.c"), *extra])
        assert isinstance(result.exception, BadInput)
        assert said in str(result.exception)
    gone = CliRunner().invoke(app, ["verify", str(files / "kernel.c"), str(files / "gone.c"), "--set", "n=3"])
    assert isinstance(gone.exception, BadInput)


def test_a_machine_is_measured_once(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = __import__("sys").modules[calibrate.__module__]
    for name, less in (("REPEATS", 1), ("MANY", 50_000), ("ROUNDS", 1), ("STREAMED", 2000), ("DENSE", 16)):
        monkeypatch.setattr(module, name, less)
    first = CliRunner().invoke(app, ["calibrate", "--json"])
    assert first.exit_code == 0, first.output
    told = json.loads(first.stdout)
    assert min(told["flops"], told["flops64"], told["bandwidth"], told["cached"]) > 1e6
    assert told["noise"] >= 1
    known = load_calibration()
    assert known is not None
    assert known.to_json() == told
    again = CliRunner().invoke(app, ["calibrate"])
    assert again.exit_code == 0
    assert f"noise      {known.noise:8.3f} times" in again.stdout
