"""The leaderboard over rounds: relative scores above, absolute errors below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from refork.report.charts import Dot, Figure, Line, Plane, curves
from refork_methods.theory.pool import Standing

if TYPE_CHECKING:
    from refork_methods.theory.search.loop import TheorySearch


def leaderboard_figure(search: TheorySearch, standings: Sequence[Standing]) -> Figure:
    """Two pictures over rounds, a line for each theory from the round that admitted it.

    A dot: it stands in a slot. The upper picture is relative: a new theory moves all the others.
    """
    labels = standings[-1].labels
    relative: dict[str, list[Dot]] = {name: [] for name in labels}
    absolute: dict[str, list[Dot]] = {name: [] for name in labels}
    done = 0
    for number, (one, standing) in enumerate(zip(search.pool.rounds, standings, strict=False), 1):
        done += len(one.seen)
        for name in standing.labels:
            slot = name in standing.slots
            told = "in a slot" if slot else ""
            rows = search.predicted[name][:done]
            error = sum(row.mse_pb for row in rows) / len(rows)
            absolute[name].append(Dot(number, error, tooltip=told, marked=slot))
    for number, standing in enumerate(standings, 1):
        for name, score in standing.scores.items():
            slot = name in standing.slots
            relative[name].append(Dot(number, score, tooltip="in a slot" if slot else "", marked=slot))

    def lines(found: dict[str, list[Dot]]) -> list[Line]:
        return [
            Line(f"{name}  {search.theories[name].title(search.domain)}", dots)
            for name, dots in found.items()
        ]

    title = f"Scores of {len(labels)} theories over {len(standings)} rounds"
    upper = Plane("round", "leaderboard score (relative)", unit="number", bottom=0.0, top=1.0)
    lower = Plane("round", "mse_pB (lower is nearer to people)", unit="number", log=True)
    below = curves(lines(absolute), name="mse_pB over all observations so far (absolute)", plane=lower)
    figure = curves(lines(relative), name=title, plane=upper)
    return replace(figure, note="A dot: the theory stands in a slot.", more=(below,))
