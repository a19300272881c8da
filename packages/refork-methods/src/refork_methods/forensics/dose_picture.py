"""Two pictures of a case: rates over the doses of one number, and along the sentences of one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from refork.report import palette
from refork.report.pictures import Frame
from refork.report.svg import label, path, runs, svg, tag, ticks
from refork.report.words import one_line

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK, _GREY = palette.LIGHT[-1], palette.LIGHT[0], palette.LIGHT[5]
_INK, _PALE, _GRID = "#333", "#666", "#e2e0dc"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": _INK}
_SMALL = {**_FONT, "font_size": "11", "fill": _PALE}


@dataclass(frozen=True, slots=True)
class Mark:
    """One rate with its interval: ``x`` is the dose; None: never computed. ``note`` stands below it.

    ``sure``: a score that stands after correction for all sentences; it is coloured.
    """

    x: float
    rate: float | None
    low: float | None
    high: float | None
    note: str = ""
    sure: bool = False


def dose_picture(
    marks: Sequence[Mark],
    title: str,
    below: str,
    predicted: Sequence[tuple[str, Sequence[tuple[float, float]]]] = (),
) -> str:
    """An SVG document: the rate at every dose with its Wilson band, and predicted curves as broken lines.

    ``below`` names the dose; ``predicted`` are a name and (dose, rate) points for each hypothesis.
    """
    doses = [m.x for m in marks]
    wide, high, legend = 680, 380, 96
    frame = Frame(58, wide - 22, 46, high - legend, min(doses), max(doses), 0.0, _top(marks, predicted))
    parts = [*_paper(wide, high, title), *_rates(frame)]
    parts += _bands(frame, marks)
    for number, (_, curve) in enumerate(predicted):
        drawn = path([(frame.x(x), frame.y(y)) for x, y in curve])
        dashes = ("6 4", "2 4", "10 4", "8 3 2 3")[number % 4]
        parts.append(
            tag("path", d=drawn, fill="none", stroke=_BRICK, stroke_width="1.8", stroke_dasharray=dashes)
        )
    values = [m.rate for m in marks]
    for run in runs(values):
        line = path([(frame.x(marks[i].x), frame.y(values[i] or 0.0)) for i in run])
        parts.append(tag("path", d=line, fill="none", stroke=_BLUE, stroke_width="2.2"))
    parts += _dots(frame, marks)
    shown: list[float] = []
    for mark in sorted(marks, key=lambda m: m.x):
        x = frame.x(mark.x)
        if shown and x - shown[-1] < 34:
            continue
        shown.append(x)
        parts.append(label(x, frame.bottom + 17, f"{mark.x:g}", text_anchor="middle", **_FONT))
        if not any(x - frame.x(m.x) < 62 and m.x < mark.x for m in marks) or len(marks) < 9:
            parts.append(label(x, frame.bottom + 31, mark.note, text_anchor="middle", **_SMALL))
    middle = (frame.left + frame.right) / 2
    parts.append(label(middle, frame.bottom + 49, below, text_anchor="middle", **_FONT))
    names = [("measured, 95 % Wilson band", "")] + [
        (f"predicted: {name}", ("6 4", "2 4", "10 4", "8 3 2 3")[i % 4])
        for i, (name, _) in enumerate(predicted)
    ]
    parts += _legend(names, frame.left, frame.bottom + 68)
    return _document(wide, high, title, parts)


def profile_picture(
    prefixes: Sequence[Mark], scores: Sequence[Mark], texts: Sequence[str], title: str
) -> str:
    """An SVG document: the rate at every prefix of a trace, a row per sentence, with each sentence's score.

    ``prefixes`` [n + 1], ``scores`` and ``texts`` [n]. A row stands between the rate before its sentence and
    the rate behind it.
    """
    row, top = 34, 92
    wide, high = 900, top + row * (len(texts) + 1) + 34
    left = Frame(392, 632, top, top + row * len(texts), 0.0, 1.0)
    right = Frame(676, 876, top, top + row * len(texts), -1.0, 1.0)
    parts = _paper(wide, high, title)
    parts += _columns(left, right, top + row * len(texts))
    for i, text in enumerate(texts):
        y = top + row * i + row / 2
        parts.append(tag("line", x1=18, x2=wide - 18, y1=y + row / 2, y2=y + row / 2, stroke=_GRID))
        told = one_line(text.strip() or "(no text)", 54)
        parts.append(label(22, y + 4, f"{i + 1}", **_SMALL))
        parts.append(tag("text", tag("title", text), told, x=44, y=y + 4, **_FONT))
        parts += _score(right, scores[i], y)
    parts += _prefix_curve(left, prefixes, top, row)
    return _document(wide, high, title, parts)


def _columns(left: Frame, right: Frame, bottom: float) -> list[Markup]:
    """Level lines and the names of both columns."""
    parts = [
        label(left.left, 62, "rate of the action behind it", **_FONT),
        label(right.left, 62, "score: change by the sentence", **_FONT),
        label(44, 62, "sentence", **_FONT),
    ]
    for frame, levels in ((left, (0.0, 0.5, 1.0)), (right, (-1.0, 0.0, 1.0))):
        for level in levels:
            x = frame.x(level)
            sign = "+" if frame is right and level > 0 else ""
            parts.append(tag("line", x1=x, x2=x, y1=frame.top - 6, y2=bottom, stroke=_GRID))
            parts.append(label(x, frame.top - 12, f"{sign}{level:.0%}", text_anchor="middle", **_SMALL))
    return parts


def _prefix_curve(frame: Frame, prefixes: Sequence[Mark], top: float, row: float) -> list[Markup]:
    """The rates as a curve that runs down the rows, with its band; a row's end is the prefix behind it."""
    heights = [top + row * i for i in range(len(prefixes))]
    known = [None if m.low is None or m.high is None else m for m in prefixes]
    parts: list[Markup] = []
    for run in runs([m.low if m else None for m in known]):
        ends = [(m, heights[i]) for i in run if (m := known[i]) is not None]
        there = [(frame.x(m.low or 0.0), y) for m, y in ends]
        back = [(frame.x(m.high or 0.0), y) for m, y in reversed(ends)]
        parts.append(tag("path", d=path([*there, *back], close=True), fill=_BLUE, fill_opacity="0.16"))
    values = [m.rate for m in prefixes]
    for run in runs(values):
        points = [(frame.x(values[i] or 0.0), heights[i]) for i in run]
        parts.append(tag("path", d=path(points), fill="none", stroke=_BLUE, stroke_width="2.2"))
    for mark, y in zip(prefixes, heights, strict=True):
        if mark.rate is None:
            continue
        title = tag("title", f"{mark.rate:.0%} {mark.note}".strip())
        parts.append(tag("circle", title, cx=frame.x(mark.rate), cy=y, r=4, fill=_BLUE))
    last = prefixes[-1]
    if last.rate is not None:
        side = "end" if last.rate > 0.5 else "start"
        shift = -10 if last.rate > 0.5 else 10
        x, y = frame.x(last.rate) + shift, heights[-1] + 18
        parts.append(label(x, y, f"{last.rate:.0%} {last.note}".strip(), text_anchor=side, **_SMALL))
    return parts


def _score(frame: Frame, mark: Mark, y: float) -> list[Markup]:
    """A bar from 0 to the score with its interval; coloured where it stands after correction."""
    if mark.rate is None:
        return [label(frame.x(0), y + 4, "not graded", text_anchor="middle", **_SMALL)]
    low, high = mark.low, mark.high
    colour = _GREY if not mark.sure else _BRICK if mark.rate > 0 else _BLUE
    a, b = sorted((frame.x(0), frame.x(mark.rate)))
    parts = [tag("rect", tag("title", f"{mark.rate:+.0%}"), x=a, y=y - 7, width=max(b - a, 1.0), height=14,
                 fill=colour, fill_opacity="0.75")]  # fmt: skip
    if low is not None and high is not None:
        parts.append(
            tag("line", x1=frame.x(low), x2=frame.x(high), y1=y, y2=y, stroke=_INK, stroke_width="1.2")
        )
        parts += [
            tag("line", x1=frame.x(v), x2=frame.x(v), y1=y - 4, y2=y + 4, stroke=_INK, stroke_width="1.2")
            for v in (low, high)
        ]
    return parts


def _top(marks: Sequence[Mark], predicted: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> float:
    seen = [v for m in marks for v in (m.high, m.rate) if v is not None]
    seen += [y for _, curve in predicted for _, y in curve]
    return min(1.0, ticks(0.0, max(seen, default=1.0) * 1.04, 5)[-1]) or 1.0


def _paper(wide: int, high: int, title: str) -> list[Markup]:
    font = {**_FONT, "font_size": "15"}
    return [tag("rect", width=wide, height=high, fill="#fff"), label(18, 26, one_line(title, 96), **font)]


def _rates(frame: Frame) -> list[Markup]:
    parts = []
    for mark in ticks(0.0, frame.high_y, 5):
        if mark > frame.high_y + 1e-9:
            continue
        y = frame.y(mark)
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke=_GRID))
        told = f"{mark:.0%}" if frame.high_y >= 0.05 else f"{mark:.1%}"
        parts.append(label(frame.left - 8, y + 4, told, text_anchor="end", **_FONT))
    return parts


def _bands(frame: Frame, marks: Sequence[Mark]) -> list[Markup]:
    parts = []
    for run in runs([m.low for m in marks]):
        there = [(frame.x(marks[i].x), frame.y(marks[i].high or 0.0)) for i in run]
        back = [(frame.x(marks[i].x), frame.y(marks[i].low or 0.0)) for i in reversed(run)]
        parts.append(tag("path", d=path([*there, *back], close=True), fill=_BLUE, fill_opacity="0.16"))
    return parts


def _dots(frame: Frame, marks: Sequence[Mark]) -> list[Markup]:
    parts = []
    for mark in marks:
        if mark.rate is None:
            continue
        x = frame.x(mark.x)
        if mark.low is not None and mark.high is not None:
            parts.append(tag("line", x1=x, x2=x, y1=frame.y(mark.low), y2=frame.y(mark.high), stroke=_BLUE))
        told = f"{mark.x:g}: {mark.rate:.1%} ({mark.note})"
        parts.append(tag("circle", tag("title", told), cx=x, cy=frame.y(mark.rate), r=4, fill=_BLUE))
    return parts


def _legend(names: Sequence[tuple[str, str]], left: float, top: float) -> list[Markup]:
    parts: list[Markup] = []
    for number, (name, dashes) in enumerate(names):
        x, y = left + 310 * (number % 2), top + 16 * (number // 2)
        stroke = _BRICK if dashes else _BLUE
        parts.append(tag("line", x1=x, x2=x + 26, y1=y - 4, y2=y - 4, stroke=stroke, stroke_width="2",
                         stroke_dasharray=dashes or None))  # fmt: skip
        parts.append(label(x + 32, y, one_line(name, 42), **_FONT))
    return parts


def _document(wide: float, high: float, title: str, parts: Sequence[Markup]) -> str:
    # In a page of its own a picture must say what language it is written in.
    return str(svg(wide, high, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)
