"""The page of a cliff run: the chance of success along every scanned trace, proven cliffs marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from refork.report.data import Cliff, Token, Trace, TraceStep
from refork.report.page import environment
from refork.report.value_chart import value_figure
from refork.types import Json

#: Traces that are drawn; the files hold all.
MOST = 40


def write_page(folder: Path, report: Json, tokens: Sequence[Json]) -> Path:
    """Write ``report.html`` into a run's folder from its summary and token records; where it is."""
    traces: dict[str, list[Json]] = {}
    for row in tokens:
        traces.setdefault(str(row["leaf"]), []).append(row)
    cliffs: dict[str, list[Json]] = {}
    for row in report["cliffs"] or ():
        if row["real"]:
            cliffs.setdefault(str(row["leaf"]), []).append(row)
    # Stable: traces with a cliff first, in each half the order of the scan.
    order = sorted(traces, key=lambda leaf: leaf not in cliffs)
    drawn = [_drawn(leaf, traces[leaf], cliffs.get(leaf, [])) for leaf in order[:MOST]]
    page = environment("refork_methods.cliff").get_template("cliffs.html.j2")
    text = page.render(told=report, headline=_headline(report), drawn=drawn)
    file = folder / "report.html"
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _headline(told: Json) -> str:
    if told["tested"] is None:
        return f"{told['nominated']} tokens may be cliffs; none was tested again yet"
    return f"{told['survived']} of {told['tested']} suspected cliffs are real"


def _drawn(leaf: str, rows: Sequence[Json], cliffs: Sequence[Json]) -> Json:
    shown = tuple(
        Token(
            text=row["text"], index=row["index"], p=row["pi"], value=row["value"], low=row["low"],
            high=row["high"], n=row["n"],
        )
        for row in rows
    )  # fmt: skip
    steepest = max(cliffs, key=lambda row: float(row["drop"]), default=None)
    mark = None
    if steepest is not None:
        before, after = (k / n for k, n in (steepest["before"], steepest["after"]))
        mark = Cliff(token_index=steepest["index"], text=steepest["text"], before=before, after=after)
    text = "".join(str(row["text"]) for row in rows)
    trace = Trace(steps=(TraceStep(kind="action", text=text, tokens=shown),), cliff=mark)
    return {
        "leaf": leaf,
        "words": _words(cliffs),
        "figure": value_figure(trace).html("The tokens as a table"),
    }


def _words(cliffs: Sequence[Json]) -> str:
    if not cliffs:
        return "No proven cliff."
    told = [
        f"{row['text']!r} (token {row['index']}): {row['before'][0] / row['before'][1]:.0%} to "
        f"{row['after'][0] / row['after'][1]:.0%}" + (f", {row['kind']}" if row["kind"] else "")
        for row in cliffs
    ]
    return "; ".join(told)
