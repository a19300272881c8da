"""The command line on a real kernel, with real builds; and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refork.errors import BadInput, UserError
from refork.tree.tree import Tree
from refork_methods.kernel.bench import Bench, Candidate, calibrate
from refork_methods.kernel.commands import app
from refork_methods.kernel.problem import read_problem
from refork_methods.kernel.search.folder import read_history
from refork_methods.kernel.search.model import KernelSearchSettings
from refork_methods.kernel.search.on_file import BenchEvaluator, open_writer

DOT = """// refork: entry=dot n=256 x=n y=n r=1:out flops=2*n bytes=8*n
void dot(int n, const float *x, const float *y, float *r) {
    float s = 0.0f;
    for (int i = 0; i < n; i++)
        s += x[i] * y[i];
    r[0] = s;
}
"""


def test_writers_by_name() -> None:
    assert open_writer("rewrite", KernelSearchSettings()).name == "rewrite(unguided=0.15)"
    with pytest.raises(BadInput, match="reads findings, not counters"):
        open_writer("rewrite", KernelSearchSettings(feedback="raw"))
    for bad in ("chat:", "other", "chat"):
        with pytest.raises(BadInput):
            open_writer(bad, KernelSearchSettings())


def test_bad_usage_is_said(tmp_path: Path) -> None:
    runner = CliRunner()
    missing = runner.invoke(app, ["search", str(tmp_path / "no.c"), "--out", str(tmp_path / "s")])
    assert isinstance(missing.exception, UserError)
    kernel = tmp_path / "k.c"
    kernel.write_text(DOT)
    bad = runner.invoke(app, ["search", str(kernel), "--out", str(tmp_path / "s"), "--search", "magic"])
    assert isinstance(bad.exception, BadInput)
    none = runner.invoke(app, ["arms", str(tmp_path)])
    assert isinstance(none.exception, BadInput)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_real_search_end_to_end(tmp_path: Path) -> None:
    kernel, out = tmp_path / "dot.c", tmp_path / "s"
    kernel.write_text(DOT)
    call = ["search", str(kernel), "--out", str(out), "--feedback", "none", "--set", "n=512", "--json"]
    done = CliRunner().invoke(app, [*call, "--evaluations", "3"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in {0, 1}
    told = json.loads(done.stdout)
    assert told["evaluations"] == 3
    assert (done.exit_code == 0) == told["faster"]
    assert Path(told["source"]).exists()
    nodes = read_history(out).nodes
    assert len(nodes) == 4
    assert nodes[0].evaluated.ok
    with Tree.open(out / "tree.db", "r") as tree:
        assert len(tree) == 5
    more = CliRunner().invoke(app, [*call[:-1], "--evaluations", "4"])
    assert "4 versions tried" in more.stdout
    assert read_history(out).nodes[:4] == nodes


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_builds_side_by_side_are_those_that_are_timed(tmp_path: Path) -> None:
    (tmp_path / "dot.c").write_text(DOT)
    problem = read_problem(tmp_path / "dot.c")
    flags = (("-O2",), ("-O1",), ("-O3",))
    some = [Candidate(problem.source, one) for one in flags] + [Candidate("void dot(int", flags[0])]
    with Bench(problem, tmp_path / "build") as bench:
        evaluator = BenchEvaluator(bench, calibrate())
        evaluator.prepare(some)
        programs = set((tmp_path / "build").glob("run-*"))
        checked = [bench.check(one) for one in some]
        assert set((tmp_path / "build").glob("run-*")) == programs
    assert [one.ok for one in checked] == [True, True, True, False]
    assert checked[3].stage == "build"
