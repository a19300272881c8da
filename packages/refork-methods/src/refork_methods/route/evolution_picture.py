"""A run of stage 2 as a picture: reward against rollouts used, beside its rival and what it is to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from refork.report import palette
from refork.report.pictures import Frame
from refork.report.svg import label, path, svg, tag, ticks

_SVG = "http://www.w3.org/2000/svg"
_BLUE, _BRICK, _GREY, _INK = palette.LIGHT[-1], palette.LIGHT[0], "#77736c", "#333"
_FONT = {"font_family": "sans-serif", "font_size": "12", "fill": _INK}
_SMALL = {**_FONT, "font_size": "11", "fill": "#666"}
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 860, 440, 58, 640, 70, 376


def evolution_picture(told: dict[str, Any], title: str = "Evolution of the selection head") -> str:
    """An SVG document of what ``improve`` reports.

    Thin: mean reward of all candidates of a generation, who share their few tasks and so their luck. Thick:
    that over the last five generations. Brick: batches of REINFORCE. On the right: rewards on held-out tasks.
    """
    made, rival, trial = told["evolved"], told["rival"], told["trial"]
    most = made["rollouts"]
    ends = {"evolved": trial["mean"], **_shown(trial["means"])}
    curves = [made["reward"], *([rival["reward"]] if rival else [])]
    top = max([*ends.values(), *(max(curve) for curve in curves)])
    frame = Frame(_LEFT, _RIGHT, _TOP, _BOTTOM, 0, most, 0, ticks(0, top, 6)[-1])
    parts = [tag("rect", width=_WIDE, height=_HIGH, fill="#fff")]
    parts.append(label(_LEFT, 26, title, **{**_FONT, "font_size": "15"}))
    told_of = "while training: mean of all candidates, each generation (thin) and over five (thick)"
    parts.append(label(_LEFT, 46, told_of + ("; REINFORCE (brick)" if rival else ""), **_SMALL))
    parts.append(label(_RIGHT + 26, 46, f"{trial['runs']} held-out tasks", **_SMALL))
    parts += _axes(frame, top)
    parts.append(_curve(frame, made["reward"], most, _BLUE, 0.6))
    parts.append(_curve(frame, _running(made["reward"]), most, _BLUE, 2.4))
    if rival:
        parts.append(_curve(frame, rival["reward"], rival["rollouts"], _BRICK, 2.0))
    parts += _ends(frame, ends)
    return str(svg(_WIDE, _HIGH, title, *parts)).replace("<svg ", f'<svg xmlns="{_SVG}" ', 1)


def _shown(means: dict[str, float]) -> dict[str, float]:
    """The start, the rival, and of the single workers only the best."""
    alone = {name: mean for name, mean in means.items() if name.startswith("always ")}
    best = max(alone, key=lambda name: alone[name])
    return {name: mean for name, mean in means.items() if name not in alone} | {best: alone[best]}


def _axes(frame: Frame, top: float) -> list[Markup]:
    drawn = []
    for mark in ticks(0, top, 6):
        y = frame.y(mark)
        drawn.append(tag("line", x1=_LEFT, y1=y, x2=_RIGHT, y2=y, stroke="#e4e0d8"))
        drawn.append(label(_LEFT - 8, y + 4, f"{mark:.1f}", text_anchor="end", **_SMALL))
    for mark in (m for m in ticks(0, frame.high_x, 6) if m <= frame.high_x):
        drawn.append(label(frame.x(mark), _BOTTOM + 18, f"{mark:,.0f}", text_anchor="middle", **_SMALL))
    drawn.append(label((_LEFT + _RIGHT) / 2, _BOTTOM + 42, "rollouts", text_anchor="middle", **_FONT))
    drawn.append(label(_LEFT - 8, _TOP - 10, "reward", text_anchor="end", **_SMALL))
    return drawn


def _curve(frame: Frame, values: Sequence[float], rollouts: int, colour: str, width: float) -> Markup:
    """Each value stands where its generation ends."""
    step = rollouts / len(values)
    points = [(frame.x((i + 1) * step), frame.y(value)) for i, value in enumerate(values)]
    return tag("path", d=path(points), fill="none", stroke=colour, stroke_width=width)


def _running(values: Sequence[float], over: int = 5) -> list[float]:
    """The mean of each value and those before it, ``over`` at most."""
    parts = [values[max(0, i + 1 - over) : i + 1] for i in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def _ends(frame: Frame, ends: dict[str, float]) -> list[Markup]:
    """Points on the right with their names, moved apart where they would touch."""
    drawn = []
    free = float("inf")
    for name, mean in sorted(ends.items(), key=lambda pair: pair[1]):
        colour = {"evolved": _BLUE, "REINFORCE": _BRICK}.get(name, _GREY)
        y = frame.y(mean)
        text = min(y, free - 15)
        free = text
        drawn.append(tag("circle", cx=_RIGHT + 18, cy=y, r=4.5, fill=colour))
        drawn.append(tag("line", x1=_RIGHT + 23, y1=y, x2=_RIGHT + 32, y2=text, stroke="#c9c4ba"))
        drawn.append(label(_RIGHT + 36, text + 4, f"{mean:.3f}  {name}", **{**_FONT, "fill": colour}))
    return drawn
