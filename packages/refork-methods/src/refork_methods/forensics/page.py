"""The page of a forensics case: verdict, competing hypotheses, and each row's arms with their intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from refork.jsonl import write_whole
from refork.report.charts import Across, Figure, Row, intervals
from refork.report.page import environment
from refork.report.words import one_line
from refork.types import Json
from refork_methods.forensics.case import Case
from refork_methods.forensics.export import case_json
from refork_methods.forensics.pictures import dose_figure
from refork_methods.forensics.wording import NAMES, figure, locations, prediction_words, rate_words, span

_WORDS = {
    "span": span, "rate": rate_words, "prediction": prediction_words, "places": locations, "names": NAMES,
}  # fmt: skip


def write_report(case: Case, folder: Path, *, likelihood: bool = False) -> Json:
    """Write ``case.json`` and ``report.html``, each whole or not at all; what the JSON document says."""
    report = case_json(case, likelihood=likelihood)
    text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(folder / "case.json", text)
    write_whole(folder / "report.html", page_text(report))
    return report


def page_text(report: Json) -> str:
    """The page of a case, from what :func:`refork_methods.forensics.export.case_json` gave."""
    page = environment("refork_methods.forensics").get_template("forensics.html.j2")
    text: str = page.render(
        told=report, names=[s["hypothesis"] for s in report["table"]["standings"]], drawn=_drawn(report),
        words=_WORDS,
        designs={design["id"]: design["name"] for design in report["designs"]}
    )  # fmt: skip
    return text + "\n"


def _drawn(told: Json) -> list[Json]:
    return [{"row": row, "picture": _picture(row, told["hypotheses"])} for row in told["table"]["rows"]]


def _picture(row: Json, hypotheses: Sequence[Json]) -> Markup | None:
    """The arms of a row: rates over doses where all have doses, else one line each."""
    arms = [arm for arm in row["arms"] if arm["rate"] is not None]
    if not arms:
        return None
    if len(arms) > 1 and all(arm["dose"] is not None for arm in arms):
        return _doses(row, arms, hypotheses).html()
    bounds = (0.0, max(0.05, *(arm["high"] for arm in arms)))
    name = f"{row['name']}: rate of each arm with its 95 % interval"
    return intervals(
        [_line(arm) for arm in arms], name=name, across=Across(bounds=bounds), value="Rate"
    ).html()


def _doses(row: Json, arms: Sequence[Json], hypotheses: Sequence[Json]) -> Figure:
    predicted = [
        (
            one["name"],
            sorted((arm["dose"], p["rates"][arm["name"]]) for arm in arms if arm["name"] in p["rates"]),
        )
        for one in hypotheses
        for p in one["predictions"]
        if p["design"] == row["design"] and p["rates"]
    ]
    return dose_figure(arms, f"{row['name']}: rate at every dose", row["design_name"], predicted)


def _line(arm: Json) -> Row:
    text = f"{arm['hits']} of {arm['runs']}, {figure(arm['rate'])}"
    return Row(one_line(arm["name"], 40), arm["rate"], arm["low"], arm["high"], text)
