"""SVG by small functions: everything escaped, every coordinate short, so that equal data give equal bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, final

STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#24292f}.small{font-size:12px;fill:#57606a}"
    ".grid{stroke:#d8dee4}.axis{stroke:#57606a}.end{text-anchor:end}.mid{text-anchor:middle}"
)
#: Told apart by most eyes, and on white.
COLOURS: Final = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#9a6700", "#bf3989", "#0a7a86", "#57606a")


def num(value: float) -> str:
    """A coordinate with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def tag(name: str, content: str = "", /, **attributes: float | str) -> str:
    """One element around what is SVG already. ``class_`` is class, ``_`` in names is ``-``."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(v if isinstance(v, str) else num(v))}"'
        for key, v in attributes.items()
    )
    return f"<{name}{told}>{content}</{name}>" if content else f"<{name}{told}/>"


def label(x: float, y: float, text: str, class_: str = "", **more: float | str) -> str:
    """A text at a place."""
    return tag("text", escape(text), x=x, y=y, **({"class_": class_} if class_ else {}), **more)


def polyline(points: Sequence[tuple[float, float]], colour: str, **more: float | str) -> str:
    """A line through points."""
    steps = " L".join(f"{num(x)} {num(y)}" for x, y in points)
    return tag("path", d=f"M{steps}", fill="none", stroke=colour, stroke_width=more.pop("width", 2.0), **more)


def band(
    upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], colour: str, opacity: float
) -> str:
    """The surface between two lines."""
    steps = " L".join(f"{num(x)} {num(y)}" for x, y in [*upper, *reversed(lower)])
    return tag("path", d=f"M{steps}Z", fill=colour, opacity=f"{opacity:.2f}")


def picture(width: float, height: float, name: str, parts: Sequence[str]) -> str:
    """A whole picture, ``name`` read aloud in its place."""
    back = tag("rect", width=width, height=height, fill="#fff")
    body = f"<style>{STYLE}</style>{back}{''.join(parts)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {num(width)} {num(height)}" '
        f'width="{num(width)}" height="{num(height)}" role="img" aria-label="{escape(name)}">{body}</svg>\n'
    )


@final
@dataclass(frozen=True, slots=True)
class Axes:
    """A frame of pixels over ranges of values."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: float = 62
    right: float = 560
    top: float = 46
    bottom: float = 320

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point."""
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + across * (self.right - self.left), self.bottom - up * (self.bottom - self.top)

    def frame(
        self, xs: Sequence[tuple[float, str]], ys: Sequence[tuple[float, str]], x_name: str, title: str
    ) -> list[str]:
        """Lines and words of both axes; ticks are values with what to write there."""
        parts = [label(self.left, 26, title)]
        for value, text in ys:
            y = self.at(self.x[0], value)[1]
            parts.append(tag("line", x1=self.left, y1=y, x2=self.right, y2=y, class_="grid"))
            parts.append(label(self.left - 8, y + 4, text, "small end"))
        for value, text in xs:
            x = self.at(value, self.y[0])[0]
            parts.append(label(x, self.bottom + 20, text, "small mid"))
        low = self.bottom
        parts.append(tag("line", x1=self.left, y1=low, x2=self.right, y2=low, class_="axis"))
        parts.append(label((self.left + self.right) / 2, self.bottom + 42, x_name, "small mid"))
        return parts


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places moved apart so that each is ``gap`` from the next, in their order, as little as needed."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    found = list(places)
    for above, below in itertools.pairwise(order):
        found[below] = max(found[below], found[above] + gap)
    over = max(found) - max(places) if found else 0.0
    return [one - over / 2 for one in found]
