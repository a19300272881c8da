"""The features of a crosscoder as two scatters that stand alone: whose each is, and on what it fires."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from refork.report.svg import label, line, svg, tag, ticks
from refork_methods.crosscoder.rank import FeatureRow

_SVG = "http://www.w3.org/2000/svg"
_WIDE, _HIGH = 940, 440
_TOP, _BOTTOM = 90, 384
#: Told apart by hue and by lightness: the shared many stand behind in grey.
COLOURS = {"A": "#a5351f", "B": "#0b5c7d", "shared": "#9b958b"}
NAMES = {"A": "only A may use it", "B": "only B may use it", "shared": "both may use it"}
_STYLE = """
text{font-family:system-ui,sans-serif;font-size:12px;fill:#333}
.title{font-size:15px;font-weight:600}.mid{text-anchor:middle}.end{text-anchor:end}.faint{fill:#777}
.grid{stroke:#e6e3dd}.axis{stroke:#999}.border{stroke:#bbb;stroke-dasharray:3 3}
.ring{fill:none;stroke:#222;stroke-width:1.4}.zone{fill:#f3efe6}
"""
#: Names on a scatter at most: those of the largest effects.
_NAMED = 6


def feature_picture(rows: Sequence[FeatureRow], positive: str) -> str:
    """An SVG document: relative decoder norm against Cohen's d, and fire rates on both kinds of texts.

    Features that never fired are counted, not drawn. Candidates wear a ring; the largest are named.
    """
    live = [row for row in rows if row.fires_positive > 0 or row.fires_negative > 0]
    silent = len(rows) - len(live)
    drawn: list[Markup] = [tag("style", Markup(_STYLE)), tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    drawn.append(
        label(24, 26, f"What each feature tells apart ({positive} or not), and whose it is", class_="title")
    )
    drawn += _legend(live, silent)
    # Largest last, so that they lie on top of the crowd.
    order = sorted(live, key=lambda row: (row.block != "shared", row.d))
    named = {row.feature for row in sorted(live, key=lambda row: -row.d)[:_NAMED] if row.d > 0}
    drawn += _norms(order, named, positive)
    drawn += _rates(order, named, positive)
    picture = svg(_WIDE, _HIGH, f"Features by effect on {positive} texts and by whose they are", *drawn)
    return str(picture).replace("<svg", f'<svg xmlns="{_SVG}"', 1)


def _legend(live: Sequence[FeatureRow], silent: int) -> list[Markup]:
    drawn: list[Markup] = []
    x = 24.0
    for block, colour in COLOURS.items():
        count = sum(row.block == block for row in live)
        if not count:
            continue
        words = f"{NAMES[block]} ({count})"
        drawn += [tag("circle", cx=x + 5, cy=46, r=4.5, fill=colour), label(x + 15, 50, words)]
        x += 34 + 6.3 * len(words)
    candidates = sum(row.candidate for row in live)
    drawn += [
        tag("circle", cx=x + 6, cy=46, r=6, class_="ring"),
        label(x + 18, 50, f"candidate ({candidates})"),
    ]
    if silent:
        drawn.append(label(x + 130, 50, f"{silent} never fire on these texts", class_="faint"))
    return drawn


def _norms(rows: Sequence[FeatureRow], named: set[int], positive: str) -> list[Markup]:
    """Whose a feature is (relative norm) against what it tells apart (d)."""
    left, right = 62.0, 440.0
    shown = [row for row in rows if math.isfinite(row.d) and math.isfinite(row.relative_norm)]
    marks = ticks(min((row.d for row in shown), default=0.0), max((row.d for row in shown), default=1.0))
    low, high = marks[0], marks[-1]

    def at(row: FeatureRow) -> tuple[float, float]:
        # A hair of room, so that points at 0 and 1 are seen whole.
        x = left + (0.03 + 0.94 * row.relative_norm) * (right - left)
        return x, _BOTTOM - (row.d - low) / (high - low) * (_BOTTOM - _TOP)

    drawn: list[Markup] = []
    for value in marks:
        y = _BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP)
        drawn += [line(left, y, right, y, "axis" if value == 0 else "grid")]
        drawn += [label(left - 8, y + 4, f"{value:g}", class_="end")]
    for value in (0.0, 0.1, 0.5, 0.9, 1.0):
        x = left + (0.03 + 0.94 * value) * (right - left)
        if value in (0.1, 0.9):
            drawn.append(line(x, _TOP, x, _BOTTOM, "border"))
        drawn.append(label(x, _BOTTOM + 17, f"{value:g}", class_="mid"))
    drawn.append(label((left + right) / 2, _BOTTOM + 38, "decoder norm of A / of both", class_="mid"))
    drawn.append(label(left + 4, _TOP + 12, "B only", class_="faint"))
    drawn.append(label(right - 4, _TOP + 12, "A only", class_="faint end"))
    drawn.append(label(left - 36, _TOP - 8, f"Cohen's d, {positive} - other"))
    places = [(row, *at(row)) for row in shown]
    return drawn + _points(places, named)


def _rates(rows: Sequence[FeatureRow], named: set[int], positive: str) -> list[Markup]:
    """Fire rates on positive texts against the others; the candidates' corner is shaded."""
    left, right = 540.0, 916.0

    def at(on: float, off: float) -> tuple[float, float]:
        return left + (0.03 + 0.94 * off) * (right - left), _BOTTOM - (0.03 + 0.94 * on) * (_BOTTOM - _TOP)

    x, y = at(0.3, 0.1)
    drawn: list[Markup] = [tag("rect", x=left, y=_TOP, width=x - left, height=y - _TOP, class_="zone")]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        gx, gy = at(value, value)
        drawn += [line(left, gy, right, gy, "grid"), line(gx, _TOP, gx, _BOTTOM, "grid")]
        drawn += [label(left - 8, gy + 4, f"{value:.0%}", class_="end")]
        drawn += [label(gx, _BOTTOM + 17, f"{value:.0%}", class_="mid")]
    drawn.append(line(*at(0, 0), *at(1, 1), "border"))
    drawn.append(label((left + right) / 2, _BOTTOM + 38, "fires on other texts", class_="mid"))
    drawn.append(label(left - 36, _TOP - 8, f"fires on {positive} texts"))
    places = [(row, *at(row.fires_positive, row.fires_negative)) for row in rows]
    return drawn + _points(places, named)


def _points(places: Sequence[tuple[FeatureRow, float, float]], named: set[int]) -> list[Markup]:
    drawn: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for row, x, y in places:
        told = (
            f"feature {row.feature}: d {row.d:.2f}, AUROC {row.auroc:.3f}, "
            f"relative norm {row.relative_norm:.2f}, fires {row.fires_positive:.0%} and "
            f"{row.fires_negative:.0%}"
        )
        if row.examples:
            told += "; on " + ", ".join(repr(e.token) for e in row.examples[:3])
        opacity = "0.45" if row.block == "shared" else "0.9"
        drawn.append(
            tag(
                "circle", tag("title", told), cx=x, cy=y, r=3.4, fill=COLOURS[row.block], fill_opacity=opacity
            )
        )
        if row.candidate:
            drawn.append(tag("circle", cx=x, cy=y, r=6, class_="ring"))
    for row, x, y in sorted(places, key=lambda place: -place[0].d):
        # A name that would lie on another one is left to its tooltip.
        if row.feature not in named or any(abs(x - u) < 40 and abs(y - v) < 13 for u, v in taken):
            continue
        taken.append((x, y))
        left = x > _WIDE - 70 or 390 < x < 450
        drawn.append(label(x - 9 if left else x + 9, y + 4, str(row.feature), class_="end" if left else None))
    return drawn
