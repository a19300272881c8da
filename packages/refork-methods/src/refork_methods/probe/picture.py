"""The pictures of a probe run: AUROC under its ceiling, separability over its null, and the prompt sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from refork.report import palette
from refork.report.charts import Across, Cell, Dot, Figure, Level, Line, Plane, Row, curves, heat, intervals
from refork.types import Json


def areas_figure(rows: Sequence[tuple[str, str, Json]]) -> Figure:
    """AUROC of every probe and group with its interval; the ring is AUROC*, the most that can be reached."""
    across = Across("number", name="AUROC", ring="AUROC*, the ceiling", mark=(0.5, "coin"))
    found = [_area(name, group, part) for name, group, part in rows]
    return intervals(found, name="AUROC of each probe beside its ceiling", across=across, value="AUROC")


def _area(name: str, group: str, part: Json) -> Row:
    ceiling = part["ceiling"]
    limit = "AUROC* unknown" if ceiling is None else f"of {ceiling['estimate']:.3f}"
    told = "" if ceiling is None else f"ceiling ± {2 * (ceiling['se'] or 0.0):.3f}, two standard errors"
    return Row(
        ", ".join(filter(None, (name, group))), part["auroc"], part["low"], part["high"],
        f"{part['auroc']:.3f} {limit}" + ("  LEAK" if part["leak"] else ""),
        palette.LIGHT[0] if part["leak"] else palette.ROLES["ink"],
        ring=None if ceiling is None else ceiling["estimate"], tooltip=told,
    )  # fmt: skip


def curve_figure(curve: Json) -> Figure:
    """Separability less its null along the thinking, over the band of chance; a proven valley is marked."""
    above = [float(value) for value in curve["above"]]
    share = [i / max(1, len(above) - 1) for i in range(len(above))]
    chance = [Dot(x, 0.0, *ends) for x, *ends in zip(share, curve["low"], curve["high"], strict=True)]
    lines = [
        Line("separability", [Dot(x, y) for x, y in zip(share, above, strict=True)], marks=False),
        Line("chance, 95 % here", chance, colour=palette.SERIES[-1], marks=False, joined=False),
    ]
    valley = curve["valley"]
    if valley is not None and valley["real"]:
        name = f"valley, depth {valley['depth']:.3f} ({valley['low']:.3f} to {valley['high']:.3f})"
        ends = [Dot(share[valley[at]], above[valley[at]], tooltip=at) for at in ("start", "bottom", "end")]
        lines.append(Line(name, ends, colour=palette.LIGHT[0], joined=False))
    plane = Plane(
        "of the thinking", "above chance", "rate", "number", levels=[Level(curve["ever"], "chance, anywhere")]
    )
    return curves(lines, name="Separability along the thinking above what chance gives", plane=plane)


def sweep_figure(sweep: Json) -> Figure:
    """AUROC at every anchor of the prompt and every depth, as shares of the way from a coin to AUROC*."""
    count = len(sweep["areas"][0])
    places = [f"{i + 1}" for i in range(count)]
    if sweep["thinking"]:
        places[-1] = "first thought"
    cells = [
        _cell(part, place, f"layer {layer}")
        for layer, areas in reversed(list(zip(sweep["layers"], sweep["areas"], strict=True)))
        for part, place in zip(areas, places, strict=True)
    ]
    figure = heat(
        cells, name="Where in the prompt the outcome can be read", x="place in the user's words", y=""
    )
    note = "Colour: from brick (a coin) to blue (all that AUROC* allows). Number: AUROC in hundredths."
    return replace(figure, note=note)


def _cell(part: Json, place: str, layer: str) -> Cell:
    limit = part["ceiling"]["estimate"] if part["ceiling"] else None
    share = (part["auroc"] - 0.5) / (limit - 0.5) if limit is not None and limit > 0.5 else None
    known = "unknown" if limit is None else f"{limit:.3f}"
    told = f"AUROC {part['auroc']:.3f} ({part['low']:.3f} to {part['high']:.3f}), AUROC* {known}"
    return Cell(place, layer, f"{100 * part['auroc']:.0f}", palette.colour(share), told, "#fff")
