"""The numbers of a report, by hand; its reader against what the search writes, and what it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kernel.report.searches import FLAGS, NAIVE, facts, failed, finding, line, matmul, right, store
from refork.errors import BadInput
from refork.plain import from_json
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.problem import Argument, Problem
from refork_methods.kernel.report import figures, read_search, write_report
from refork_methods.kernel.report.figures import Figures
from refork_methods.kernel.report.page import commands, deck, headline
from refork_methods.kernel.roofline import Ceilings, Work
from refork_methods.kernel.search.folder import SearchFolder, SearchNode
from refork_methods.kernel.search.model import KernelSearchSettings, Observation, Proposal
from refork_methods.kernel.search.run import run_search
from refork_methods.kernel.tool import Finding
from support.kernel_search_fakes import TableEvaluator, WordWriter


def numbers(tmp_path: Path, lines: list[dict[str, Any]], *args: Any, **changed: Any) -> Figures:
    return figures(read_search(store(tmp_path / "s", lines, *args, **changed)))


def small() -> list[dict[str, Any]]:
    """Speed-ups 1 -> 2 -> 8 on the way, beside it 1.2, a wrong and two that do not build."""
    return [
        line(0, -1, NAIVE, right(1.0)),
        line(1, 0, NAIVE + "//1", right(2.0), move="a", answers=("A", "B")),
        line(2, 0, NAIVE + "//2", failed("build", "k.c:7: error: x"), move="b", answers=("A",)),
        line(3, 1, NAIVE + "//3", right(8.0), move="c", answers=("B",)),
        line(4, 1, NAIVE + "//4", right(1.2), move="d", answers=("B", "Other")),
        line(5, 3, NAIVE + "//5", failed("build", "k.c:93: error: x"), move="e"),
        line(6, 3, NAIVE + "//6", failed("check", "off"), move="f", answers=("B",)),
    ]


SEEN = {0: [finding("A"), finding("B")], 1: [finding("B")], 3: [finding("C"), finding("B")]}


def test_counts_leave_the_original_out(tmp_path: Path) -> None:
    told = numbers(tmp_path, small(), SEEN)
    assert (told.tried, told.right, told.failed) == (6, 3, {"build": 2, "check": 1})
    assert (told.best, told.path) == (3, (0, 1, 3))
    assert told.timing is not None
    assert (told.timing.speedup, told.timing.samples, told.timing.duel) == (8.0, 7, False)
    assert told.timing.beyond_noise is True


def test_hits_by_hand(tmp_path: Path) -> None:
    hits = {hit.tool: hit for hit in numbers(tmp_path, small(), SEEN).hits}
    assert set(hits) == {"A", "B", "C"}  # Other never fired
    # A: node 1 doubles, node 2 fails. B: nodes 1 (2x), 3 (4x), 4 (0.6x) and 6, which fails.
    assert (hits["A"].fires, hits["A"].acted, hits["A"].right) == (1, 2, 1)
    assert hits["A"].large == 0.5
    assert hits["A"].gain == pytest.approx(2.0)
    assert (hits["B"].fires, hits["B"].acted, hits["B"].right) == (3, 4, 3)
    assert hits["B"].large == 0.5
    assert hits["B"].gain == pytest.approx((2.0 * 4.0 * 0.6) ** (1 / 3))
    assert (hits["C"].acted, hits["C"].large, hits["C"].gain) == (0, None, None)


def test_failures_of_one_kind_are_one_row(tmp_path: Path) -> None:
    told = numbers(tmp_path, small(), SEEN)
    first, second = told.failures
    assert (first.stage, first.count, first.why, first.nodes) == ("build", 2, "k.c:7: error: x", (2, 5))
    assert (second.stage, second.count) == ("check", 1)
    assert told.failures_left == 0


def test_findings_before_and_after(tmp_path: Path) -> None:
    told = numbers(tmp_path, small(), SEEN)
    assert told.compared is not None
    assert [(row.tool, row.state) for row in told.compared] == [("A", "gone"), ("B", "stays"), ("C", "new")]
    assert numbers(tmp_path / "2", small(), {0: []}).compared is None
    empty = numbers(tmp_path / "3", small(), {0: [], 3: []})
    assert empty.compared == ()


def test_the_roof_by_hand(tmp_path: Path) -> None:
    """2 n^3 flop in 0.19 s; the compute ceiling of 48 Gflop/s binds at 85 flop per byte."""
    told = numbers(tmp_path, small())
    assert told.original is not None
    assert told.reached is not None
    assert told.original.flops == pytest.approx(2 * 512**3 / 0.19)
    assert told.reached.flops == pytest.approx(8 * 2 * 512**3 / 0.19)
    assert told.reached.roof_share == pytest.approx(8 * 2 * 512**3 / 0.19 / 48e9)
    unknown = numbers(tmp_path / "2", small(), problem={"name": "f", "flops": None, "bytes": None})
    assert unknown.reached is None
    uncalibrated = numbers(tmp_path / "3", small(), ceilings=None)
    assert uncalibrated.reached is not None
    assert uncalibrated.reached.roof_share is None


def test_the_duel_has_the_last_word(tmp_path: Path) -> None:
    final = right(1.6) | {"samples": [0.1] * 15}
    told = numbers(tmp_path, small(), SEEN, state="done", best=1, final=final)
    assert (told.best, told.path) == (1, (0, 1))
    assert told.timing is not None
    assert (told.timing.speedup, told.timing.duel, told.timing.samples) == (1.6, True, 15)
    assert headline(told) == "matmul runs 1.6 times as fast"
    assert "In the last duel, 15 timings" in deck(told)
    assert told.reached is not None
    assert told.reached.flops == pytest.approx(1.6 * 2 * 512**3 / 0.19)


@pytest.mark.parametrize("final", [right(1.03), right(1.2) | {"low": 0.9}])
def test_a_gain_within_noise_or_chance_is_none(tmp_path: Path, final: dict[str, Any]) -> None:
    told = numbers(tmp_path, small(), state="done", best=1, final=final)
    assert told.timing is not None
    assert told.timing.beyond_noise is False
    assert "no proven gain" in headline(told)
    assert "no proven gain" in deck(told)


def test_warm_caches_are_told_and_take_a_gain_back(tmp_path: Path) -> None:
    warm = {"warm": 1.2, "warm_low": 1.1, "warm_high": 1.3, "overlaps": ["a and c"]}
    told = numbers(tmp_path / "1", small(), state="done", best=1, final=right(1.6) | warm)
    assert "With its arrays in the caches it is 1.2× as fast." in deck(told)
    assert told.granted[-1] == "a and c do not overlap"
    warm |= {"warm": 0.95, "warm_low": 0.94, "warm_high": 0.96}
    told = numbers(tmp_path / "2", small(), state="done", best=1, final=right(1.6) | warm)
    assert "0.95× as fast, slower than the original: no proven gain." in deck(told)
    assert "no proven gain" in headline(told)


def test_searches_without_a_success(tmp_path: Path) -> None:
    assert headline(numbers(tmp_path / "1", [])) == "matmul: nothing was tried yet"
    only = numbers(tmp_path / "2", [line(0, -1, NAIVE, right(1.0))])
    assert (only.tried, only.best, only.path) == (0, 0, (0,))
    assert headline(only) == "matmul: nothing was tried yet"
    wrong = [line(0, -1, NAIVE, failed("run", "x")), line(1, 0, NAIVE, failed("build", "y"))]
    none = numbers(tmp_path / "3", wrong)
    assert (none.best, none.path, none.timing, none.tried, none.right) == (None, (), None, 1, 0)
    assert headline(none) == "matmul: no kernel passed"
    alone = numbers(tmp_path / "4", [line(0, -1, NAIVE, right(1.0)), line(1, 0, NAIVE, right(0.5))])
    assert headline(alone) == "matmul: no kernel beat the original"


def test_json_has_no_infinities(tmp_path: Path) -> None:
    body = numbers(tmp_path, small(), SEEN).to_json()
    again = json.loads(json.dumps(body, allow_nan=False))
    assert again == body
    assert [row["state"] for row in again["compared"]] == ["gone", "stays", "new"]


def test_reads_what_the_search_writes(tmp_path: Path) -> None:
    strided = from_json(Finding, finding("StridedAccess"))
    made = Proposal(
        NAIVE + "//", FLAGS, "tile(k,64)", "why", "tile", ("StridedAccess",), granted=("no overlap",)
    )
    with SearchFolder(tmp_path / "s", facts()) as folder:
        root = SearchNode(
            number=0, parent=-1, candidate=Candidate(NAIVE, FLAGS), evaluated=Evaluated.from_json(right(1.0))
        )
        folder.add_node(root)
        folder.add_observation(0, Observation(findings=(strided,)))
        folder.add_node(
            SearchNode(
                number=1, parent=0, candidate=made.candidate, proposal=made, notes=("a note",),
                evaluated=Evaluated.from_json(failed("check", "wrong")),
            )
        )  # fmt: skip
        folder.note(state="done", best=0, final=right(1.0))
    search = read_search(tmp_path / "s")
    _, second = search.nodes
    assert second.proposal == made
    assert (search.findings(0), search.findings(1), second.notes) == ((strided,), None, ("a note",))
    assert not second.evaluated.ok
    assert second.evaluated.why == "wrong"
    assert search.winner == 0
    assert search.final is not None
    assert search.ceilings == Ceilings(48e9, 11e9, 1.06)
    assert search.work == Work(2.0 * 512**3, 12.0 * 512**2)
    assert figures(search).granted == ()


@pytest.mark.parametrize("none", [None, 0.0])
def test_work_that_is_not_declared_is_no_zero(tmp_path: Path, none: float | None) -> None:
    told = facts()["problem"]
    found = numbers(tmp_path, small(), problem=told | {"flops": none}).original
    assert found is not None
    assert found.flops == none
    assert found.roof_share is not None
    search = read_search(store(tmp_path / "t", small(), problem=told | {"bytes": none}))
    assert search.work is None
    assert figures(search).original is None


def test_a_cut_last_line_is_passed_over(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", matmul(5)[0])
    with (folder / "nodes.jsonl").open("a") as stream:
        stream.write('{"number": 5, "par')
    assert len(read_search(folder).nodes) == 5


def test_the_duel_counts_only_when_the_search_has_ended(tmp_path: Path) -> None:
    folder = store(tmp_path / "s", matmul(5)[0], state="stopped", best=0, final=right(1.0))
    search = read_search(folder)
    assert search.final is None
    assert search.winner is None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ceilings": {"flops": -1.0, "bandwidth": 1.0}}, "ceilings"),
        ({"ceilings": {"flops": "many", "bandwidth": 1.0}}, "flops"),
        ({"state": "done", "best": 9, "final": right(1.0)}, "best is node 9"),
        ({"state": "done", "best": 0, "final": right(1.0) | {"speedup": 0.0}}, "speedup is 0"),
    ],
)
def test_what_is_not_sound_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_search(store(tmp_path / "s", matmul(3)[0], **changed))


@pytest.mark.parametrize("value", [0.0, -1.0, "fast"])
def test_a_time_is_a_number_above_0(tmp_path: Path, value: object) -> None:
    lines = [line(0, -1, NAIVE, right(1.0) | {"seconds": value})]
    with pytest.raises(BadInput, match="seconds"):
        read_search(store(tmp_path / "s", lines))


def test_not_the_folder_of_a_search(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="not the folder of a search"):
        read_search(tmp_path)
    (tmp_path / "search.json").write_text(json.dumps({"other": 1}))
    with pytest.raises(BadInput, match="not the record of a search"):
        read_search(tmp_path)


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
    asked = {"file": "kernels/mm fast.c", "set": ["n=512", "c=n*n:out", "rtol=1e-3"], "out": "runs/mm"}
    again, report = commands(read_search(store(tmp_path / "mm", matmul(3)[0], asked=asked)))
    assert shlex.split(again) == [
        "refork", "kernel", "search", "kernels/mm fast.c", "--entry", "matmul", "--set", "n=512", "--set",
        "c=n*n:out", "--set", "rtol=1e-3", "--evaluations", "40", "--seed", "0", "--out", "runs/mm",
    ]  # fmt: skip
    assert shlex.split(report)[-1] == "runs/mm"


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
