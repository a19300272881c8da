"""Speed-ups in the order in which kernels were tried, and where they stand under the machine's roof."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, Spot, Trail, curves, scatter
from refork.report.words import counted, digits, one_line, per_second, times
from refork_methods.kernel.report.figures import roof_position
from refork_methods.kernel.report.folder import Node, Search
from refork_methods.kernel.roofline import roof

#: At most so many dots: of more an even choice.
MOST_DOTS: Final = 400
_WAY, _OTHER, _BEST = "from the original to the best", "another right kernel", "best so far"


def progress_figure(search: Search) -> Figure | None:
    """One dot a right kernel; the line is the best so far, the band what equal programs differ by.

    None where no kernel is right.
    """
    right = [
        (i, node.evaluated.speedup)
        for i, node in enumerate(search.nodes)
        if node.evaluated.ok and node.evaluated.speedup is not None
    ]
    if not right:
        return None
    best = max(value for _, value in right)
    stairs: list[Dot] = []
    for i, value in right:
        if not stairs or value > (stairs[-1].y or 0.0):
            stairs.append(Dot(i, value, tooltip=_move(search.nodes[i])))
    stairs.append(Dot(max(len(search.nodes) - 1, 1), best, marked=False, tooltip="in the end"))
    others = [Dot(i, value) for i, value in right[:: max(1, -(-len(right) // MOST_DOTS))]]
    lines = [
        Line(_BEST, stairs, colour=palette.LIGHT[-1], step=True),
        Line("a right kernel", others, colour=palette.LIGHT[5], joined=False),
    ]
    levels = [Level(1.0, "the reference")]
    most = _roof_speedup(search)
    # A roof far above all that was reached would press the dots flat: it is then said in words.
    if most is not None and most < 30 * best:
        levels.append(Level(most, f"roof of this machine, {times(most)}", palette.ROLES["ink"]))
    noise = None if search.ceilings is None else search.ceilings.noise
    plane = Plane(
        "kernels in the order in which they were tried", "speed-up over the reference", unit="times",
        log=True, levels=levels, zone=None if noise is None else (1 / noise, noise),
    )  # fmt: skip
    name = f"Best speed-up after each of {len(search.nodes)} kernels, {times(best)} in the end"
    failed = sum(not node.evaluated.ok for node in search.nodes)
    return replace(
        curves(lines, name=name, plane=plane), note=f"{counted(failed, 'kernel')} failed." if failed else ""
    )


def _roof_speedup(search: Search) -> float | None:
    """The speed-up that the roof allows at most; None where it is not known."""
    if not search.nodes or search.work is None or search.ceilings is None:
        return None
    first = search.nodes[0].evaluated
    base = first.reference_seconds or first.seconds
    return base / roof(search.work, search.ceilings) if base else None


def roofline_figure(search: Search, steps: Sequence[int]) -> Figure | None:
    """The roof, the way from the original to the best kernel, and all other right kernels beside it.

    All kernels do the same useful work on the same compulsory bytes, so all stand on one vertical line; the
    others are set to its left so that they do not cover the way. None where flops, bytes or ceilings are not
    known: then there is no such plane.
    """
    work, ceilings = search.work, search.ceilings
    if work is None or ceilings is None or not work.flops or not steps:
        return None
    rates = {
        node.number: found.flops
        for node in search.nodes
        if node.evaluated.ok and (found := roof_position(node.evaluated.seconds, work, None)) is not None
    }
    if not rates:
        return None
    way = [number for number in steps if number in rates]
    others = [number for number in rates if number not in set(way)]
    # Columns in turn, by the golden ratio: equal data give an equal picture, neighbours rarely meet.
    spots = [
        Spot(work.intensity / (1.12 + 0.3 * (i * 0.618034 % 1)), rates[number] / 1e9, _OTHER,
             tooltip=_move(search.by_number[number]))
        for i, number in enumerate(others[:: max(1, -(-len(others) // MOST_DOTS))])
    ]  # fmt: skip
    spots += [
        Spot(
            work.intensity, rates[n] / 1e9, _WAY,
            f"{digits(rates[n] / 1e9)}  {_move(search.by_number[n], 30)}", ringed=n == way[-1],
        )
        for n in way
    ]  # fmt: skip
    low, high = min(work.intensity, ceilings.ridge) / 4, max(work.intensity, ceilings.ridge) * 4
    floor = min(rates.values()) / 1.5
    left = max(low, floor / ceilings.bandwidth)
    flops = ceilings.flops / 1e9
    above = [(left, left * ceilings.bandwidth / 1e9), (ceilings.ridge, flops), (high, flops)]
    path = [(work.intensity, rates[n] / 1e9) for n in way]
    trails = [
        Trail(above, palette.ROLES["ink"]),
        *([Trail(path, palette.LIGHT[-1])] if len(path) > 1 else []),
    ]
    original = rates.get(search.nodes[0].number)
    zone = None if original is None else (original / ceilings.noise / 1e9, original * ceilings.noise / 1e9)
    ends = (
        f"from {per_second(rates[way[0]], 'flop')} to {per_second(rates[way[-1]], 'flop')}, " if way else ""
    )
    plane = Plane(
        "useful flop per compulsory byte",
        "Gflop/s",
        unit="number",
        log_x=True,
        log=True,
        zone=zone,
        height=340,
    )
    colours = {_WAY: palette.LIGHT[-1], _OTHER: palette.LIGHT[5]}
    name = f"Roofline: {ends}under a ceiling of {per_second(ceilings.flops, 'flop')}"
    figure = scatter(spots, name=name, plane=plane, colours=colours, trails=trails)
    share = f"±{100 * (ceilings.noise - 1):.0f} %" if math.isfinite(ceilings.noise) else "not known"
    slope = per_second(ceilings.bandwidth, "B")
    return replace(
        figure,
        note=f"Roof: {slope} from memory, then the ceiling. Tinted: noise around the original, {share}.",
    )


def _move(node: Node, most: int = 60) -> str:
    return one_line(node.move or ("original" if node.parent is None else f"node {node.number}"), most)
