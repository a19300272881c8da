"""Where a search's kernels stand under the machine's roof: flop a second over flop per byte, both log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from refork_methods.kernel.report.figures import place
from refork_methods.kernel.report.folder import Node, Search
from refork_methods.kernel.report.svg import LogAxis, covering, label, line, num, path, svg, tag
from refork_methods.kernel.report.words import digits, one_line, per_second
from refork_methods.kernel.roofline import Ceilings, Work

#: At most so many faint dots: more of them cover each other.
MOST_DOTS = 400
#: Pixels between two labels of the path.
_LEADING = 17.0


@final
@dataclass(frozen=True, slots=True)
class _Frame:
    """The picture's plane; ``narrow`` has less room for words."""

    x: LogAxis
    y: LogAxis
    narrow: bool


def roofline_picture(search: Search, steps: Sequence[int], width: int) -> Markup | None:
    """The roof, the way from the original to the best kernel, and all other right kernels beside it.

    All kernels do the same useful work on the same compulsory bytes, so all stand on one vertical line; the
    faint dots are set to its left so that they do not cover the way. None where flops, bytes or ceilings
    are not known: then there is no such plane.
    """
    work, ceilings = search.work, search.ceilings
    if work is None or ceilings is None or not work.flops or not steps:
        return None
    rates = {
        node.number: found.flops
        for node in search.nodes
        if node.evaluated.ok and (found := place(node.evaluated.seconds, work, None)) is not None
    }
    if not rates:
        return None
    narrow = width < 500
    height = 400 if narrow else 430
    x = covering((work.intensity, ceilings.ridge), 52, width - (12 if narrow else 18), 4.0)
    y = covering((*rates.values(), ceilings.flops), height - 46, 30, 1.5)
    frame = _Frame(x, y, narrow)
    way = [number for number in steps if number in rates]
    told = _told(rates, way, ceilings)
    return svg(
        width, height, told,
        *_axes(frame), *_noise(frame, rates.get(search.nodes[0].number), ceilings),
        *_roof(frame, ceilings), *_dots(frame, work, rates, way), *_way(frame, search, work, rates, way),
    )  # fmt: skip


def _told(rates: dict[int, float], way: Sequence[int], ceilings: Ceilings) -> str:
    ends = f"from {per_second(rates[way[0]], 'flop')} to {per_second(rates[way[-1]], 'flop')}" if way else ""
    return f"Roofline: {ends}, under a ceiling of {per_second(ceilings.flops, 'flop')}"


def _axes(frame: _Frame) -> list[Markup]:
    x, y = frame.x, frame.y
    parts = []
    for value in y.ticks(7):
        parts.append(line(x.start, y(value), x.stop, y(value), "grid"))
        parts.append(label(x.start - 8, y(value) + 4, digits(value / 1e9), "end"))
    for value in x.ticks(4 if frame.narrow else 8):
        parts.append(line(x(value), y.start, x(value), y.start + 4, "axis"))
        parts.append(label(x(value), y.start + 18, digits(value), "mid"))
    parts.append(line(x.start, y.start, x.stop, y.start, "axis"))
    parts.append(label(4, 16, "Gflop/s"))
    parts.append(label((x.start + x.stop) / 2, y.start + 36, "useful flop per compulsory byte", "mid"))
    return parts


def _roof(frame: _Frame, ceilings: Ceilings) -> list[Markup]:
    x, y = frame.x, frame.y
    # The slope enters from below where the plane is cut off at the bottom.
    left = max(x.low, y.low / ceilings.bandwidth)
    corner = (x(ceilings.ridge), y(ceilings.flops))
    points = [(x(left), y(left * ceilings.bandwidth)), corner, (x.stop, corner[1])]
    top = f"{per_second(ceilings.flops, 'flop')} at most"
    slope = per_second(ceilings.bandwidth, "B") + ("" if frame.narrow else " from memory")
    middle = ((points[0][0] + corner[0]) / 2, (points[0][1] + corner[1]) / 2)
    angle = _angle(points[0], corner)
    turned = tag(
        "text", slope, class_="mid roof-name",
        transform=f"translate({num(middle[0])} {num(middle[1])}) rotate({num(angle)}) translate(0 -8)",
    )  # fmt: skip
    long_enough = corner[0] - points[0][0] > 5 * len(slope)
    return [
        path(points, "roof"),
        label(x.stop, corner[1] - 8, top, "end roof-name"),
        *([turned] if long_enough else []),
    ]


def _angle(one: tuple[float, float], other: tuple[float, float]) -> float:
    return math.degrees(math.atan2(other[1] - one[1], other[0] - one[0]))


def _noise(frame: _Frame, original: float | None, ceilings: Ceilings) -> list[Markup]:
    """What equal programs differ by, around the original: a gain inside it is none."""
    if original is None:
        return []
    top, bottom = frame.y(original * ceilings.noise), frame.y(original / ceilings.noise)
    x = frame.x
    return [
        tag("rect", x=x.start, y=top, width=x.stop - x.start, height=max(bottom - top, 1.0), class_="noise"),
        label(x.start + 6, top - 5, f"noise, ±{100 * (ceilings.noise - 1):.0f} %", "noise-name"),
    ]


def _dots(frame: _Frame, work: Work, rates: dict[int, float], way: Sequence[int]) -> list[Markup]:
    others = [number for number in rates if number not in set(way)]
    at = frame.x(work.intensity)
    every = max(1, -(-len(others) // MOST_DOTS))
    # Columns in turn, by the golden ratio: equal data give an equal picture, neighbours rarely meet.
    return [
        tag("circle", cx=at - 12 - 26 * (i * 0.618034 % 1), cy=frame.y(rates[number]), r=3, class_="faint")
        for i, number in enumerate(others[::every])
    ]


def _way(
    frame: _Frame, search: Search, work: Work, rates: dict[int, float], way: Sequence[int]
) -> list[Markup]:
    at = frame.x(work.intensity)
    points = [(at, frame.y(rates[number])) for number in way]
    right = at + 150 < frame.x.stop if frame.narrow else at + 230 < frame.x.stop
    side = 12 if right else -52
    parts = [path(points, "way")] if len(points) > 1 else []
    places = _apart([y for _, y in points], frame.y.stop, frame.y.start - 6)
    for i, (number, (x, y)) in enumerate(zip(way, points, strict=True)):
        node = search.by_number[number]
        last = i == len(way) - 1
        parts.append(tag("circle", cx=x, cy=y, r=6 if last else 4.5, class_="best" if last else "step"))
        if places is None and 0 < i < len(way) - 1:
            continue
        base = y if places is None else places[i]
        text = f"{digits(rates[number] / 1e9)}  {_move(node, frame.narrow)}"
        if abs(base - y) > 3:
            parts.append(line(x + (5 if right else -5), y, x + side * 0.85, base, "leader"))
        parts.append(label(x + side, base + 4, text, ("" if right else "end ") + "way-name"))
    return parts


def _move(node: Node, narrow: bool) -> str:
    return one_line(
        node.move or ("original" if node.parent is None else f"node {node.number}"), 17 if narrow else 30
    )


def _apart(wanted: Sequence[float], top: float, bottom: float) -> list[float] | None:
    """Places near the wanted ones, ``_LEADING`` apart and within bounds; None where they do not all fit."""
    if _LEADING * (len(wanted) - 1) > bottom - top:
        return None
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    found = [0.0] * len(wanted)
    floor = top
    for i in order:
        found[i] = max(wanted[i], floor)
        floor = found[i] + _LEADING
    ceiling = bottom
    for i in reversed(order):
        found[i] = min(found[i], ceiling)
        ceiling = found[i] - _LEADING
    return found
