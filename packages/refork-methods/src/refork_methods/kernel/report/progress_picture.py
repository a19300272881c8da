"""Speed-ups in the order in which kernels were tried, the best so far, and where the roof would be."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from refork_methods.kernel.report.folder import Search
from refork_methods.kernel.report.svg import LogAxis, covering, label, line, num, path, svg, tag
from refork_methods.kernel.report.words import times
from refork_methods.kernel.roofline import roof

#: At most so many dots: of more, those that were the best of their time and an even choice of the others.
MOST_DOTS = 800


def progress_picture(search: Search, width: int) -> Markup | None:
    """One dot a right kernel, a cross below for a failed one; the line is the best so far.

    None where no kernel is right.
    """
    right = [
        (i, node.evaluated.speedup)
        for i, node in enumerate(search.nodes)
        if node.evaluated.ok and node.evaluated.speedup is not None
    ]
    if not right:
        return None
    height, left, bottom = 288, 46, 232
    most = _roof_speedup(search)
    values = [value for _, value in right] + [1.0]
    # A roof far above all that was reached would press the dots flat: it is then said in words.
    shown = most is not None and most < 30 * max(values)
    y = covering([*values, most] if shown and most else values, bottom, 26, 1.3)
    last = max(len(search.nodes) - 1, 1)
    wide = width - 16 - left

    def x(number: int) -> float:
        return left + 8 + (wide - 16) * number / last

    stairs = _stairs(right)
    return svg(
        width, height,
        f"Best speed-up after each of {len(search.nodes)} kernels, {times(max(values))} in the end",
        *_axes(y, left, left + wide, bottom, search),
        *_line_of_roof(y, most if shown else None, left, left + wide),
        *(tag("circle", cx=x(i), cy=y(value), r=2.5, class_="faint") for i, value in _thinned(right)),
        path(_steps([(x(i), y(value)) for i, value in stairs], x(last)), "stairs"),
        *(tag("circle", cx=x(i), cy=y(value), r=4, class_="step") for i, value in stairs[-60:]),
        *_crosses(search, x, bottom + 20),
        label(left + wide / 2, height - 8, "kernels in the order in which they were tried", "mid"),
        label(4, 16, "speed-up over the reference"),
    )  # fmt: skip


def _roof_speedup(search: Search) -> float | None:
    """The speed-up that the roof allows at most; None where it is not known."""
    if not search.nodes or search.work is None or search.ceilings is None:
        return None
    first = search.nodes[0].evaluated
    base = first.reference_seconds or first.seconds
    return base / roof(search.work, search.ceilings) if base else None


def _stairs(right: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Where the best so far rose."""
    found: list[tuple[int, float]] = []
    for i, value in right:
        if not found or value > found[-1][1]:
            found.append((i, value))
    return found


def _steps(points: list[tuple[float, float]], last: float) -> list[tuple[float, float]]:
    """The corners of a staircase through the points, on to the last kernel."""
    found = [points[0]]
    for x, y in points[1:]:
        found += [(x, found[-1][1]), (x, y)]
    return [*found, (last, found[-1][1])]


def _thinned(right: list[tuple[int, float]]) -> list[tuple[int, float]]:
    return right[:: max(1, -(-len(right) // MOST_DOTS))]


def _axes(y: LogAxis, left: float, stop: float, bottom: float, search: Search) -> list[Markup]:
    parts = []
    if search.ceilings is not None:
        noise = search.ceilings.noise
        top, low = y(noise), y(1 / noise)
        parts.append(
            tag("rect", x=left, y=top, width=stop - left, height=max(low - top, 1.0), class_="noise")
        )
    for value in y.ticks(7):
        parts.append(line(left, y(value), stop, y(value), "zero" if value == 1 else "grid"))
        parts.append(label(left - 6, y(value) + 4, times(value), "end"))
    parts.append(line(left, bottom, stop, bottom, "axis"))
    return parts


def _line_of_roof(y: LogAxis, most: float | None, left: float, stop: float) -> list[Markup]:
    if most is None:
        return []
    return [
        line(left, y(most), stop, y(most), "roof"),
        label(stop, y(most) - 6, f"roof of this machine, {times(most)}", "end roof-name"),
    ]


def _crosses(search: Search, x: Callable[[int], float], y: float) -> list[Markup]:
    """Failed kernels, by their place alone: they have no speed."""
    failed = [i for i, node in enumerate(search.nodes) if not node.evaluated.ok]
    if not failed:
        return []
    shown = failed[:: max(1, -(-len(failed) // MOST_DOTS))]
    marks = "".join(f"M{num(x(i) - 2.5)} {num(y - 2.5)}l5 5m0 -5l-5 5" for i in shown)
    return [tag("path", d=marks, class_="cross"), label(4, y + 4, "failed")]
