"""The dial: how near weighing cues by validity to the power g comes to people, for each g."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, curves
from refork.stats.results import Interval
from refork_methods.theory.cues import rules
from refork_methods.theory.cues.experiment import DOMAIN
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.priors import Fixed
from refork_methods.theory.trials import Observation

POWERS: Final = tuple(float(x) for x in np.arange(0, 10.01, 0.5))


@final
@dataclass(frozen=True, slots=True)
class DialCurve:
    """mse_pB of the dial held at each power, of the dial with its prior, and of a coin."""

    powers: tuple[float, ...]
    errors: tuple[Interval, ...]
    whole: Interval
    coin: float
    floor: float

    @property
    def best(self) -> float:
        """The power with the least error."""
        return self.powers[int(np.argmin([one.estimate for one in self.errors]))]


def dial_curve(
    observations: Sequence[Observation],
    *,
    seed: int = 1,
    draws: int = 1000,
    redraws: int = 500,
    powers: Sequence[float] = POWERS,
) -> DialCurve:
    """The error at every power, the other priors as they are, with intervals over people.

    Raises: BadInput for other observations than of cues, or no power.
    Source: arXiv:2606.26448 for the dial; the curve is ours.
    """
    if not powers or any(one.experiment.domain != DOMAIN for one in observations):
        raise BadInput("the dial is a theory of choice from cues", hint="choices with cues and validities")
    held = [
        replace(rules.dial(), name=f"g {g:g}", priors={**rules.dial().priors, "g": Fixed(g)}) for g in powers
    ]
    board = score_theories([*held, rules.dial()], observations, seed=seed, draws=draws, redraws=redraws)
    errors = tuple(board.of(one.name).mse_pb for one in held)
    return DialCurve(tuple(powers), errors, board.of("dial").mse_pb, board.coin, board.floor)


def dial_figure(curve: DialCurve) -> Figure:
    """The curve with its band, beside a coin, the dial with its prior and what people themselves vary by."""
    line = [Dot(g, e.estimate, e.low, e.high) for g, e in zip(curve.powers, curve.errors, strict=True)]
    levels = (
        Level(curve.coin, f"a coin {curve.coin:.4f}"),
        Level(curve.whole.estimate, f"g drawn from [0, 10]: {curve.whole.estimate:.4f}", palette.SERIES[2]),
        Level(curve.floor, f"people's own noise {curve.floor:.4f}", palette.SERIES[1]),
    )
    plane = Plane("power g of validity", "mse_pB", unit="number", bottom=0.0, levels=levels, height=280)
    name = f"Error of the dial held at g (lower is nearer to people); least at g = {curve.best:g}"
    note = "At 0 the dial counts cues, at 1 it adds up; large, the best cue alone decides."
    figure = curves([Line("the dial held at g", line, marks=False)], name=name, plane=plane)
    return replace(figure, note=note)
