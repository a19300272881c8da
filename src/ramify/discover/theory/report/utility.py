"""The utility of ratings that Diminishing Returns WADD infers from each person's choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np
from jaxtyping import Float

from ramify.core.errors import BadInput
from ramify.core.stats.results import Array
from ramify.discover.theory.cues import rules
from ramify.discover.theory.cues.experiment import TOP, CueExperiment
from ramify.discover.theory.experiment import generator
from ramify.discover.theory.fit import log_likelihoods
from ramify.discover.theory.report.svg import COLOURS, Axes, band, label, picture, polyline
from ramify.discover.theory.trials import Observation

RATINGS: Final = np.linspace(0, TOP, 41)


@final
@dataclass(frozen=True, slots=True, eq=False)
class UtilityCurve:
    """Utility of ratings, scaled to 1 at the highest, all [ratings].

    ``mean`` with ``low`` and ``high``: over people's posterior means, a 95 % interval by drawing people
    again; ``spread``: quantiles .1 and .9 of all people's posteriors together; ``prior``: the mean before any
    choice. ``bend``: utility halfway up, with its interval; above 0.5 returns diminish. ``prior_bend``: by the prior.
    """

    ratings: Float[Array, "ratings"]
    mean: Float[Array, "ratings"]
    low: Float[Array, "ratings"]
    high: Float[Array, "ratings"]
    spread: Float[Array, "2 ratings"]
    prior: Float[Array, "ratings"]
    people: int

    @property
    def bend(self) -> tuple[float, float, float]:
        """Utility of the middle rating: estimate, low, high."""
        half = len(self.ratings) // 2
        return float(self.mean[half]), float(self.low[half]), float(self.high[half])

    @property
    def prior_bend(self) -> float:
        """The same before any choice."""
        return float(self.prior[len(self.ratings) // 2])


def utility_curve(
    observations: Sequence[Observation], *, seed: int = 1, draws: int = 4000, redraws: int = 1000
) -> UtilityCurve:
    """Posterior of each person's utility, by weighting draws of the priors with the person's likelihood.

    The priors of ``a`` in [0.1, 1] allow no convex curve, so the bend must be read beside the prior's.

    Raises: BadInput for binary ratings alone, which say nothing about utility, or other than cues.
    Source: arXiv:2606.26448 for the theory; the posterior is ours.
    """
    designs = [one.experiment for one in observations]
    if not all(isinstance(one, CueExperiment) for one in designs):
        raise BadInput("utilities of ratings need choices from cues")
    if all(one.binary for one in designs if isinstance(one, CueExperiment)):
        raise BadInput(
            "ratings of 0 and 1 alone say nothing about the utility between", hint="graded ratings"
        )
    rule, rng = rules.diminishing_wadd(), generator(seed, "parameters")
    drawn = rule.draw(designs[0], draws, rng)
    curves = rules.concave(RATINGS, drawn["a"][:, None], drawn["s"][:, None])
    curves = curves / curves[:, -1:]
    weights = []
    for one in observations:
        chosen, shown = one.trials.counts(one.experiment.stimuli)
        for mine, seen in zip(chosen, shown, strict=True):
            likely = log_likelihoods(rule, one.experiment, drawn, mine, seen)
            weight = np.exp(likely - likely.max())
            weights.append(weight / weight.sum())
    table = np.asarray(weights)
    means = table @ curves
    again = generator(seed, "people").multinomial(len(means), np.full(len(means), 1 / len(means)), redraws)
    low, high = np.quantile(again @ means / len(means), [0.025, 0.975], axis=0)
    return UtilityCurve(RATINGS, means.mean(axis=0), low, high, _spread(table.mean(axis=0), curves),
                        curves.mean(axis=0), len(means))  # fmt: skip


def _spread(
    weight: Float[Array, "draws"], curves: Float[Array, "draws ratings"]
) -> Float[Array, "2 ratings"]:
    """Weighted quantiles .1 and .9 at every rating."""
    found = np.empty((2, curves.shape[1]))
    for at in range(curves.shape[1]):
        order = np.argsort(curves[:, at], kind="stable")
        total = np.cumsum(weight[order])
        places = np.minimum(np.searchsorted(total, [0.1, 0.9]), len(order) - 1)
        found[:, at] = curves[order[places], at]
    return found


def utility_picture(curve: UtilityCurve) -> str:
    """The mean with its band, people's spread, the prior and a straight line; SVG."""
    axes = Axes((0.0, float(TOP)), (0.0, 1.05))
    xs = [(float(x), str(x)) for x in range(0, TOP + 1, 2)]
    ys = [(v, f"{v:g}") for v in (0, 0.25, 0.5, 0.75, 1)]
    parts = axes.frame(xs, ys, "rating", "Utility of a rating, scaled to 1 at the highest")

    def line(values: Array) -> list[tuple[float, float]]:
        return [axes.at(float(x), float(y)) for x, y in zip(curve.ratings, values, strict=True)]

    parts.append(band(line(curve.spread[1]), line(curve.spread[0]), COLOURS[0], 0.12))
    parts.append(band(line(curve.high), line(curve.low), COLOURS[0], 0.45))
    parts.append(polyline(line(curve.ratings / TOP), COLOURS[7], stroke_dasharray="2 4", width=1.5))
    parts.append(polyline(line(curve.prior), COLOURS[1], stroke_dasharray="6 4", width=1.5))
    parts.append(polyline(line(curve.mean), COLOURS[0]))
    estimate, low, high = curve.bend
    x = axes.right + 12
    rows = (
        (f"mean of {curve.people} people", COLOURS[0]),
        ("dark: its 95 % interval", COLOURS[0]),
        ("light: 80 % of people", COLOURS[0]),
        (f"at half the scale {estimate:.3f}", COLOURS[0]),
        (f"[{low:.3f}, {high:.3f}]", COLOURS[0]),
        (f"dashes: prior alone, {curve.prior_bend:.3f}", COLOURS[1]),
        ("dots: no diminishing, 0.5", COLOURS[7]),
    )
    for place, (text, colour) in enumerate(rows):
        parts.append(label(x, 90 + 20 * place, text, "small", style=f"fill:{colour}"))
    return picture(790, 380, f"Utility of ratings, {curve.people} people", parts)
