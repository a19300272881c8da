"""Quality against cost of routers and their baselines, as a picture that stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markupsafe import Markup

from refork.report import palette
from refork.report.pictures import Frame
from refork.report.svg import label, path, svg, tag, ticks
from refork_methods.route.frontier import FrontierReport, Option

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK, _GREY, _INK = palette.LIGHT[-1], palette.LIGHT[0], "#77736c", "#333"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": _INK}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 860, 516, 60, 82, 416
#: Width of the strip for what has no known price, and of a character of a name.
_STRIP, _LETTER = 190, 6.4


@dataclass(slots=True)
class _Names:
    """Where names stand, so that none covers another or a point."""

    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)

    def take(self, x: float, y: float, text: str, right: float) -> tuple[float, float]:
        """A place for a text beside a point; ``right`` is the last x that it may reach."""
        wide = _LETTER * len(text)
        spots = [(x + 10, y + 4 + dy) for dy in (0, -14, 14, -28, 28, -42, 42)]
        spots += [(x - 10 - wide, y + 4 + dy) for dy in (0, -14, 14, -28, 28)]
        fits = [s for s in spots if s[0] + wide <= right and s[0] >= _LEFT + 2 and s[1] <= _BOTTOM - 2]
        for place in fits:
            box = (place[0], place[1] - 11, place[0] + wide, place[1] + 2)
            if not any(_meet(box, other) for other in self.boxes):
                self.boxes.append(box)
                return place
        return fits[0] if fits else spots[0]


def _meet(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def frontier_picture(report: FrontierReport, title: str = "Quality and cost") -> str:
    """An SVG document: every option at its cost and mean reward with its 95 % interval.

    The line joins what nothing beats; a mixture of its options buys any point on it. The dashed line is the
    oracle, which needs hindsight. What has no known price stands in a strip of its own.
    """
    shown = [option for option in report.options if option.name != "oracle"]
    priced = [option for option in shown if option.cost is not None]
    strip = [option for option in shown if option.cost is None]
    top = max(option.quality.high for option in report.options)
    low = min(option.quality.low for option in report.options)
    marks = ticks(low, top, 6)
    costs = ticks(0, max((option.cost or 0 for option in priced), default=1.0) or 1.0, 6)
    right = _WIDE - 24 - (_STRIP if strip else 0)
    frame = Frame(_LEFT, right, _TOP, _BOTTOM, 0, costs[-1], marks[0], marks[-1])
    routers = {router.name for router in report.routers}
    names = _Names()
    for option in priced:
        x, y = frame.x(option.cost or 0), frame.y(option.quality.estimate)
        names.boxes.append((x - 5, y - 5, x + 5, y + 5))
        names.boxes.append((x - 1, frame.y(option.quality.high), x + 1, frame.y(option.quality.low)))
    parts = [tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    parts.append(label(_LEFT, 26, title, **{**_FONT, "font_size": "15"}))
    parts.append(label(_LEFT, 44, _told(report), **_SMALL))
    parts += _axes(frame, marks, costs if priced else [])
    parts += _oracle(report, frame, names)
    parts += _line(report, frame, names)
    for option in priced:
        parts += _point(option, frame.x(option.cost or 0), frame, routers, names, right + 20)
    if strip:
        parts += _unpriced(strip, frame, right, routers)
    return str(svg(_WIDE, _HIGH, title, *parts, *_legend())).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _told(report: FrontierReport) -> str:
    parts = [f"{report.queries} queries of {report.tasks} tasks"]
    gained = [(r.name, report.area.get(r.name)) for r in report.routers]
    alone = report.area.get("workers alone")
    if alone is not None:
        parts.append(f"area under the curve: workers alone {alone:.3f}")
        parts += [f"with {name} {area:.3f}" for name, area in gained if area is not None]
    return ", ".join(parts)


def _axes(frame: Frame, marks: Sequence[float], costs: Sequence[float]) -> list[Markup]:
    parts = []
    for mark in marks:
        y = frame.y(mark)
        parts.append(tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, stroke="#e2e0dc"))
        parts.append(label(frame.left - 8, y + 4, f"{mark:g}", text_anchor="end", **_FONT))
    parts.append(label(frame.left - 44, frame.top - 14, "mean reward", **_SMALL))
    for mark in costs:
        x = frame.x(mark)
        parts.append(tag("line", x1=x, x2=x, y1=frame.bottom, y2=frame.bottom + 4, stroke="#999"))
        parts.append(label(x, frame.bottom + 18, f"{mark:g}", text_anchor="middle", **_FONT))
    middle = (frame.left + frame.right) / 2
    told = "money per query" if costs else "no price is known"
    parts.append(label(middle, frame.bottom + 38, told, text_anchor="middle", **_FONT))
    return parts


def _oracle(report: FrontierReport, frame: Frame, names: _Names) -> list[Markup]:
    best = next(option for option in report.options if option.name == "oracle")
    y = frame.y(best.quality.estimate)
    text = f"oracle {best.quality.estimate:.3f}"
    names.boxes.append((frame.left, y - 16, frame.left + 6 + _LETTER * len(text), y - 3))
    dashed = {"stroke": _INK, "stroke_dasharray": "5 4", "stroke_opacity": "0.6"}
    return [
        tag("line", x1=frame.left, x2=frame.right, y1=y, y2=y, **dashed),
        label(frame.left + 6, y - 5, text, **_SMALL),
    ]


def _line(report: FrontierReport, frame: Frame, names: _Names) -> list[Markup]:
    """The options that nothing beats, joined from the cheapest to the dearest."""
    kept = [
        (option.cost, option.quality.estimate)
        for option, on in zip(report.options, report.on_frontier, strict=True)
        if on and option.cost is not None
    ]
    points = [(frame.x(cost), frame.y(quality)) for cost, quality in sorted(kept)]
    points += [(frame.right, points[-1][1])] if points else []  # more money buys nothing more
    for (x0, y0), (x1, y1) in pairwise(points):
        steps = max(int(abs(x1 - x0) + abs(y1 - y0)) // 6, 1)
        for i in range(steps + 1):
            x, y = x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps
            names.boxes.append((x - 1, y - 1, x + 1, y + 1))
    stroke = {"fill": "none", "stroke": _BLUE, "stroke_width": "2", "stroke_opacity": "0.45"}
    return [tag("path", d=path(points), **stroke)] if len(points) > 1 else []


def _colour(option: Option, routers: set[str]) -> str:
    return _BLUE if option.name in routers else _BRICK if option.calls > 1 else _GREY


def _mark(option: Option, x: float, frame: Frame, routers: set[str]) -> list[Markup]:
    colour, quality = _colour(option, routers), option.quality
    seconds = "seconds unknown" if option.latency is None else f"{option.latency:.3g} s"
    price = "price unknown" if option.cost is None else f"{option.cost:.4g} per query"
    reward = f"reward {quality.estimate:.3f} [{quality.low:.3f}, {quality.high:.3f}]"
    told = f"{option.name}: {reward}, {price}, {seconds}"
    y, whisker = frame.y(quality.estimate), {"stroke": colour, "stroke_width": "1.4", "stroke_opacity": "0.6"}
    dot = {"fill": colour if option.attainable else "#fff", "stroke": colour, "stroke_width": "1.6"}
    return [
        tag("line", x1=x, x2=x, y1=frame.y(quality.low), y2=frame.y(quality.high), **whisker),
        tag("circle", tag("title", told), cx=x, cy=y, r=6 if option.name in routers else 4.5, **dot),
    ]


def _point(
    option: Option, x: float, frame: Frame, routers: set[str], names: _Names, right: float
) -> list[Markup]:
    left, base = names.take(x, frame.y(option.quality.estimate), option.name, right)
    weight = "bold" if option.name in routers else "normal"
    colour = _colour(option, routers)
    return [
        *_mark(option, x, frame, routers),
        label(left, base, option.name, **{**_FONT, "fill": colour, "font_weight": weight}),
    ]


def _unpriced(options: Sequence[Option], frame: Frame, right: float, routers: set[str]) -> list[Markup]:
    x = right + 34
    parts = [
        tag("rect", x=right + 14, y=_TOP, width=_STRIP - 8, height=_BOTTOM - _TOP, fill="#f4f2ee"),
        label(right + 20, _BOTTOM + 18, "price unknown (not 0)", **_SMALL),
    ]
    taken = _Names()
    for option in sorted(options, key=lambda o: -o.quality.estimate):
        left, base = taken.take(x, frame.y(option.quality.estimate), option.name, float(_WIDE))
        parts += _mark(option, x, frame, routers)
        parts.append(label(left, base, option.name, **{**_FONT, "fill": _colour(option, routers)}))
    return parts


def _legend() -> list[Markup]:
    y = _HIGH - 22
    entries = [
        (_GREY, _GREY, "one call, one worker or chance"),
        (_BLUE, _BLUE, "router"),
        (_BRICK, _BRICK, "votes"),
        (_BRICK, "#fff", "retries with a perfect verifier"),
    ]
    parts, x = [], float(_LEFT)
    for stroke, fill, text in entries:
        parts.append(tag("circle", cx=x + 5, cy=y - 4, r=4.5, fill=fill, stroke=stroke, stroke_width="1.6"))
        parts.append(label(x + 16, y, text, **_FONT))
        x += 40 + _LETTER * len(text)
    bar = {"stroke": _BLUE, "stroke_width": "2", "stroke_opacity": "0.45"}
    parts.append(tag("line", x1=x, x2=x + 22, y1=y - 4, y2=y - 4, **bar))
    return [*parts, label(x + 28, y, "nothing beats these", **_FONT)]
