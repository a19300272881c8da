"""What every policy earned in a replay, with its interval and what its model promised, as a picture."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from refork.report import palette
from refork.report.svg import label, num, svg, tag, ticks

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK = palette.LIGHT[-1], palette.LIGHT[0]
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
_WIDE, _RIGHT, _TOP, _ROW = 720, 24, 64, 26


def replay_picture(told: dict[str, Any]) -> str:
    """An SVG document: a row for every policy, best first; the broken line is the best simple rule."""
    rows = told["policies"]
    spots = [value for row in rows for value in (*_ends(row), row["predicted"])]
    marks = ticks(min(0.0, *spots), max(0.0, *spots), 6)
    low, high = min(marks[0], *spots), max(marks[-1], *spots)
    bottom = _TOP + _ROW * len(rows)
    left = min(24 + 7 * max(len(row["policy"]) for row in rows), 320)

    def at(value: float) -> float:
        return left + (_WIDE - left - _RIGHT) * (value - low) / (high - low)

    title = f"Mean utility on {told['instances']} held-out instances"
    parts = [tag("rect", width=_WIDE, height=bottom + 44, fill="#fff")]
    parts.append(label(12, 24, title, **{**_FONT, "font_size": "14"}))
    parts += _legend()
    for mark in marks:
        x = at(mark)
        stroke = "#999" if mark == 0 else "#e2e0dc"
        parts.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=bottom, stroke=stroke))
        parts.append(label(x, bottom + 18, num(mark), text_anchor="middle", **_FONT))
    best = next((row for row in rows if row["rule"]), None)
    if best is not None:
        x = at(best["utility"]["estimate"])
        parts.append(tag("line", x1=x, x2=x, y1=_TOP - 8, y2=bottom, stroke=_BRICK, stroke_dasharray="5 4"))
    for place, row in enumerate(rows):
        parts += _row(row, _TOP + _ROW * (place + 0.5), at, left)
    middle = (left + _WIDE - _RIGHT) / 2
    parts.append(label(middle, bottom + 36, "utility per episode", text_anchor="middle", **_FONT))
    return str(svg(_WIDE, bottom + 44, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _ends(row: dict[str, Any]) -> tuple[float, float]:
    return row["utility"]["low"], row["utility"]["high"]


def _row(row: dict[str, Any], y: float, at: Any, left: float) -> list[Markup]:
    colour = _BRICK if row["rule"] else _BLUE
    weight = {} if row["rule"] else {"font_weight": "bold"}
    low, high = map(at, _ends(row))
    return [
        label(left - 12, y + 4, row["policy"], text_anchor="end", **{**_FONT, **weight}),
        tag("line", x1=low, x2=high, y1=y, y2=y, stroke=colour, stroke_width=2),
        tag("circle", cx=at(row["predicted"]), cy=y, r=5.5, fill="none", stroke="#333", stroke_width=1.2),
        tag("circle", cx=at(row["utility"]["estimate"]), cy=y, r=3.5, fill=colour),
    ]


def _legend() -> list[Markup]:
    y, small = 42, {**_FONT, "font_size": "11", "fill": "#666"}
    return [
        tag("circle", cx=18, cy=y - 4, r=3.5, fill=_BLUE),
        label(28, y, "controller", **small),
        tag("circle", cx=104, cy=y - 4, r=3.5, fill=_BRICK),
        label(114, y, "simple rule, 95 % interval over instances", **small),
        tag("circle", cx=356, cy=y - 4, r=5.5, fill="none", stroke="#333", stroke_width=1.2),
        label(368, y, "what the model predicts", **small),
        tag("line", x1=520, x2=544, y1=y - 4, y2=y - 4, stroke=_BRICK, stroke_dasharray="5 4"),
        label(550, y, "best simple rule", **small),
    ]
