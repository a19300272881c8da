"""Learning curves of several arms: success against sampled tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from refork.report.charts import Dot, Figure, Line, Plane, curves


def learning_figure(worlds: Mapping[str, Any]) -> Figure:
    """A picture per world, from ``worlds`` of a comparison's summary.

    Thick lines are means over runs, thin ones the runs; arms stand in the order of the table, best first.
    """
    first, *rest = [_world(world, data) for world, data in worlds.items()]
    return replace(first, more=tuple(rest))


def _world(world: str, data: Mapping[str, Any]) -> Figure:
    arms = [row["arm"] for row in data["rows"]]
    # A run may have sampled a little more than the shortest one, where the picture ends.
    last = max(data["curves"][arm]["tokens"][-1] for arm in arms)
    lines = [Line(arm, _dots(data["curves"][arm], last)) for arm in arms]
    lines += [Line(arm, _dots(run, last), faint=True) for arm in arms for run in data["curves"][arm]["runs"]]
    plane = Plane("tokens sampled for training", "success", "count")
    return curves(lines, name=f"{world}: success on held-out tasks", plane=plane)


def _dots(curve: Mapping[str, Any], last: float) -> list[Dot]:
    return [Dot(t, v) for t, v in zip(curve["tokens"], curve["success"], strict=True) if t <= last]
