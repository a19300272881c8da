"""Learning curves of several arms as a picture that stands alone: success against sampled tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from refork.report.pictures import Frame
from refork.report.svg import label, path, svg, tag, ticks
from refork.report.words import rate

_SVG = "http://www.w3.org/2000/svg"
_WIDE, _PANEL, _LEFT, _RIGHT = 760, 330, 56, 210
_FONT: dict[str, str] = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
#: Okabe and Ito's colours: apart for every common kind of colour blindness. The baseline is the grey.
_COLOURS = ("#777777", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def learning_picture(worlds: Mapping[str, Any]) -> str:
    """An SVG document with a panel per world, from ``worlds`` of a comparison's summary.

    Thick lines are means over runs, thin ones the runs; arms are named at their ends, best first.
    """
    parts: list[Markup] = [tag("rect", width=_WIDE, height=_PANEL * len(worlds), fill="#fff")]
    for row, (world, data) in enumerate(worlds.items()):
        parts += _panel(world, data, row * _PANEL)
    document = str(svg(_WIDE, _PANEL * len(worlds), "Learning curves", *parts))
    return document.replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _panel(world: str, data: Mapping[str, Any], top: float) -> list[Markup]:
    curves = {row["arm"]: data["curves"][row["arm"]] for row in data["rows"]}
    values = [v for c in curves.values() for r in (c, *c["runs"]) for v in r["success"]]
    marks = ticks(max(0.0, min(values) - 0.02), min(1.0, max(values) + 0.02), 6)
    last = max(c["tokens"][-1] for c in curves.values()) or 1
    frame = Frame(_LEFT, _WIDE - _RIGHT, top + 40, top + _PANEL - 48, 0, last, marks[0], marks[-1])
    parts = [label(_LEFT, top + 24, f"{world}: success on held-out tasks", **(_FONT | {"font_size": "14"}))]
    for mark in marks:
        y = frame.y(mark)
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke="#ddd"))
        parts.append(label(frame.left - 6, y + 4, rate(mark), text_anchor="end", **_FONT))
    for mark in (m for m in ticks(0, last, 5) if m <= last):
        text = f"{mark / 1000:g}k" if mark else "0"
        parts.append(label(frame.x(mark), frame.bottom + 18, text, text_anchor="middle", **_FONT))
    middle = (frame.left + frame.right) / 2
    parts.append(
        label(middle, frame.bottom + 36, "tokens sampled for training", text_anchor="middle", **_FONT)
    )
    for curve, colour in zip(curves.values(), _cycle(len(curves)), strict=True):
        for run in curve["runs"]:
            parts.append(_line(frame, run, colour, 0.25, 1))
        parts.append(_line(frame, curve, colour, 1.0, 2.5))
    return parts + _legend(curves, frame)


def _cycle(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def _line(frame: Frame, curve: Mapping[str, Any], colour: str, opacity: float, width: float) -> Markup:
    points = [(frame.x(t), frame.y(v)) for t, v in zip(curve["tokens"], curve["success"], strict=True)]
    # A run may have sampled a little more than the shortest one, where the picture ends.
    inside = [p for p in points if p[0] <= frame.right + 0.5]
    return tag(
        "path", d=path(inside), fill="none", stroke=colour, stroke_width=width, stroke_opacity=str(opacity)
    )


def _legend(curves: Mapping[str, Any], frame: Frame) -> list[Markup]:
    """Names at the ends of the lines, pushed apart where they would touch."""
    ends = sorted(
        ((frame.y(c["success"][-1]), arm, colour, c["success"][-1])
         for (arm, c), colour in zip(curves.items(), _cycle(len(curves)), strict=True)),
        key=lambda end: end[0],
    )  # fmt: skip
    parts: list[Markup] = []
    floor = frame.top
    for y, arm, colour, value in ends:
        place = max(y, floor)
        floor = place + 16
        parts.append(
            tag("line", x1=frame.right, x2=frame.right + 10, y1=y, y2=place, stroke=colour, stroke_width=1)
        )
        parts.append(label(frame.right + 14, place + 4, f"{rate(value)} {arm}", **(_FONT | {"fill": colour})))
    return parts
