"""Pictures of a crosscoder: its features by whose they are and what they tell apart, and a steering curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, Spot, Trail, curves, scatter
from refork.report.words import rate
from refork_methods.crosscoder.rank import FeatureRow

NAMES: Final = {"A": "only A may use it", "B": "only B may use it", "shared": "both may use it"}
COLOURS: Final = {
    NAMES["A"]: palette.LIGHT[0], NAMES["B"]: palette.LIGHT[-1], NAMES["shared"]: palette.LIGHT[5],
}  # fmt: skip
#: Names on a scatter at most: those of the largest effects.
_NAMED: Final = 6


def feature_figure(rows: Sequence[FeatureRow], positive: str) -> Figure:
    """Relative decoder norm against Cohen's d, and below the rates at which both kinds of texts fire it.

    Features that never fired are counted, not drawn. Candidates wear a ring; the largest are named.
    """
    live = [row for row in rows if row.fires_positive > 0 or row.fires_negative > 0]
    # Largest last, so that they lie on top of the crowd.
    order = sorted(live, key=lambda row: (row.block != "shared", row.d))
    named = {row.feature for row in sorted(live, key=lambda row: -row.d)[:_NAMED] if row.d > 0}
    placed = [row for row in order if math.isfinite(row.d) and math.isfinite(row.relative_norm)]
    norms = scatter(
        [_spot(row, row.relative_norm, row.d, named) for row in placed],
        name=f"What each feature tells apart ({positive} or not), and whose it is",
        plane=Plane(
            "decoder norm of A / of both", f"Cohen's d, {positive} - other", unit="number", height=320
        ),
        colours=COLOURS,
    )
    fires = scatter(
        [_spot(row, row.fires_negative, row.fires_positive, named) for row in order],
        name=f"On which texts each feature fires ({positive} or not)",
        plane=Plane("fires on other texts", f"fires on {positive} texts", "rate", height=320),
        colours=COLOURS, trails=[Trail([(0.0, 0.0), (1.0, 1.0)], dashed=True)],
    )  # fmt: skip
    silent = len(rows) - len(live)
    candidates = sum(row.candidate for row in live)
    note = f"{candidates} candidates (ringed); {silent} never fire on these texts"
    return replace(norms, note=note, more=(fires,))


def _spot(row: FeatureRow, x: float, y: float, named: set[int]) -> Spot:
    told = (
        f"feature {row.feature}: d {row.d:.2f}, AUROC {row.auroc:.3f}, "
        f"relative norm {row.relative_norm:.2f}, "
        f"fires {rate(row.fires_positive)} and {rate(row.fires_negative)}"
    )
    if row.examples:
        told += "; on " + ", ".join(repr(e.token) for e in row.examples[:3])
    label = str(row.feature) if row.feature in named else ""
    return Spot(x, y, NAMES[row.block], label, tooltip=told, ringed=row.candidate)


def steering_figure(
    alphas: Sequence[float],
    scores: Sequence[tuple[float, float, float]],
    randoms: Sequence[tuple[float, float, float]],
    clean: float,
    title: str,
    below: str = "strength (1: nothing is changed, 0: the feature is taken out)",
) -> Figure:
    """Mean scores in 0 .. 1 over strengths.

    ``scores`` are (mean, low, high) of the feature, ``randoms`` (5th, 50th, 95th percentile) of the mean
    scores of random directions of the same norm, ``clean`` the score without any change. Strengths stand
    evenly spaced, since they are mostly powers of two.
    """
    order = sorted(range(len(alphas)), key=lambda i: alphas[i])
    own = [Dot(place, *scores[i]) for place, i in enumerate(order)]
    chance = [Dot(place, randoms[i][1], randoms[i][0], randoms[i][2]) for place, i in enumerate(order)]
    lines = [
        Line("this feature, 95 % interval", own, band=False, whiskers=True),
        Line("random directions of its norm, 5 to 95 %", chance, colour=palette.SERIES[-1], marks=False),
    ]
    plane = Plane(
        below, "mean score", unit="number", names=[f"{alphas[i]:g}" for i in order],
        levels=[Level(clean, "unchanged", palette.LIGHT[0])],
    )  # fmt: skip
    return curves(lines, name=title, plane=plane)
