"""The picture of a run: the stringency of its judges, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, curves
from refork_methods.evolve.history import JudgeHistory, Tenure

#: Even-handed enough, as the published target is read.
_BAND: Final = (0.85, 1.15)


def stringency_figure(history: JudgeHistory) -> Figure | None:
    """The stringency ratio of every judge over the outcomes that it held the slot; 1 is even-handed.

    None where no judge's ratio is known. One picture for each slot that has ratios.
    """
    slots = sorted({one.slot for one in history.tenures if one.stringency is not None})
    if not slots:
        return None
    first, *rest = [_ratios(slot, [one for one in history.tenures if one.slot == slot]) for slot in slots]
    return replace(first, more=tuple(rest))


def _ratios(slot: str, tenures: list[Tenure]) -> Figure:
    held = [(one, one.stringency) for one in tenures if one.stringency is not None]
    dots = [
        Dot(
            (t.since + t.until) / 2,
            r.estimate,
            r.low,
            r.high,
            f"{t.judge[:8]}, outcomes {t.since} to {t.until}",
        )
        for t, r in held
    ]
    own = Line(
        "a judge, over its outcomes", dots, colour=palette.SERIES[1], band=False, whiskers=True, joined=False
    )
    steps = [
        Line("a judge, over its outcomes", [Dot(t.since, r.estimate), Dot(t.until, r.estimate)], faint=True)
        for t, r in held
    ]
    plane = Plane(
        "outcomes", "acceptance of machine-made over human work", "count", "times", log=True, zone=_BAND,
        levels=[Level(1.0, "even-handed")],
    )  # fmt: skip
    return curves([own, *steps], name=f"{slot}: acceptance of machine-made over human work", plane=plane)
