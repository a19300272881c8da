"""What every theta would have built on a memory's own log, as a picture that stands alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from markupsafe import Markup

from refork.report import palette
from refork.report.svg import label, num, path, svg, tag, ticks
from refork_methods.memory.report import ThetaRow

#: A count as a height on the page.
Height: TypeAlias = Callable[[float], float]

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK = palette.LIGHT[-1], palette.LIGHT[0]
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_WIDE, _HIGH, _LEFT, _TOP, _BOTTOM = 680, 380, 58, 56, 260


def gate_picture(rows: Sequence[ThetaRow], theta: int, title: str) -> str:
    """An SVG document: a bar of tools for every theta, split by whether a later task would have called them.

    The broken line is what the closed form expects of random tasks with the same shares; ``theta`` is framed.
    """
    top = ticks(0, max([1.0, *(r.tools for r in rows), *(r.expected for r in rows)]), 5)
    slot = (_WIDE - 22 - _LEFT) / len(rows)

    def height(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * value / top[-1]

    parts = [tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    parts.append(label(_LEFT, 26, title, **{**_FONT, "font_size": "14"}))
    for mark in top:
        y = height(mark)
        parts.append(tag("line", x1=_LEFT, x2=_WIDE - 22, y1=y, y2=y, stroke="#e2e0dc"))
        parts.append(label(_LEFT - 8, y + 4, num(mark), text_anchor="end", **_FONT))
    for place, row in enumerate(rows):
        parts += _bar(row, _LEFT + slot * place, slot, height, framed=row.theta == theta)
    points = [(_LEFT + slot * (place + 0.5), height(row.expected)) for place, row in enumerate(rows)]
    parts.append(
        tag("path", d=path(points), fill="none", stroke="#333", stroke_width="1.5", stroke_dasharray="5 4")
    )
    parts += [tag("circle", cx=x, cy=y, r=2.5, fill="#333") for x, y in points]
    middle = (_LEFT + _WIDE - 22) / 2
    parts.append(
        label(
            middle,
            _BOTTOM + 54,
            "theta: tasks that select a plan before it becomes code",
            text_anchor="middle",
            **_FONT,
        )
    )
    return _document(title, parts + _legend())


def _bar(row: ThetaRow, x: float, slot: float, height: Height, *, framed: bool) -> list[Markup]:
    wide, left = slot * 0.6, x + slot * 0.2
    used, whole = height(row.tools - row.never_called), height(row.tools)
    parts = [
        tag("rect", x=left, y=used, width=wide, height=_BOTTOM - used, fill=_BLUE),
        tag("rect", x=left, y=whole, width=wide, height=used - whole, fill=_BRICK),
        label(x + slot / 2, _BOTTOM + 17, str(row.theta), text_anchor="middle", **_FONT),
    ]
    told = f"{row.never_called / row.tools:.0%}" if row.tools else "-"
    parts.append(label(x + slot / 2, _BOTTOM + 32, told, text_anchor="middle", **{**_SMALL, "fill": _BRICK}))
    if framed:
        frame = {"fill": "none", "stroke": "#333", "stroke_width": "1.2"}
        parts.append(
            tag(
                "rect",
                x=x + slot * 0.06,
                y=_TOP - 8,
                width=slot * 0.88,
                height=_BOTTOM - _TOP + 46,
                rx=4,
                **frame,
            )
        )
    return parts


def _legend() -> list[Markup]:
    y = _HIGH - 22
    return [
        tag("rect", x=_LEFT, y=y - 10, width=12, height=12, fill=_BLUE),
        label(_LEFT + 18, y, "tools that a later task meets", **_FONT),
        tag("rect", x=_LEFT + 200, y=y - 10, width=12, height=12, fill=_BRICK),
        label(_LEFT + 218, y, "tools that none does (share below)", **_FONT),
        tag(
            "line", x1=_LEFT + 432, x2=_LEFT + 456, y1=y - 4, y2=y - 4, stroke="#333", stroke_dasharray="5 4"
        ),
        label(_LEFT + 462, y, "closed form, all tools", **_FONT),
    ]


def _document(title: str, parts: Sequence[Markup]) -> str:
    return str(svg(_WIDE, _HIGH, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)
