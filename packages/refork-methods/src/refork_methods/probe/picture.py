"""The pictures of a probe run: AUROC under its ceiling, separability over its null, and the prompt sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from refork.report.palette import shade
from refork.report.pictures import WIDE, Frame, band
from refork.report.svg import label, line, path, svg, tag, ticks
from refork.types import Json

_STEP: Final = 38


def areas_picture(rows: Sequence[tuple[str, str, Json]], width: int = WIDE) -> Markup:
    """AUROC of every probe and group with its interval; a bar ends where AUROC* does, with its error."""
    low = min([0.5, *(part["low"] for _, _, part in rows)]) - 0.01
    marks = [mark for mark in ticks(low, 1.0, 6) if low - 1e-9 <= mark <= 1.0]
    frame = Frame(226, width - 132, 44, 44 + _STEP * len(rows), low, 1.0)
    drawn = [_legend(frame, width)]
    for mark in marks:
        x = frame.x(mark)
        drawn.append(line(x, frame.top - 8, x, frame.bottom, "zero" if mark == 0.5 else "grid"))
        drawn.append(label(x, frame.bottom + 18, f"{mark:g}", class_="tick mid"))
    drawn.append(
        label(frame.x(0.5) if low <= 0.5 else frame.left, frame.bottom + 34, "coin", class_="tick mid")
    )
    drawn.append(label(frame.right, frame.bottom + 34, "AUROC", class_="tick mid"))
    for number, (name, group, part) in enumerate(rows):
        drawn += _area_row(name, group, part, frame, frame.top + 16 + _STEP * number, width)
    return svg(width, frame.bottom + 44, "AUROC of each probe beside its ceiling", *drawn, class_="values")


def _legend(frame: Frame, width: int) -> Markup:
    words = "bar: as far as AUROC* allows, darker end: ± 2 standard errors; dot: the probe, 95 %"
    return label(width, frame.top - 26, words, class_="tick end")


def _area_row(name: str, group: str, part: Json, frame: Frame, y: float, width: int) -> list[Markup]:
    drawn = [
        label(0, y + 5, name, class_="row-name"),
        label(frame.left - 16, y + 5, group, class_="tick end"),
    ]
    ceiling = part["ceiling"]
    start = frame.x(max(0.5, frame.low_x))
    if ceiling is not None:
        top, spread = ceiling["estimate"], 2 * (ceiling["se"] or 0.0)
        drawn.append(
            tag("rect", x=start, y=y - 9, width=max(0.0, frame.x(top) - start), height=18, class_="band")
        )
        left, right = frame.x(max(frame.low_x, top - spread)), frame.x(min(1.0, top + spread))
        drawn.append(tag("rect", x=left, y=y - 9, width=right - left, height=18, class_="band"))
        drawn.append(line(frame.x(top), y - 12, frame.x(top), y + 12, "zero"))
    low, high = frame.x(part["low"]), frame.x(part["high"])
    kind = "s0" if part["leak"] else "plain"
    drawn.append(line(low, y, high, y, f"whisker {kind}"))
    told = f"{name}, {group}: {part['auroc']:.3f} ({part['low']:.3f} to {part['high']:.3f})"
    drawn.append(
        tag("circle", tag("title", told), cx=frame.x(part["auroc"]), cy=y, r=5.5, class_=f"mark {kind}")
    )
    limit = "AUROC* unknown" if ceiling is None else f"of {ceiling['estimate']:.3f}"
    words = f"{part['auroc']:.3f} {limit}" + ("  LEAK" if part["leak"] else "")
    drawn.append(label(width, y + 5, words, class_="row-text end"))
    return drawn


def curve_picture(curve: Json, width: int = WIDE) -> Markup:
    """Separability less its null along the thinking, over the band of chance; a proven valley is marked."""
    above = [float(value) for value in curve["above"]]
    count = len(above)
    top = max([*above, *curve["high"], curve["ever"]]) * 1.08
    bottom = min([0.0, *above, *curve["low"]]) * 1.08
    marks = [mark for mark in ticks(bottom, top, 5) if bottom <= mark]
    frame = Frame(56, width - 150, 22, 256, 0, max(1, count - 1), bottom, max(marks[-1], top))
    drawn: list[Markup] = []
    for mark in marks:
        y = frame.y(mark)
        drawn.append(line(frame.left, y, frame.right, y, "axis" if mark == 0 else "grid"))
        drawn.append(label(frame.left - 8, y + 4, f"{mark:g}", class_="tick end"))
    for share in (0, 25, 50, 75, 100):
        x = frame.left + (frame.right - frame.left) * share / 100
        drawn.append(label(x, frame.bottom + 18, f"{share} %", class_="tick mid"))
    middle = (frame.left + frame.right) / 2
    drawn.append(label(middle, frame.bottom + 34, "of the thinking", class_="tick mid"))
    xs = [frame.x(i) for i in range(count)]
    drawn += band(xs, list(zip(curve["low"], curve["high"], strict=True)), frame)
    ever = frame.y(curve["ever"])
    drawn.append(tag("path", d=path([(frame.left, ever), (frame.right, ever)]), class_="over-gaps"))
    drawn.append(
        tag("path", d=path([(x, frame.y(v)) for x, v in zip(xs, above, strict=True)]), class_="curve")
    )
    drawn += _side_labels(frame, above[-1], curve)
    drawn += _valley(curve["valley"], above, frame)
    name = "Separability along the thinking above what chance gives"
    return svg(width, frame.bottom + 44, name, *drawn, class_="values")


def _side_labels(frame: Frame, last: float, curve: Json) -> list[Markup]:
    """Names at the right end, moved apart where they would touch."""
    wanted = [
        (frame.y(last), "separability", "figure"),
        (frame.y(curve["ever"]), "chance, anywhere", "tick"),
        (frame.y(0.0), "chance, 95 % here", "tick"),
    ]
    wanted.sort(key=lambda item: item[0])
    places = [wanted[0][0]]
    for _, after in pairwise(wanted):
        places.append(max(after[0], places[-1] + 16))
    return [
        label(frame.right + 8, y + 4, words, class_=kind)
        for y, (_, words, kind) in zip(places, wanted, strict=True)
    ]


def _valley(valley: Json | None, above: Sequence[float], frame: Frame) -> list[Markup]:
    if valley is None or not valley["real"]:
        return []
    at = valley["bottom"]
    x, y = frame.x(at), frame.y(above[at])
    words = f"valley, depth {valley['depth']:.3f} [{valley['low']:.3f}, {valley['high']:.3f}]"
    drawn = [tag("circle", cx=x, cy=y, r=5, class_="mark s0")]
    drawn += [
        tag("circle", cx=frame.x(i), cy=frame.y(above[i]), r=3.5, class_="dot")
        for i in (valley["start"], valley["end"])
    ]
    # Above all of the curve that the words stand over.
    near = above[max(0, at - 25) : at + 26]
    drawn.append(label(x, min(frame.y(max(near)), y) - 12, words, class_="cliff-text mid"))
    return drawn


def sweep_picture(sweep: Json, width: int = WIDE) -> Markup:
    """AUROC at every anchor of the prompt and every depth, as shares of the way from a coin to AUROC*."""
    rows, columns = sweep["areas"], len(sweep["areas"][0])
    left, top, step = 66.0, 24.0, min(34.0, (width - 66) / columns)
    drawn = [label(left, 12, "place in the user's words", class_="tick")]
    if sweep["thinking"]:
        drawn.append(label(left + columns * step, 12, "first thought", class_="tick end"))
    for depth, (layer, areas) in enumerate(zip(reversed(sweep["layers"]), reversed(rows), strict=True)):
        y = top + depth * 30
        drawn.append(label(left - 10, y + 18, f"layer {layer}", class_="tick end"))
        for column, part in enumerate(areas):
            gap = 6 if sweep["thinking"] and column == columns - 1 else 0
            drawn.append(_cell(part, left + column * step + gap, y, step - 2))
    words = "colour: from brick (a coin) to blue (all that AUROC* allows); number: AUROC in hundredths"
    drawn.append(label(left, top + 30 * len(rows) + 16, words, class_="tick"))
    return svg(width, top + 30 * len(rows) + 24, "Where in the prompt the outcome can be read", *drawn)


def _cell(part: Json, x: float, y: float, wide: float) -> Markup:
    limit = part["ceiling"]["estimate"] if part["ceiling"] else None
    share = None
    if limit is not None and limit > 0.5:
        share = (part["auroc"] - 0.5) / (limit - 0.5)
    known = "unknown" if limit is None else f"{limit:.3f}"
    told = f"AUROC {part['auroc']:.3f} ({part['low']:.3f} to {part['high']:.3f}), AUROC* {known}"
    return tag(
        "g",
        tag("title", told),
        tag("rect", x=x, y=y, width=wide, height=28, class_=f"leaf {shade(share)}"),
        label(x + wide / 2, y + 18, f"{100 * part['auroc']:.0f}", class_="leaf-sign mid"),
    )
