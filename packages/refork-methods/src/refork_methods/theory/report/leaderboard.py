"""The leaderboard over rounds: relative scores above, absolute errors below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from refork_methods.theory.pool import Standing
from refork_methods.theory.report.svg import COLOURS, Axes, label, picture, polyline, spread, tag

if TYPE_CHECKING:
    from refork_methods.theory.search.loop import TheorySearch

#: Values written on the lower axis, as far as they lie on it.
TICKS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def leaderboard_picture(search: TheorySearch, standings: Sequence[Standing]) -> str:
    """Two panels over rounds, a line for each theory from the round that admitted it; SVG.

    Filled dots: it stands in a slot. The upper panel is relative: a new theory moves all the others.
    """
    rounds = len(standings)
    labels = standings[-1].labels
    relative = {
        name: [(n, s.scores[name]) for n, s in enumerate(standings, 1) if name in s.scores] for name in labels
    }
    absolute: dict[str, list[tuple[int, float]]] = {name: [] for name in labels}
    done = 0
    for number, (one, standing) in enumerate(zip(search.pool.rounds, standings, strict=False), 1):
        done += len(one.seen)
        for name in standing.labels:
            rows = search.predicted[name][:done]
            absolute[name].append((number, sum(row.mse_pb for row in rows) / len(rows)))
    values = [value for rows in absolute.values() for _, value in rows if value > 0] or [1.0]
    logs = {
        name: [(number, math.log10(max(value, min(values)))) for number, value in rows]
        for name, rows in absolute.items()
    }
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    span = (0.8, max(rounds, 2) + 0.2)
    upper = Axes(span, (0.0, 1.0), bottom=250)
    lower = Axes(span, (low, high), top=360, bottom=560)
    ticks = [(float(n), str(n)) for n in range(1, rounds + 1)]
    parts = upper.frame(ticks, [(v, f"{v:g}") for v in (0, 0.5, 1)], "", "Leaderboard score (relative)")
    ys = [(math.log10(v), f"{v:g}") for v in TICKS if low <= math.log10(v) <= high]
    parts.append(label(upper.right + 12, 26, "filled: stands in a slot", "small"))
    parts.append(label(62, 340, "mse_pB over all observations so far (absolute, lower is nearer to people)"))
    parts += lower.frame(ticks, ys, "round", "")[1:]
    for panel, lines in ((upper, relative), (lower, logs)):
        parts += _lines(panel, lines, standings, search)
    return picture(900, 620, f"Scores of {len(labels)} theories over {rounds} rounds", parts)


def _lines(
    panel: Axes,
    lines: dict[str, list[tuple[int, float]]],
    standings: Sequence[Standing],
    search: TheorySearch,
) -> list[str]:
    parts, ends = [], []
    for place, (name, rows) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = [panel.at(number, value) for number, value in rows]
        if len(points) > 1:
            parts.append(polyline(points, colour))
        for (number, _), (x, y) in zip(rows, points, strict=True):
            stands = name in standings[number - 1].slots
            parts.append(tag("circle", cx=x, cy=y, r=4.5, fill=colour if stands else "#fff", stroke=colour,
                             stroke_width=2))  # fmt: skip
        ends.append((points[-1], f"{name}  {search.theories[name].title(search.domain)}", colour))
    heights = spread([y for (_, y), _, _ in ends], 16)
    for ((x, y), text, colour), height in zip(ends, heights, strict=True):
        parts.append(polyline([(x + 7, y), (panel.right + 8, height)], "#d8dee4", width=1.0))
        parts.append(label(panel.right + 12, height + 4, text, "small", style=f"fill:{colour}"))
    return parts
