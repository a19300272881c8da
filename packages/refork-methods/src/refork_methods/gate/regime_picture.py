"""Where choosing with care pays and where a one-line rule is as good, as a picture that stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from refork.report import palette
from refork.report.svg import label, svg, tag
from refork_methods.gate.answers import FAMILIES, OTHER, family, mark
from refork_methods.gate.regimes import BAYES, TIE, Comparison, RegimeMap

_SVG = "http://www.w3.org/2000/svg"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_LEFT, _TOP, _RIGHT, _CELL_HIGH, _LEAST = 76, 62, 22, 27, 700
#: One colour per family of simple rules; their marks keep them apart without it.
_COLOURS = {"s": "#e4e1dc", "v": "#e9cf8f", "1": "#c9dcc0", "m": "#a3bfa6", "n": "#e3bfae", "?": "#fff"}
#: Steps of the gain, as shares of the largest on the map.
_BLUES = ("#cfe3ec", "#a3cbdb", "#6fadc6", "#3f8aab", palette.LIGHT[-1])


def regime_picture(found: RegimeMap, title: str, here: tuple[float, float] | None = None) -> str:
    """An SVG document: one cell per problem, coloured by who wins it; ``here`` rings the present one.

    A blue cell shows by how much planning beats the best simple rule; any other shows which rule is as good.
    """
    wide = max(26.0, min(64.0, 620 / len(found.xs)))
    right, bottom = _LEFT + wide * len(found.xs), _TOP + _CELL_HIGH * len(found.ys)
    width, height = max(right + _RIGHT, _LEAST), bottom + 118
    most = max(cell.gain for row in found.cells for cell in row)
    parts = [tag("rect", width=width, height=height, fill="#fff")]
    parts.append(label(_LEFT, 24, title, **{**_FONT, "font_size": "14"}))
    parts.append(label(_LEFT, 43, "blue: planning gains that much over the best simple rule", **_SMALL))
    for j, row in enumerate(found.cells):
        y = bottom - _CELL_HIGH * (j + 1)
        parts.append(label(_LEFT - 8, y + 18, f"{found.ys[j]:g}", text_anchor="end", **_FONT))
        for i, cell in enumerate(row):
            parts += _cell(cell, _LEFT + wide * i, y, wide, most)
    every = 1 if wide >= 36 else 2
    for i, x in enumerate(found.xs):
        if i % every == 0:
            middle = _LEFT + wide * (i + 0.5)
            parts.append(label(middle, bottom + 17, f"{x:g}", text_anchor="middle", **_FONT))
    parts.append(label((_LEFT + right) / 2, bottom + 37, _words(found.x), text_anchor="middle", **_FONT))
    middle = (_TOP + bottom) / 2
    parts.append(
        label(
            20,
            middle,
            _words(found.y),
            text_anchor="middle",
            transform=f"rotate(-90 20 {middle:.0f})",
            **_FONT,
        )
    )
    parts += _ring(found, here, wide, bottom) + _legend(found, bottom + 62, most)
    return str(svg(width, height, title, *parts)).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _cell(cell: Comparison, x: float, y: float, wide: float, most: float) -> list[Markup]:
    if cell.winner == BAYES:
        step = min(len(_BLUES) - 1, int(len(_BLUES) * cell.gain / most))
        fill, ink = _BLUES[step], "#fff" if step >= 3 else "#234"
    else:
        fill, ink = _COLOURS[family(cell.rule).mark], "#6a655c"
    style = {**_SMALL, "fill": ink}
    return [
        tag("rect", x=x, y=y, width=wide - 1, height=_CELL_HIGH - 1, fill=fill),
        label(x + wide / 2 - 0.5, y + 17, mark(cell), text_anchor="middle", **style),
    ]


def _ring(found: RegimeMap, here: tuple[float, float] | None, wide: float, bottom: float) -> list[Markup]:
    if here is None:
        return []
    x, y = _place(found.xs, here[0]), _place(found.ys, here[1])
    if x is None or y is None:
        return []
    frame = {"fill": "none", "stroke": "#a5351f", "stroke_width": "2.2"}
    left, top = _LEFT + wide * x - 1, bottom - _CELL_HIGH * (y + 1) - 1
    told = "red frame: the problem as it stands"
    return [
        tag("rect", x=left, y=top, width=wide + 1, height=_CELL_HIGH + 1, rx=3, **frame),
        label(max(_LEFT + wide * len(found.xs), _LEAST - _RIGHT), 43, told, text_anchor="end", **_SMALL),
    ]


def _place(values: Sequence[float], value: float) -> int | None:
    """The cell a value lies in; None outside the map by more than half a cell."""
    order = sorted(range(len(values)), key=lambda i: abs(values[i] - value))
    step = max(values) - min(values)
    near = step / max(1, len(values) - 1) / 2 + 1e-9
    return order[0] if abs(values[order[0]] - value) <= near else None


def _legend(found: RegimeMap, y: float, most: float) -> list[Markup]:
    present = {family(cell.rule) for row in found.cells for cell in row if cell.winner != BAYES}
    parts: list[Markup] = []
    shown = [kind for kind in (*FAMILIES, OTHER) if kind in present]
    if any(cell.winner == BAYES for row in found.cells for cell in row):
        for step, colour in enumerate(_BLUES):
            parts.append(tag("rect", x=_LEFT + 16 * step, y=y - 11, width=16, height=14, fill=colour))
        told = f"planning wins, by up to {most:.1f} (a gain below {TIE:.1%} of the reward is a tie)"
        parts.append(label(_LEFT + 16 * len(_BLUES) + 8, y, told, **_SMALL))
    for place, kind in enumerate(shown):
        x, at = _LEFT + 200 * (place % 3), y + 26 + 22 * (place // 3)
        parts.append(tag("rect", x=x, y=at - 12, width=18, height=16, fill=_COLOURS[kind.mark]))
        parts.append(label(x + 9, at, kind.mark, text_anchor="middle", **{**_SMALL, "fill": "#6a655c"}))
        parts.append(label(x + 25, at, kind.words, **_FONT))
    return parts


def _words(name: str) -> str:
    kind, _, critic = name.partition(":")
    known = {
        "prior": "prior chance that a candidate is right",
        "verify": "price of the verifier",
        "generate": "price of a new candidate",
        "reward": "reward of a right candidate",
        "ship_loss": "loss of shipping a wrong one",
        "fix": "P(fix), of refining a wrong one",
        "breaks": "P(break), of refining a right one",
        "gap": f"gap of {critic}: P(pass | right) - P(pass | wrong)",
        "alpha": f"P(pass | right) of {critic}",
        "beta": f"P(pass | wrong) of {critic}",
        "price": f"price of {critic}",
    }
    return known.get(kind, name)
