"""The page of a forensics case: verdict, competing hypotheses, and each row's arms with their intervals."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from refork.report.page import environment
from refork.report.pictures import NARROW, WIDE, Row, interval_rows
from refork.report.words import one_line
from refork.types import Json
from refork_methods.forensics.dose_picture import Mark, dose_picture
from refork_methods.forensics.markdown import NAMES, figure, places, prediction_words, rate_words, span

_WORDS = {
    "span": span, "rate": rate_words, "prediction": prediction_words, "places": places, "names": NAMES,
}  # fmt: skip


def write_page(folder: Path, told: Json) -> Path:
    """Write ``report.html`` into a case's folder from its JSON document; where it is."""
    page = environment("refork_methods.forensics").get_template("forensics.html.j2")
    text = page.render(
        told=told, names=[s["hypothesis"] for s in told["table"]["standings"]], drawn=_drawn(told),
        words=_WORDS,
        designs={design["id"]: design["name"] for design in told["designs"]}
    )  # fmt: skip
    file = folder / "report.html"
    file.write_text(text + "\n", encoding="utf-8")
    return file


def _drawn(told: Json) -> list[Json]:
    return [{"row": row, "picture": _picture(row, told["hypotheses"])} for row in told["table"]["rows"]]


def _picture(row: Json, hypotheses: Sequence[Json]) -> Markup | None:
    """The arms of a row: rates over doses where all have doses, else one line each."""
    arms = [arm for arm in row["arms"] if arm["rate"] is not None]
    if not arms:
        return None
    if len(arms) > 1 and all(arm["dose"] is not None for arm in arms):
        return _doses(row, arms, hypotheses)
    lines = [_line(arm) for arm in arms]
    name = f"{row['name']}: rate of each arm with its 95 % interval"
    axis = (0.0, max(0.05, *(arm["high"] for arm in arms)))
    wide, narrow = (interval_rows(lines, axis, name=name, width=width) for width in (WIDE, NARROW))
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(wide, narrow)


def _doses(row: Json, arms: Sequence[Json], hypotheses: Sequence[Json]) -> Markup:
    """The dose-response as an image, so that the page's styles do not reach into it."""
    marks = [
        Mark(arm["dose"], arm["rate"], arm["low"], arm["high"], f"{arm['hits']}/{arm['runs']}")
        for arm in arms
    ]
    curves = [
        (
            one["name"],
            sorted((arm["dose"], p["rates"][arm["name"]]) for arm in arms if arm["name"] in p["rates"]),
        )
        for one in hypotheses
        for p in one["predictions"]
        if p["design"] == row["design"] and p["rates"]
    ]
    picture = dose_picture(marks, f"{row['name']}: rate at every dose", row["design_name"], curves)
    data = b64encode(picture.encode()).decode()
    name = f"{row['name']}: rate at every dose with its 95 % interval"
    return Markup('<img alt="{}" src="data:image/svg+xml;base64,{}">').format(name, data)


def _line(arm: Json) -> Row:
    text = f"{arm['hits']} of {arm['runs']}, {figure(arm['rate'])}"
    return Row(one_line(arm["name"], 19), arm["rate"], arm["low"], arm["high"], text, "plain")
