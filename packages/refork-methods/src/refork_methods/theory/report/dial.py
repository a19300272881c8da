"""The dial: how near weighing cues by validity to the power g comes to people, for each g."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.stats.results import Interval
from refork_methods.theory.cues import rules
from refork_methods.theory.cues.experiment import DOMAIN
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.priors import Fixed
from refork_methods.theory.report.svg import COLOURS, Axes, band, label, picture, polyline, spread, tag
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


def dial_picture(curve: DialCurve) -> str:
    """The curve with its band; SVG. At 0 the dial counts cues, at 1 it adds up; large, the best decides."""
    most = 0.04 * math.ceil(max([curve.coin, *(one.high for one in curve.errors)]) / 0.04)
    axes = Axes((curve.powers[0], curve.powers[-1]), (0.0, most))
    ticks = [(g, f"{g:g}") for g in curve.powers if g == int(g) and int(g) % 2 == 0]
    ys = [(most * part, f"{most * part:.2g}") for part in (0, 0.25, 0.5, 0.75, 1)]
    parts = axes.frame(
        ticks, ys, "power g of validity", "mse_pB of the dial held at g (lower is nearer to people)"
    )
    points = [[axes.at(g, getattr(one, side)) for g, one in zip(curve.powers, curve.errors, strict=True)]
              for side in ("high", "low", "estimate")]  # fmt: skip
    parts.append(band(points[0], points[1], COLOURS[0], 0.18))
    parts.append(polyline(points[2], COLOURS[0]))
    levels = (
        (curve.coin, f"a coin {curve.coin:.4f}", COLOURS[7]),
        (curve.whole.estimate, f"g drawn from [0, 10]: {curve.whole.estimate:.4f}", COLOURS[2]),
        (curve.floor, f"people's own noise {curve.floor:.4f}", COLOURS[1]),
    )
    heights = [axes.at(curve.powers[0], value)[1] for value, _, _ in levels]
    for y, place, (_, text, colour) in zip(heights, spread(heights, 16), levels, strict=True):
        parts.append(polyline([(axes.left, y), (axes.right, y)], colour, stroke_dasharray="5 4", width=1.5))
        parts.append(label(axes.right + 10, place + 4, text, "small", style=f"fill:{colour}"))
    parts.append(label(axes.left, axes.bottom + 42, "0: counts cues, 1: adds up", "small"))
    parts.append(label(axes.right, axes.bottom + 42, "large: best cue alone", "small end"))
    x, y = axes.at(curve.best, min(one.estimate for one in curve.errors))
    parts.append(tag("circle", cx=x, cy=y, r=5, fill=COLOURS[0]))
    parts.append(label(x, y - 10, f"least at g = {curve.best:g}", "small mid"))
    return picture(790, 380, f"Error of the dial by its power; least at {curve.best:g}", parts)
