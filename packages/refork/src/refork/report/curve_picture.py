"""One curve as a picture that stands alone: a value against the update, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from refork.report.svg import label, path, svg, tag, ticks

_SVG = "http://www.w3.org/2000/svg"
_WIDE, _HIGH = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 40


def curve_picture(points: Sequence[tuple[float, float]], title: str, below: str, beside: str) -> str:
    """An SVG document of (update, value) points; values must be above 0, infinite ones are left out.

    ``below`` and ``beside`` name the axes.
    """
    shown = [(x, math.log10(y)) for x, y in points if math.isfinite(y)]
    right = max((x for x, _ in shown), default=1.0) or 1.0
    low = math.floor(min((y for _, y in shown), default=0.0))
    high = max(math.ceil(max((y for _, y in shown), default=1.0)), low + 1)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + x / right * (_WIDE - _LEFT - _RIGHT),
            _HIGH - _BOTTOM - (y - low) / (high - low) * (_HIGH - _TOP - _BOTTOM),
        )

    font = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
    parts: list[Markup] = [tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    parts.append(label(_LEFT, 20, title, **{**font, "font_size": "14"}))
    for power in range(low, high + 1, max(1, (high - low) // 6)):
        y = at(0, power)[1]
        parts.append(tag("line", x1=_LEFT, x2=_WIDE - _RIGHT, y1=y, y2=y, stroke="#ddd"))
        parts.append(label(_LEFT - 6, y + 4, _power(power), text_anchor="end", **font))
    for update in (tick for tick in ticks(0, right) if tick <= right):
        parts.append(label(at(update, low)[0], _HIGH - 22, f"{update:g}", text_anchor="middle", **font))
    parts.append(label((_LEFT + _WIDE) / 2, _HIGH - 6, below, text_anchor="middle", **font))
    parts.append(label(_WIDE - _RIGHT, 20, beside, text_anchor="end", **font))
    drawn = path([at(x, y) for x, y in shown])
    parts.append(tag("path", d=drawn, fill="none", stroke="#00796b", stroke_width="2"))
    # In a page of its own a picture must say what language it is written in.
    return str(svg(_WIDE, _HIGH, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _power(exponent: int) -> str:
    """A power of ten as people write it."""
    return f"{10**exponent:,}" if 0 <= exponent <= 5 else f"1e{exponent}"
