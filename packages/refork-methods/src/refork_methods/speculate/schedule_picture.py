"""Schedules against load: drafts verified per request and tokens per second, a picture that stands alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from refork.report import palette
from refork.report.pictures import Frame
from refork.report.svg import label, path, svg, tag, ticks
from refork_methods.speculate.replay import LOGGED, Load, Replay, Replayed

_SVG = "http://www.w3.org/2000/svg"
_INK = "#333"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": _INK}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_WIDE, _TOP, _BOTTOM = 900, 92, 340
_LEFTS = (56, 486)
_SPAN = 330
_COLOURS = (palette.LIGHT[-1], palette.LIGHT[0], palette.LIGHT[3], palette.LIGHT[7])
_DASHES = ("none", "7 6", "2 3", "11 4")
#: What lies over another line is thinner and broken, so that the one below is seen.
_WIDTHS = ("3.2", "2", "1.8", "1.8")
_GREY = "#cfcbc4"


def schedule_picture(report: Replay, title: str = "Schedules and load") -> str:
    """An SVG document with two panels over the number of requests at once.

    Left the drafts verified per request, right the tokens per second. What was logged is grey.
    """
    shown = list(report.schedules)
    high = _BOTTOM + 66 + 20 * len(shown)
    told = f"{report.rounds:,} rounds in {report.steps:,} steps, blocks of {report.block} drafts"
    parts = [
        tag("rect", width=_WIDE, height=high, fill="#fff"),
        label(_LEFTS[0], 26, title, **{**_FONT, "font_size": "15"}),
        label(_LEFTS[0], 45, told, **_SMALL),
    ]
    parts += _panel(shown, _LEFTS[0], "drafts verified per request", "verified")
    parts += _panel(shown, _LEFTS[1], "tokens per second", "throughput")
    for place, one in enumerate(shown):
        parts += _entry(one, place, _BOTTOM + 66 + 20 * place)
    return str(svg(_WIDE, high, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _panel(shown: Sequence[Replayed], left: float, title: str, what: str) -> list[Markup]:
    loads = [load for one in shown for load in one.loads]
    top = max(_value(load, what) for load in loads) or 1.0
    marks = ticks(0, top, 5)
    sizes = sorted({_middle(load) for load in loads})
    low, most = math.log2(sizes[0]), math.log2(sizes[-1])
    pad = 0.15 if most > low else 1.0
    frame = Frame(left, left + _SPAN, _TOP, _BOTTOM, low - pad, most + pad, 0, marks[-1])
    parts = [label(left, _TOP - 18, title, **_FONT)]
    for mark in marks:
        y = frame.y(mark)
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke="#e2e0dc"))
        parts.append(label(frame.left - 8, y + 4, f"{mark:g}", text_anchor="end", **_SMALL))
    for power in range(math.ceil(low - pad), math.floor(most + pad) + 1):
        x = frame.x(power)
        parts.append(tag("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 4, stroke="#999"))
        parts.append(label(x, frame.bottom + 18, f"{2**power}", text_anchor="middle", **_SMALL))
    middle = (frame.left + frame.right) / 2
    parts.append(label(middle, frame.bottom + 38, "requests at once", text_anchor="middle", **_SMALL))
    for place, one in enumerate(shown):
        parts += _line(one, place, frame, what)
    return parts


def _line(one: Replayed, place: int, frame: Frame, what: str) -> list[Markup]:
    points = [(frame.x(math.log2(_middle(load))), frame.y(_value(load, what))) for load in one.loads]
    style = _style(one, place)
    parts = [tag("path", d=path(points), fill="none", **style)] if len(points) > 1 else []
    for load, (x, y) in zip(one.loads, points, strict=True):
        size = f"{load.low}" if load.low == load.high else f"{load.low} to {load.high}"
        told = f"{one.name}, {size} requests, {load.steps} steps: {_value(load, what):.4g}"
        parts.append(tag("circle", tag("title", told), cx=x, cy=y, r=3.2, fill=style["stroke"]))
    return parts


def _entry(one: Replayed, place: int, y: float) -> list[Markup]:
    style = _style(one, place)
    name = "as logged" if one.name == LOGGED else one.name
    told = f"{one.verified:.2f} verified per request, {one.realised:.4g} tokens/s"
    if one.interval is not None:
        told += f" [{one.interval.low:.4g}, {one.interval.high:.4g}]"
    if one.name != LOGGED:
        told += f", {one.against_logged:.3f} x logged"
        if one.imputed >= 0.0005:
            told += f", {one.imputed:.1%} of it imputed"
    return [
        tag("line", x1=_LEFTS[0], x2=_LEFTS[0] + 26, y1=y - 4, y2=y - 4, **style),
        label(_LEFTS[0] + 36, y, name, **_FONT),
        label(_LEFTS[0] + 190, y, told, **_SMALL),
    ]


def _style(one: Replayed, place: int) -> dict[str, str]:
    if one.name == LOGGED:
        return {"stroke": _GREY, "stroke_width": "8"}  # seen beside a schedule that does the same
    turn = (place - 1) % len(_COLOURS)
    dash = {} if _DASHES[turn] == "none" else {"stroke_dasharray": _DASHES[turn]}
    return {"stroke": _COLOURS[turn], "stroke_width": _WIDTHS[turn]} | dash


def _middle(load: Load) -> float:
    return math.sqrt(load.low * load.high)


def _value(load: Load, what: str) -> float:
    return load.verified if what == "verified" else load.throughput
