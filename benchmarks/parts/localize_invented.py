"""Invented reports about installed packages: a behaviour in a user's words, without the function's name.

Nothing is broken there: each text says what a fault in one function would look like, written from knowledge
of what the function is for, before any of them was searched. They are few: a check that the investigator is
of use on code that nobody made for it, not a measurement of it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from refork_methods.localize.baseline import FileBm25
from refork_methods.localize.index import RepoIndex
from refork_methods.localize.investigate import investigate
from refork_methods.localize.ranking import is_test
from refork_methods.localize.settings import InvestigateSettings
from refork_methods.localize.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Report:
    """``path``: the file, under ``folder`` of an installed package, whose function the text is about."""

    folder: str
    path: str
    text: str


REPORTS = (
    Report(
        "networkx",
        "algorithms/coloring/greedy_coloring.py",
        "Two adjacent vertices get the same colour. When vertices are taken with the largest degree first, "
        "neighbours should never share a colour.",
    ),
    Report(
        "networkx",
        "algorithms/dag.py",
        "Ordering tasks so that prerequisites come before what depends on them does not complain when the "
        "arrows run in a circle. I expected an error about a cycle.",
    ),
    Report(
        "networkx",
        "algorithms/core.py",
        "Peeling off the vertices with fewer than k neighbours leaves some that should have been removed.",
    ),
    Report(
        "networkx",
        "algorithms/bridges.py",
        "An edge whose removal cuts the network in two is not reported when it leads to a dead end.",
    ),
    Report(
        "networkx",
        "algorithms/euler.py",
        "A closed trajectory that uses every edge exactly once is said not to exist in a directed square.",
    ),
    Report(
        "statsmodels/stats",
        "multitest.py",
        "Correcting p-values for many comparisons: with the step-up procedure for the false discovery rate "
        "some corrected values come out above 1.",
    ),
    Report(
        "statsmodels/stats",
        "proportion.py",
        "The confidence interval for 0 successes out of 20 has a negative lower end with the score method.",
    ),
    Report(
        "click",
        "_termui_impl.py",
        "The bar that shows how far the work has come says 00:00:00 remaining right after the first item.",
    ),
    Report(
        "jinja2",
        "filters.py",
        "Shortening a long text in a template cuts in the middle of a word although I asked for whole words.",
    ),
    Report(
        "starlette",
        "middleware/cors.py",
        "A browser's preflight request from an origin that the pattern allows is answered with 400.",
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """Ranks of the right file from 1 (None: not among those named), by the investigator and by BM25."""

    report: Report
    investigator: int | None
    plain: int
    cleaned: int


def installed(report: Report) -> Path | None:
    """The folder of a report's package; None where it is not installed."""
    package, _, inner = report.folder.partition("/")
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent / inner if spec and spec.origin else None


def found(reports: tuple[Report, ...] = REPORTS, named: int = 10) -> list[Found]:
    """The investigator (``named`` places) and BM25 over the files that are no tests, on what is installed."""
    indexes: dict[str, tuple[RepoIndex, FileBm25]] = {}
    rows: list[Found] = []
    for report in reports:
        folder = installed(report)
        if folder is None:
            continue
        if report.folder not in indexes:
            snapshot = Snapshot(folder)
            sources = [path for path in snapshot.files if path.endswith(".py") and not is_test(path)]
            indexes[report.folder] = (RepoIndex.build(snapshot), FileBm25(snapshot, sources))
        index, bm25 = indexes[report.folder]
        case = investigate(index, report.text, settings=InvestigateSettings(locations=named))
        paths = list(case.paths)
        rows.append(
            Found(
                report,
                paths.index(report.path) + 1 if report.path in paths else None,
                bm25.ranked(report.text).index(report.path) + 1,
                bm25.ranked(report.text, cleaned=True).index(report.path) + 1,
            )
        )
    return rows


def main() -> None:
    """Print the ranks, and how many files each way has first and among its first five."""
    rows = found()
    for row in rows:
        place = f"{row.report.folder}/{row.report.path}"
        print(f"{place:48s} investigator {row.investigator}, BM25 {row.plain}, cleaned {row.cleaned}")
    for name in ("investigator", "plain", "cleaned"):
        ranks = [getattr(row, name) or 10**6 for row in rows]
        first, five = sum(rank == 1 for rank in ranks), sum(rank <= 5 for rank in ranks)
        print(f"{name:13s} first {first}, among the first five {five}, of {len(ranks)}")


if __name__ == "__main__":
    main()
