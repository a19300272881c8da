"""Sentences and commands of a report, and a report of a search that was really run."""

from __future__ import annotations

import shlex
from pathlib import Path

from kernel.report.searches import NAIVE, line, matmul, right, store
from refork_methods.kernel.bench.result import Candidate
from refork_methods.kernel.problem import Argument, Problem
from refork_methods.kernel.report import figures, read_search, write_report
from refork_methods.kernel.report.sentences import commands, machine, problem, tried
from refork_methods.kernel.search import KernelSearchSettings, run_search
from refork_methods.kernel.tool import Finding
from support.kernel_search_fakes import TableEvaluator, WordWriter


def test_the_command_has_what_was_asked_for(tmp_path: Path) -> None:
    search = read_search(store(tmp_path / "a run", matmul(3)[0], writer="rewrite(unguided=0.15)"))
    again, report = commands(search)
    assert shlex.split(again) == [
        "refork", "kernel", "search", "matmul.c", "--entry", "matmul", "--set", "n=512",
        "--evaluations", "40", "--seed", "0", "--out", "a run",
    ]  # fmt: skip
    assert shlex.split(report) == ["refork", "kernel", "report", "a run"]
    other = store(tmp_path / "b", [], writer="chat:model", settings={"search": "hill", "seed": 3})
    assert shlex.split(commands(read_search(other))[0])[-8:] == [
        "--seed", "3", "--search", "hill", "--writer", "chat:model", "--out", "b",
    ]  # fmt: skip


def test_facts_of_kernel_and_machine(tmp_path: Path) -> None:
    search = read_search(store(tmp_path / "s", matmul(3)[0]))
    assert problem(search)["sizes: n"] == "512"
    assert list(machine(search))[:3] == ["compute ceiling", "memory ceiling", "noise of equal programs"]
    assert machine(search)["memory ceiling"] == "11\u00a0GB/s"


def test_a_search_that_goes_on_says_so(tmp_path: Path) -> None:
    lines = [line(0, -1, NAIVE, right(1.0)), line(1, 0, NAIVE + "//", right(2.0))]
    stopped = figures(read_search(store(tmp_path / "1", lines, state="stopped")))
    assert tried(stopped).endswith("its command goes on with it.")
    done = figures(read_search(store(tmp_path / "2", lines, state="done", best=1, final=right(2.0))))
    assert tried(done) == "1 kernel tried beside the original: 1 right, 0 failed."


def test_a_search_that_was_run(tmp_path: Path) -> None:
    """Each word makes the kernel half as fast again, and "bad" makes it wrong."""
    asked = Problem(
        name="words", entry="f", source="start", suffix=".c", sizes={"n": 4}, rtol=1e-4, atol=1e-5,
        arguments=(
            Argument(name="n", ctype="int", length=None, role="size"),
            Argument(name="a", ctype="float", length="n", role="out"),
        ),
    )  # fmt: skip

    def speed(candidate: Candidate) -> float | None:
        return None if "bad" in candidate.source else 1.5 ** candidate.source.count("good")

    def found(candidate: Candidate) -> list[Finding]:
        return [
            Finding(tool="Slow", category="memory", severity="warn", cause="It is slow.", action="Be good.")
        ]

    result = run_search(
        asked, KernelSearchSettings(evaluations=24, seed=1), tmp_path / "run",
        evaluator=TableEvaluator(speed, found, noise=1.05),
        writer=WordWriter(("good", "bad", "plain"), longest=6),
    )  # fmt: skip
    written = write_report(tmp_path / "run")
    told = written.figures
    assert told.best == result.best.number
    assert told.timing is not None
    assert told.timing.speedup == result.final.speedup
    assert told.timing.duel
    assert told.tried == len(result.nodes) - 1
    assert told.right == sum(node.evaluated.ok for node in result.nodes[1:])
    assert told.hits[0].tool == "Slow"
    assert "words runs" in written.markdown.read_text()
