"""Speed-ups in the order in which kernels were tried, and where they stand under the machine's roof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, Spot, Trail, curves, scatter
from refork.report.words import counted, digits, one_line, per_second, times
from refork_methods.kernel.report.figures import Search
from refork_methods.kernel.roofline import roof
from refork_methods.kernel.search.folder import SearchNode

#: At most so many dots: of more an even choice.
MOST_DOTS: Final = 400
_WAY, _OTHER = "from the original to the best", "another right kernel"


def progress_figure(search: Search) -> Figure | None:
    """One dot a right kernel; the line is the best so far, the band what equal programs differ by.

    None where no kernel is right.
    """
    right = [
        (node.number, node.evaluated.speedup)
        for node in search.nodes
        if node.evaluated.ok and node.evaluated.speedup is not None
    ]
    if not right:
        return None
    best = max(value for _, value in right)
    stairs: list[Dot] = []
    for number, value in right:
        if not stairs or value > (stairs[-1].y or 0.0):
            stairs.append(Dot(number, value, tooltip=_move(search.nodes[number])))
    stairs.append(Dot(max(len(search.nodes) - 1, 1), best, marked=False, tooltip="in the end"))
    others = [Dot(number, value) for number, value in right[:: max(1, -(-len(right) // MOST_DOTS))]]
    lines = [
        Line("best so far", stairs, colour=palette.LIGHT[-1], step=True),
        Line("a right kernel", others, colour=palette.LIGHT[5], joined=False),
    ]
    levels = [Level(1.0, "the reference")]
    first = search.nodes[0].evaluated
    base = first.reference_seconds or first.seconds
    if base and search.work is not None and search.ceilings is not None:
        most = base / roof(search.work, search.ceilings)
        # A roof far above all that was reached would press the dots flat: it is then said in words.
        if most < 30 * best:
            levels.append(Level(most, f"roof of this machine, {times(most)}", palette.ROLES["ink"]))
    noise = None if search.ceilings is None else search.ceilings.noise
    plane = Plane(
        "kernels in the order in which they were tried", "speed-up over the reference", unit="times",
        log=True, levels=levels, zone=None if noise is None else (1 / noise, noise),
    )  # fmt: skip
    name = f"Best speed-up after each of {len(search.nodes)} kernels, {times(best)} in the end"
    failed = sum(not node.evaluated.ok for node in search.nodes)
    said = f" {counted(failed, 'kernel')} failed." if failed else ""
    note = f"Each dot is a right kernel. Tinted: what equal programs differ by.{said}"
    return replace(curves(lines, name=name, plane=plane), note=note)


def roofline_figure(search: Search, path: Sequence[int]) -> Figure | None:
    """The roof, the way from the original to the best kernel, and all other right kernels beside it.

    All kernels do the same useful work on the same compulsory bytes, so all stand on one vertical line; the
    others are set to its left so that they do not cover the way. None where flops, bytes or ceilings are not
    known: then there is no such plane.
    """
    work, ceilings = search.work, search.ceilings
    if work is None or ceilings is None or not work.flops:
        return None
    rates = {
        node.number: work.flops / node.evaluated.seconds / 1e9
        for node in search.nodes
        if node.evaluated.ok and node.evaluated.seconds
    }
    if not rates:
        return None
    way = [number for number in path if number in rates]
    others = [number for number in rates if number not in way]
    # Columns in turn, by the golden ratio: equal data give an equal picture, neighbours rarely meet.
    spots = [
        Spot(work.intensity / (1.12 + 0.3 * (i * 0.618034 % 1)), rates[number], _OTHER,
             tooltip=_move(search.nodes[number]))
        for i, number in enumerate(others[:: max(1, -(-len(others) // MOST_DOTS))])
    ]  # fmt: skip
    for number in way:
        label = f"{digits(rates[number])}  {_move(search.nodes[number], 30)}"
        spots.append(Spot(work.intensity, rates[number], _WAY, label, ringed=number == way[-1]))
    low, high = min(work.intensity, ceilings.ridge) / 4, max(work.intensity, ceilings.ridge) * 4
    flops, slope = ceilings.flops / 1e9, ceilings.bandwidth / 1e9
    # The slope begins where the slowest kernel stands, or at the left edge.
    left = max(low, min(rates.values()) / 1.5 / slope)
    trails = [
        Trail([(left, left * slope), (ceilings.ridge, flops), (high, flops)], palette.ROLES["ink"]),
        Trail([(work.intensity, rates[number]) for number in way], palette.LIGHT[-1]),
    ]
    original = rates.get(0)
    plane = Plane(
        "useful flop per compulsory byte", "Gflop/s", unit="number", log_x=True, log=True, height=340,
        zone=None if original is None else (original / ceilings.noise, original * ceilings.noise),
    )  # fmt: skip
    figure = scatter(
        spots,
        name=f"Roofline under a ceiling of {per_second(ceilings.flops, 'flop')}",
        plane=plane,
        colours={_WAY: palette.LIGHT[-1], _OTHER: palette.LIGHT[5]},
        trails=[one for one in trails if len(one.points) > 1],
    )
    noise = f"±{100 * (ceilings.noise - 1):.0f} %"
    rise = per_second(ceilings.bandwidth, "B")
    note = f"Roof: {rise} from memory, then the ceiling. Tinted: noise around the original, {noise}."
    return replace(figure, note=note)


def _move(node: SearchNode, most: int = 60) -> str:
    return one_line(
        "original" if node.proposal is None else node.proposal.move or f"node {node.number}", most
    )
