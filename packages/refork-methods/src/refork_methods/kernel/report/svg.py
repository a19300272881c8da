"""SVG by small functions: every attribute and text escaped, every number short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

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
        if value is not None:
            shown = value if isinstance(value, str) else num(value)
            parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(visible(shown))}"')
    inner = "".join(str(part if isinstance(part, Markup) else escape(visible(part))) for part in content)
    return Markup("".join(parts) + (f">{inner}</{name}>" if inner else "/>"))


def label(x: Number, y: Number, text: str, class_: str | None = None) -> Markup:
    """A text element at a place."""
    return tag("text", text, x=x, y=y, class_=class_)


def line(x1: Number, y1: Number, x2: Number, y2: Number, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[Number, Number]], class_: str) -> Markup:
    """A polyline."""
    steps = " L".join(f"{num(x)} {num(y)}" for x, y in points)
    return tag("path", d=f"M{steps}", class_=class_)


def svg(width: Number, height: Number, name: str, *content: str, role: str = "img") -> Markup:
    """A whole picture, ``name`` read aloud in its place; lengths in CSS pixels."""
    return tag(
        "svg", *content, viewBox=f"0 0 {num(width)} {num(height)}", width=width, height=height,
        role=role, aria_label=name,
    )  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class LogAxis:
    """Values above 0 on pixels from ``start`` to ``stop``, by their logarithm."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The pixel of a value; what is off the axis stands at its end."""
        kept = min(max(value, self.low), self.high)
        share = math.log(kept / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, most: int = 7) -> list[float]:
        """Round values on the axis: 1, 2, 5 of each power of ten, or fewer where they are too many."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [s * 10.0**p for p in range(first, last + 1) for s in steps]
            kept = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(kept) <= most:
                return kept
        every = math.ceil(len(kept) / most)
        return kept[::every]


def covering(values: Sequence[float], start: float, stop: float, room: float = 1.25) -> LogAxis:
    """An axis over all values with some room at both ends, at least a factor of four wide."""
    low, high = min(values) / room, max(values) * room
    short = 4 * low / high
    if short > 1:
        low, high = low / math.sqrt(short), high * math.sqrt(short)
    return LogAxis(low, high, start, stop)
