"""SVG by small functions: every attribute and text escaped, every number short."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup, escape

from refork.visible import visible

Number = float | int


def num(value: Number) -> str:
    """A coordinate with at most one decimal, so that equal data give equal bytes."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, *content: str, **attributes: Number | str | None) -> Markup:
    """One element. ``class_`` is class, ``_`` in names is ``-``; None leaves an attribute out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        shown = value if isinstance(value, str) else num(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(visible(shown))}"')
    inner = "".join(str(escape(visible(part) if not isinstance(part, Markup) else part)) for part in content)
    return Markup("".join(parts) + (f">{inner}</{name}>" if inner else "/>"))


def label(x: Number, y: Number, text: str, **attributes: Number | str | None) -> Markup:
    """A text element at a place."""
    return tag("text", text, x=x, y=y, **attributes)


def line(x1: Number, y1: Number, x2: Number, y2: Number, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[Number, Number]], *, close: bool = False) -> str:
    """The ``d`` of a polyline."""
    steps = " L".join(f"{num(x)} {num(y)}" for x, y in points)
    return f"M{steps}{'Z' if close else ''}" if points else ""


def svg(
    width: Number, height: Number, name: str, *content: str, class_: str = "", role: str = "img"
) -> Markup:
    """A whole picture, ``name`` read aloud in its place; lengths in CSS pixels."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {num(width)} {num(height)}",
        width=width,
        height=height,
        role=role,
        aria_label=name,
        class_=class_ or None,
    )


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers that cover ``low`` to ``high``, at most about ``most`` steps apart."""
    width = high - low
    if width <= 0:
        width = max(abs(high), 1.0)
        high = low + width
    power = 10.0 ** math.floor(math.log10(width / most))
    step = next(s * power for s in (1, 2, 2.5, 5, 10, 20) if width / (s * power) <= most)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def runs(values: Sequence[float | None]) -> list[range]:
    """Stretches of indices without None: a line is broken where a value was never computed."""
    found: list[range] = []
    start: int | None = None
    for i, value in enumerate([*values, None]):
        if value is not None and start is None:
            start = i
        elif value is None and start is not None:
            found.append(range(start, i))
            start = None
    return found
