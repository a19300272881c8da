"""The charts of the report: the success curve and interval rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from refork.report.data import CurvePoint
from refork.report.svg import label, line, path, runs, svg, tag, ticks
from refork.report.words import (
    count,
    mean,
    points,
    rate,
    span,
)

WIDE, NARROW = 760, 352


@dataclass(frozen=True, slots=True)
class Frame:
    """A plot area in pixels and the data range it shows; y grows upwards in data, downwards on the page."""

    left: float
    right: float
    top: float
    bottom: float
    low_x: float
    high_x: float
    low_y: float = 0.0
    high_y: float = 1.0

    def x(self, value: float) -> float:
        """Page x of a data x."""
        return self.left + (value - self.low_x) / ((self.high_x - self.low_x) or 1) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Page y of a data y."""
        share = (value - self.low_y) / ((self.high_y - self.low_y) or 1)
        return self.bottom - share * (self.bottom - self.top)


def rate_axis(frame: Frame, marks: Sequence[float]) -> list[Markup]:
    """Level lines with their percentages on the left."""
    drawn = []
    for mark in marks:
        y = frame.y(mark)
        drawn.append(line(frame.left, y, frame.right, y, "axis" if mark == 0 else "grid"))
        drawn.append(label(frame.left - 8, y + 4, rate(mark), class_="tick end"))
    return drawn


def success_curve(curve: Sequence[CurvePoint], width: int = WIDE) -> Markup:
    """Success over updates with its interval band; points without a value leave a gap."""
    known = [p.high if p.high is not None else p.success for p in curve if p.success is not None]
    tops = [t for t in known if t is not None]
    marks = [m for m in ticks(0, min(1.0, max(tops, default=1.0) * 1.05), 5) if m <= 1]
    updates = [p.update for p in curve]
    height = 250 if width >= WIDE else 210
    frame = Frame(52, width - 62, 18, height - 44, min(updates), max(updates), 0, marks[-1] or 1)
    drawn = rate_axis(frame, marks)
    for mark in ticks(frame.low_x, frame.high_x, 12 if width >= WIDE else 6):
        if mark == int(mark) and frame.low_x <= mark <= frame.high_x:
            drawn.append(label(frame.x(mark), frame.bottom + 20, f"{mark:.0f}", class_="tick mid"))
    drawn.append(label((frame.left + frame.right) / 2, height - 4, "updates", class_="tick mid"))
    drawn += band([frame.x(p.update) for p in curve], [(p.low, p.high) for p in curve], frame)
    values = [p.success for p in curve]
    for run in runs(values):
        drawn.append(
            tag(
                "path",
                d=path([(frame.x(curve[i].update), frame.y(values[i] or 0)) for i in run]),
                class_="curve",
            )
        )
    drawn += _curve_dots(curve, frame)
    return svg(width, height, "Success on held-out tasks after each update", *drawn)


def _curve_dots(curve: Sequence[CurvePoint], frame: Frame) -> list[Markup]:
    drawn = []
    shown = [(p, p.success) for p in curve if p.success is not None]
    for p, success in shown:
        x, y = frame.x(p.update), frame.y(success)
        tokens = f", {count(p.tokens)} tokens sampled" if p.tokens is not None else ""
        note = f". {p.note}" if p.note else ""
        told = f"update {p.update}: {rate(success)} ({span(p.low, p.high)}){tokens}{note}"
        drawn.append(tag("circle", tag("title", told), cx=x, cy=y, r=6 if p.note else 4, class_="dot"))
        if p.note:
            drawn.append(tag("circle", cx=x, cy=y, r=2.5, class_="dot-core"))
    if shown:
        last, success = shown[-1]
        x, y = frame.x(last.update) + 12, frame.y(success) + 5
        drawn.append(label(x, y, rate(success), class_="figure"))
    if len(shown) > 1:
        first, success = shown[0]
        top = first.high if first.high is not None else success
        x, y = frame.x(first.update) + 2, frame.y(top) - 9
        drawn.append(label(x, y, rate(success), class_="figure"))
    return drawn


def band(
    xs: Sequence[float], ends: Sequence[tuple[float | None, float | None]], frame: Frame
) -> list[Markup]:
    """The interval as an area, broken where an end was never computed."""
    drawn = []
    for run in runs([low if high is not None else None for low, high in ends]):
        upper = [(xs[i], frame.y(ends[i][1] or 0)) for i in run]
        lower = [(xs[i], frame.y(ends[i][0] or 0)) for i in run]
        drawn.append(tag("path", d=path([*upper, *reversed(lower)], close=True), class_="band"))
    return drawn


@dataclass(frozen=True, slots=True)
class Row:
    """A line of an interval chart."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    text: str
    class_: str


def interval_rows(
    rows: Sequence[Row],
    axis: tuple[float, float],
    *,
    name: str,
    unit: str = "rate",
    zero: str | None = None,
    width: int = WIDE,
) -> Markup:
    """Values as dots on their intervals over one axis; ``zero`` marks no difference (a forest plot)."""
    wide = width >= WIDE
    marks = ticks(*axis, 6 if wide else 4)
    step, top = (38, 14) if wide else (58, 26)
    if zero is not None:
        top += 12 if wide else 0
    height = top + step * len(rows) + 22
    bottom = top + step * len(rows) - (18 if wide else 34)
    frame = Frame(128 if wide else 16, width - (196 if wide else 20), top, bottom, marks[0], marks[-1])
    drawn: list[Markup] = []
    for mark in marks:
        x = frame.x(mark)
        drawn.append(line(x, frame.top - 10, x, frame.bottom + 16, "grid"))
        drawn.append(label(x, frame.bottom + 32, _mark(mark, unit), class_="tick mid"))
    if zero is not None:
        x = frame.x(0)
        drawn.append(line(x, frame.top - (14 if wide else 6), x, frame.bottom + 16, "zero"))
        y = frame.top - 18 if wide else frame.bottom + 47
        drawn.append(label(max(x, 30.0), y, zero, class_="tick mid"))
    for i, row in enumerate(rows):
        drawn += _interval(row, frame, frame.top + 4 + step * i, width, wide)
    return svg(width, height + (4 if wide else 0), name, *drawn)


def _mark(mark: float, unit: str) -> str:
    if unit == "rate":
        return rate(mark)
    if unit == "points":
        return points(mark).split("\u00a0")[0]
    return mean(mark)


def _interval(row: Row, frame: Frame, y: float, width: int, wide: bool) -> list[Markup]:
    drawn: list[Markup] = []
    if wide:
        drawn.append(label(0, y + 5, row.name, class_="row-name"))
        drawn.append(label(width, y + 5, row.text, class_="row-text end"))
    else:
        drawn.append(label(0, y - 14, row.name, class_="row-name"))
        drawn.append(label(width, y - 14, row.text, class_="row-text end"))
    if row.low is not None and row.high is not None:
        low, high = frame.x(row.low), frame.x(row.high)
        drawn.append(line(low, y, high, y, f"whisker {row.class_}"))
        drawn += [line(x, y - 6, x, y + 6, f"whisker cap {row.class_}") for x in (low, high)]
    if row.value is not None:
        drawn.append(tag("circle", cx=frame.x(row.value), cy=y, r=6, class_=f"mark {row.class_}"))
    return drawn
