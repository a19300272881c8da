"""Exact match of simulators by domain, class and depth, as a picture that stands alone."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from refork.report import palette
from refork.report.svg import label, svg, tag
from refork_methods.simulate.fidelity import Fidelity, Figures

_SVG = "http://www.w3.org/2000/svg"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_COLOURS = (palette.LIGHT[-1], palette.LIGHT[0], "#77736c", palette.LIGHT[3], palette.LIGHT[7])
_WIDE, _LEFT, _RIGHT, _TOP, _ROW, _STEP = 860, 190, 780, 74, 14, 12


def fidelity_picture(evaluations: Sequence[Fidelity], measure: str = "exact") -> str:
    """An SVG document: each group of turns a row, each simulator a dot with its 95 % interval.

    Groups are those of the first simulator; at most five simulators are drawn.
    """
    shown = list(evaluations[: len(_COLOURS)])
    rows = _rows(shown[0])
    high = _ROW + _STEP * len(shown)
    bottom = _TOP + len(rows) * high + 6
    title = f"{measure.replace('_', ' ')} match" if measure.startswith("exact") else measure
    parts: list[Markup] = [tag("rect", width=_WIDE, height=bottom + 40, fill="#fff")]
    parts.append(label(16, 24, f"Next observation: {title}", **{**_FONT, "font_size": "15"}))
    parts += _legend(shown)
    parts += _axis(bottom)
    for number, (kind, name) in enumerate(rows):
        y = _TOP + number * high
        if kind and (number == 0 or rows[number - 1][0] != kind):
            parts.append(tag("line", x1=16, x2=_RIGHT, y1=y, y2=y, stroke="#c9c6c0"))
            parts.append(label(16, y + high / 2 + 4, kind, **_SMALL))
        parts.append(label(_LEFT - 14, y + high / 2 + 4, name, text_anchor="end", **_FONT))
        for which, one in enumerate(shown):
            figures = _group(one, kind, name)
            parts += _dot(figures, measure, y + _ROW / 2 + 6 + which * _STEP, _COLOURS[which])
    picture = svg(_WIDE, bottom + 40, f"Next observation: {title}", *parts)
    return str(picture).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _rows(one: Fidelity) -> list[tuple[str, str]]:
    found = [("", "all turns")]
    if len(one.domains) > 1:
        found.append(("", "mean of domains"))
        found += [("domain", name) for name in one.domains]
    found += [("class", name) for name in one.classes]
    return found + [("turn", name) for name in one.depths]


def _group(one: Fidelity, kind: str, name: str) -> Figures:
    if not kind:
        return one.micro if name == "all turns" else one.macro
    groups = {"domain": one.domains, "class": one.classes, "turn": one.depths}[kind]
    return groups.get(name, {})


def _x(share: float) -> float:
    return _LEFT + share * (_RIGHT - _LEFT)


def _axis(bottom: float) -> list[Markup]:
    parts = []
    for tenth in range(0, 11, 2):
        x = _x(tenth / 10)
        parts.append(tag("line", x1=x, x2=x, y1=_TOP, y2=bottom, stroke="#e7e5e1"))
        parts.append(label(x, bottom + 16, f"{tenth / 10:g}", text_anchor="middle", **_FONT))
    told = "share of turns, with 95 % intervals that count trajectories"
    parts.append(label((_LEFT + _RIGHT) / 2, bottom + 34, told, text_anchor="middle", **_SMALL))
    return parts


def _legend(shown: Sequence[Fidelity]) -> list[Markup]:
    parts: list[Markup] = []
    x = 16.0
    for colour, one in zip(_COLOURS, shown, strict=False):
        name = one.name if len(one.name) <= 34 else f"{one.name[:33]}…"
        parts.append(tag("circle", cx=x + 4, cy=44, r=4, fill=colour))
        parts.append(label(x + 13, 48, name, **_FONT))
        x += 30 + 6.6 * len(name)
    return parts


def _dot(figures: Figures, measure: str, y: float, colour: str) -> list[Markup]:
    one = figures.get(measure)
    if one is None:
        return []
    told = f"{one.estimate:.3f} ({one.low:.3f} to {one.high:.3f}), {one.n} turns"
    return [
        tag("line", x1=_x(one.low), x2=_x(one.high), y1=y, y2=y, stroke=colour, stroke_width="1.5"),
        tag("circle", tag("title", told), cx=_x(one.estimate), cy=y, r=4, fill=colour),
        label(_RIGHT + 10, y + 4, f"{one.estimate:.2f}", **{**_SMALL, "fill": colour}),
    ]
