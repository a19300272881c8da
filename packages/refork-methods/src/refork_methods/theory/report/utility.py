"""The utility of ratings that Diminishing Returns WADD infers from people's choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.report import palette
from refork.report.charts import Dot, Figure, Line, Plane, curves
from refork.stats.results import Array
from refork_methods.theory.chooser import choice_chance
from refork_methods.theory.cues import rules
from refork_methods.theory.cues.experiment import TOP, CueExperiment
from refork_methods.theory.experiment import generator
from refork_methods.theory.trials import Observation

RATINGS: Final = np.linspace(0, TOP, 41)
#: Curvatures and shifts that are compared; a curvature above 1 is a convex utility, which the published prior
#: of 0.1 to 1 leaves out: a curve that cannot bend the other way shows nothing by bending this way.
CURVATURES: Final = np.linspace(0.1, 2, 20)
SHIFTS: Final = np.linspace(0.1, 5, 8)
STRENGTHS: Final = np.geomspace(0.5, 200, 14)
LAPSES: Final = np.linspace(0, 0.5, 6)


@final
@dataclass(frozen=True, slots=True, eq=False)
class UtilityCurve:
    """Utility of ratings, shared by all people and scaled to 1 at the highest, all [ratings].

    ``mean``, ``low`` and ``high``: of the posterior, 95 %. ``outer``: 95 % of posterior means when people are
    drawn again, [2, ratings]. ``prior``: the mean before any choice.
    """

    ratings: Float[Array, "ratings"]
    mean: Float[Array, "ratings"]
    low: Float[Array, "ratings"]
    high: Float[Array, "ratings"]
    outer: Float[Array, "2 ratings"]
    prior: Float[Array, "ratings"]
    people: int

    @property
    def bend(self) -> tuple[float, float, float]:
        """Utility of the middle rating, with its interval over people; above 0.5 returns diminish."""
        half = len(self.ratings) // 2
        return float(self.mean[half]), float(self.outer[0, half]), float(self.outer[1, half])

    @property
    def prior_bend(self) -> float:
        """The same before any choice."""
        return float(self.prior[len(self.ratings) // 2])


def utility_curve(observations: Sequence[Observation], *, seed: int = 1, redraws: int = 1000) -> UtilityCurve:
    """Posterior of one curve for all people; everyone's own strength and lapses are summed out.

    Curvature and shift are uniform on a grid beforehand. Utilities are scaled before they are compared, so
    that a curve is not also a strength of preference, as it is in the theory itself.

    Raises: BadInput for binary ratings alone, which say nothing about utility, or other than cues.
    Source: arXiv:2606.26448 for the theory; the posterior, scaled and with convex curves in it, is ours.
    """
    designs = [one.experiment for one in observations]
    if not all(isinstance(one, CueExperiment) for one in designs):
        raise BadInput("utilities of ratings need choices from cues")
    if all(one.binary for one in designs if isinstance(one, CueExperiment)):
        raise BadInput(
            "ratings of 0 and 1 alone say nothing about the utility between", hint="graded ratings"
        )
    grid = np.stack(np.meshgrid(CURVATURES, SHIFTS, indexing="ij"), axis=-1).reshape(-1, 2)
    curves = rules.concave(RATINGS, grid[:, :1], grid[:, 1:])
    curves = curves / curves[:, -1:]
    table = _evidence(observations, grid)
    posterior = _normal(table.sum(axis=0))
    again = generator(seed, "people").multinomial(len(table), np.full(len(table), 1 / len(table)), redraws)
    outer = np.quantile(_normal(again @ table) @ curves, [0.025, 0.975], axis=0)
    low, high = _quantiles(posterior, curves)
    return UtilityCurve(
        RATINGS, posterior @ curves, low, high, outer, curves.mean(axis=0), len(table)
    )  # fmt: skip


def _evidence(
    observations: Sequence[Observation], grid: Float[Array, "points 2"]
) -> Float[Array, "people points"]:
    """Log of each person's likelihood at each point, averaged over strengths and lapses."""
    strength, lapse = (part.reshape(-1) for part in np.meshgrid(STRENGTHS, LAPSES, indexing="ij"))
    a, s = (part[:, None, None, None] for part in grid.T)
    rows = []
    for one in observations:
        design = one.experiment
        assert isinstance(design, CueExperiment)  # utility_curve() has seen to it
        worth = rules.concave(design.ratings()[None], a, s) / rules.concave(np.asarray(float(TOP)), a, s)
        sums = worth @ (design.weights() / design.weights().sum())
        gap = (sums[..., 1] - sums[..., 0])[:, None]
        chance = np.clip(choice_chance(gap, strength[:, None], lapse[:, None]), 1e-9, 1 - 1e-9)
        chosen, shown = one.trials.counts(design.stimuli)
        likely = np.log(chance) @ chosen.T + np.log1p(-chance) @ (shown - chosen).T
        most = likely.max(axis=1, keepdims=True)
        rows.append((np.log(np.exp(likely - most).mean(axis=1)) + most[:, 0]).T)
    return np.concatenate(rows)


def _normal(logs: Float[Array, "... points"]) -> Float[Array, "... points"]:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares: Float[Array, "... points"] = weights / weights.sum(axis=-1, keepdims=True)
    return shares


def _quantiles(
    weight: Float[Array, "points"], curves: Float[Array, "points ratings"]
) -> Float[Array, "2 ratings"]:
    """Weighted quantiles .025 and .975 at every rating."""
    found = np.empty((2, curves.shape[1]))
    for at in range(curves.shape[1]):
        order = np.argsort(curves[:, at], kind="stable")
        places = np.searchsorted(np.cumsum(weight[order]), [0.025, 0.975])
        found[:, at] = curves[order[np.minimum(places, len(order) - 1)], at]
    return found


def utility_figure(curve: UtilityCurve) -> Figure:
    """The curve with its bands, the prior and a straight line."""
    estimate, low, high = curve.bend
    own, again = f"posterior of {curve.people} people, 95 %", "95 %, people drawn again"

    def line(
        name: str, values: Array, low: Array | None = None, high: Array | None = None, **more: Any
    ) -> Line:
        dots = [
            Dot(
                float(x),
                float(values[i]),
                None if low is None else float(low[i]),
                None if high is None else float(high[i]),
            )
            for i, x in enumerate(curve.ratings)
        ]
        return Line(name, dots, marks=False, **more)

    lines = [
        line(own, curve.mean, curve.low, curve.high),
        line(again, curve.mean, curve.outer[0], curve.outer[1], colour=palette.SERIES[5], joined=False),
        line(f"prior alone, {curve.prior_bend:.3f} at half the scale", curve.prior, dashed=True),
        line("no diminishing, 0.5", curve.ratings / TOP, dashed=True, colour=palette.SERIES[-1]),
    ]
    plane = Plane("rating", "utility", unit="number", bottom=0.0, height=280)
    name = "Utility of a rating, scaled to 1 at the highest"
    note = (
        f"At half the scale {estimate:.3f} ({low:.3f} to {high:.3f} over people); above 0.5 returns diminish."
    )
    return replace(curves(lines, name=name, plane=plane), note=note)
