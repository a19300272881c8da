"""A steering curve as a picture that stands alone: score against strength, with the same-norm random band."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from refork.report.svg import label, path, svg, tag, ticks

_SVG = "http://www.w3.org/2000/svg"
_WIDE, _HIGH = 680, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 74, 52
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": "#333"}
_FEATURE, _RANDOM, _CLEAN = "#00796b", "#9b958b", "#a5351f"


def steering_picture(
    alphas: Sequence[float],
    scores: Sequence[tuple[float, float, float]],
    randoms: Sequence[tuple[float, float, float]],
    clean: float,
    title: str,
    below: str = "strength (1: nothing is changed, 0: the feature is taken out)",
) -> str:
    """An SVG document of mean scores in 0 .. 1 over strengths.

    ``scores`` are (mean, low, high) of the feature, ``randoms`` (5th, 50th, 95th percentile) of the mean
    scores of random directions of the same norm, ``clean`` the score without any change. Strengths stand
    evenly spaced, since they are mostly powers of two.
    """
    order = sorted(range(len(alphas)), key=lambda i: alphas[i])
    lows = [clean, *(s[1] for s in scores), *(r[0] for r in randoms)]
    highs = [clean, *(s[2] for s in scores), *(r[2] for r in randoms)]
    marks = ticks(max(0.0, min(lows) - 0.02), min(1.0, max(highs) + 0.02))
    low, high = marks[0], marks[-1]
    step = (_WIDE - _LEFT - _RIGHT) / max(1, len(order))

    def at(place: int, value: float) -> tuple[float, float]:
        share = (min(max(value, low), high) - low) / (high - low)
        return _LEFT + step * (place + 0.5), _HIGH - _BOTTOM - share * (_HIGH - _TOP - _BOTTOM)

    parts: list[Markup] = [tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    parts.append(label(_LEFT, 22, title, **{**_FONT, "font_size": "14"}))
    for value in marks:
        y = at(0, value)[1]
        parts.append(tag("line", x1=_LEFT, x2=_WIDE - _RIGHT, y1=y, y2=y, stroke="#e4e2de"))
        parts.append(label(_LEFT - 8, y + 4, f"{value:g}", text_anchor="end", **_FONT))
    for place, i in enumerate(order):
        x = at(place, low)[0]
        parts.append(label(x, _HIGH - _BOTTOM + 18, f"{alphas[i]:g}", text_anchor="middle", **_FONT))
    parts.append(label((_LEFT + _WIDE - _RIGHT) / 2, _HIGH - 10, below, text_anchor="middle", **_FONT))
    band = [at(p, randoms[i][2]) for p, i in enumerate(order)]
    band += [at(p, randoms[i][0]) for p, i in reversed(list(enumerate(order)))]
    parts.append(tag("path", d=path(band, close=True), fill=_RANDOM, fill_opacity="0.35"))
    middle = path([at(p, randoms[i][1]) for p, i in enumerate(order)])
    parts.append(tag("path", d=middle, fill="none", stroke=_RANDOM, stroke_width="1.5"))
    y = at(0, clean)[1]
    parts.append(tag("line", x1=_LEFT, x2=_WIDE - _RIGHT, y1=y, y2=y, stroke=_CLEAN, stroke_dasharray="4 4"))
    line = path([at(p, scores[i][0]) for p, i in enumerate(order)])
    parts.append(tag("path", d=line, fill="none", stroke=_FEATURE, stroke_width="2.5"))
    for place, i in enumerate(order):
        mean, bottom, top = scores[i]
        x, y = at(place, mean)
        parts.append(tag("line", x1=x, x2=x, y1=at(place, bottom)[1], y2=at(place, top)[1], stroke=_FEATURE))
        parts.append(tag("circle", cx=x, cy=y, r=3.5, fill=_FEATURE))
    return _document(svg(_WIDE, _HIGH, title, *parts, *_legend()))


def _legend() -> list[Markup]:
    """What the three marks mean, in one row below the title."""
    found: list[Markup] = []
    x = float(_LEFT)
    for name, colour, wide, dash in (
        ("this feature, 95 % interval", _FEATURE, 2.5, None),
        ("random directions of its norm, 5 to 95 %", _RANDOM, 9.0, None),
        ("unchanged", _CLEAN, 1.5, "4 4"),
    ):
        found.append(
            tag(
                "line", x1=x, x2=x + 22, y1=46, y2=46, stroke=colour, stroke_width=wide, stroke_dasharray=dash
            )
        )
        found.append(label(x + 28, 50, name, **_FONT))
        x += 46 + 5.8 * len(name)
    return found


def _document(picture: Markup) -> str:
    """In a page of its own a picture must say what language it is written in."""
    return str(picture).replace("<svg", f'<svg xmlns="{_SVG}"', 1)
