"""A rule that breaks offers nothing, is told with its traceback, and ends no search and no diagnosis."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernel.search.helpers_search import PROBLEM
from refork.errors import BadInput
from refork_methods.kernel import rewrite
from refork_methods.kernel.bench.result import Candidate, Evaluated
from refork_methods.kernel.commands import app
from refork_methods.kernel.rewrite.moves import moves
from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule
from refork_methods.kernel.rewrite.unit import Unit, read_unit
from refork_methods.kernel.roofline import classify
from refork_methods.kernel.search import on_file
from refork_methods.kernel.search.folder import read_history
from refork_methods.kernel.search.model import KernelSearchSettings, Observation
from refork_methods.kernel.search.rewriting import RewriteWriter
from refork_methods.kernel.search.run import SearchResult, run_search
from refork_methods.kernel.signals import Signals
from refork_methods.kernel.tool import CheckResult, MicroTool, Slip, run_tools
from support.kernel_search_fakes import TableEvaluator

FLAGS = ("-O3",)
listing = sys.modules[moves.__module__]
SUM = """void sum(int n, const float *x, float *r) {
    float s = 0.0f;
    for (int i = 0; i < n; i++)
        s += x[i];
    r[0] = s;
}
"""
EMPTY = """void last(int n, const float *x, float *r) {
    int i = 0;
    for (i = 0; i < n; i++)
        ;
    ;
    if (i > 3) return;
    for (int k = 0; k < n; k++)
        r[0] += x[k];
}
"""


def no_offers(unit: Unit) -> list[dict[str, str | int]]:
    raise ZeroDivisionError("no counts")


def no_make(unit: Unit, given: Parameters) -> Changed:
    raise KeyError("s")


BROKEN = (
    Rule("broken-offer", (), no_offers, no_make),
    Rule("broken-make", (), lambda unit: [{"loop": "i"}], no_make),
)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rules of the library break, one before and one after those that work."""
    monkeypatch.setattr(listing, "RULES", (BROKEN[0], *listing.RULES, BROKEN[1]))


def test_statements_that_are_empty_are_read() -> None:
    assert read_unit(EMPTY, "last").body
    assert moves(EMPTY, "last", FLAGS)


@pytest.mark.usefixtures("broken")
def test_the_other_rules_offer_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    slips: list[Slip] = []
    found = moves(SUM, "sum", FLAGS, slips)
    assert [one.rule for one in slips] == ["rule broken-offer", "rule broken-make(i)"]
    assert [one.error for one in slips] == ["ZeroDivisionError: no counts", "KeyError: 's'"]
    assert "in no_offers" in slips[0].trace
    with pytest.raises(ZeroDivisionError):
        moves(SUM, "sum", FLAGS)
    monkeypatch.undo()
    assert found == moves(SUM, "sum", FLAGS)


def searched(folder: Path, tried: TableEvaluator | None = None, **given: Any) -> SearchResult:
    settings = KernelSearchSettings(**{"evaluations": 6, "feedback": "none", **given})
    problem = replace(PROBLEM, source=SUM, entry="sum")
    writer = RewriteWriter(rewrite, settings.unguided, ("restrict",))
    return run_search(
        problem, settings, folder, evaluator=tried or TableEvaluator(lambda one: 1.0), writer=writer
    )


@pytest.mark.usefixtures("broken")
def test_a_search_goes_on_and_keeps_each_slip_once(tmp_path: Path) -> None:
    first = searched(tmp_path, evaluations=3)
    again = searched(tmp_path)
    assert len(again.nodes) == 7
    known = [one.rule for one in again.slips]
    assert known[:2] == ["rule broken-offer", "rule broken-make(i)"]
    assert len({(one.rule, one.error) for one in again.slips}) == len(again.slips)
    assert again.slips[: len(first.slips)] == first.slips
    assert tuple(read_history(tmp_path).slips) == again.slips
    assert again.to_json()["slips"][0] == {
        "rule": "rule broken-offer", "error": "ZeroDivisionError: no counts", "trace": first.slips[0].trace,
    }  # fmt: skip


def test_a_move_that_breaks_when_it_is_made_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rewrite.apply

    def apply(source: str, entry: str, flags: tuple[str, ...], move: Any) -> tuple[str, tuple[str, ...]]:
        if move.name == "simd":
            raise RecursionError("deep")
        return real(source, entry, flags, move)

    monkeypatch.setattr(rewrite, "apply", apply)
    found = searched(tmp_path, evaluations=12)
    assert any(one.rule.startswith("rule simd(") and "RecursionError" in one.error for one in found.slips)
    assert not any(node.proposal and node.proposal.family == "simd" for node in found.nodes)


def test_a_source_that_a_move_made_unreadable_closes_that_node_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = rewrite.moves

    def some(
        source: str, entry: str, flags: tuple[str, ...], slips: list[Slip] | None = None
    ) -> Sequence[Any]:
        if source != SUM:
            raise BadInput("two names hide each other")
        return real(source, entry, flags, slips)

    monkeypatch.setattr(rewrite, "moves", some)
    found = searched(tmp_path, evaluations=40)
    assert {node.parent for node in found.nodes[1:]} <= {
        0,
        *(n.number for n in found.nodes if n.candidate.source == SUM),
    }
    assert any(one.rule.startswith("reading node ") for one in found.slips)


def test_a_kernel_that_cannot_be_read_is_still_the_users_error(tmp_path: Path) -> None:
    settings = KernelSearchSettings(evaluations=3, feedback="none")
    problem = replace(PROBLEM, source=SUM, entry="other")
    with pytest.raises(BadInput, match="no function other"):
        run_search(
            problem, settings, tmp_path, evaluator=TableEvaluator(lambda one: 1.0),
            writer=RewriteWriter(rewrite),
        )  # fmt: skip


def test_a_diagnosis_that_breaks_is_absent_and_told(tmp_path: Path) -> None:
    class Breaking:
        """Profiles nothing: its first diagnosis breaks, a tool of the next ones does."""

        def __init__(self) -> None:
            self.inner, self.asked = TableEvaluator(lambda one: float(len(one.source))), 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def observe(self, candidate: Candidate, evaluated: Evaluated) -> Observation:
            self.asked += 1
            if self.asked == 1:
                raise IndexError("no such line")
            return Observation(slips=(Slip("tool Strided", "ValueError: inf"),))

    found = searched(tmp_path, Breaking(), feedback="diagnosed")
    assert [one.rule for one in found.slips] == ["diagnosis", "tool Strided"]
    history = read_history(tmp_path)
    assert history.observations[0].absent == {"diagnosis": "IndexError: no such line"}
    assert all(not one.slips for one in history.observations.values())


def test_a_tool_that_breaks_silences_no_other() -> None:
    def breaks(signals: Signals) -> CheckResult | None:
        raise OverflowError("too many lines")

    def finds(signals: Signals) -> CheckResult | None:
        return CheckResult(severity="warn", cause="It strides.", action="Do.")

    bounds = frozenset(("memory", "mixed"))
    tools = [
        MicroTool(name, ("mca",), "memory", bounds, check) for name, check in (("A", breaks), ("B", finds))
    ]
    told = run_tools(tools, Signals({"mca": {"x": 1.0}}), classify("memory", None))
    assert [one.tool for one in told.findings] == ["B"]
    assert told.ran == ("B",)
    assert [(one.rule, one.error) for one in told.slips] == [("tool A", "OverflowError: too many lines")]


@pytest.mark.usefixtures("broken")
def test_the_command_says_what_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_file, "search_problem", lambda *args, **given: searched(tmp_path / "s"))
    (tmp_path / "sum.c").write_text(f"// refork: n=8 x=n r=1:out\n{SUM}")
    done = CliRunner().invoke(
        app, ["search", str(tmp_path / "sum.c"), "--out", str(tmp_path / "s"), "--json"]
    )
    assert json.loads(done.stdout)["slips"][0]["rule"] == "rule broken-offer"
    assert "a bug of ours, passed over: rule broken-offer: ZeroDivisionError" in done.stderr
    assert "slips.jsonl" in done.stderr
