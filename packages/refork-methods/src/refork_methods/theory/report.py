"""Pictures of theories: the leaderboard over rounds, and the error of the dial at each power."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np

from refork.errors import BadInput, DiskFull
from refork.report import palette
from refork.report.charts import Dot, Figure, Level, Line, Plane, curves
from refork.stats.results import Interval
from refork_methods.theory.cues.experiment import DOMAIN
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.pool import Standing
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.priors import Fixed
from refork_methods.theory.trials import Observation

if TYPE_CHECKING:
    from refork_methods.theory.search.loop import TheorySearch

POWERS: Final = tuple(float(x) for x in np.arange(0, 10.01, 0.5))


@final
@dataclass(frozen=True, slots=True)
class DialCurve:
    """mse_pB of the dial held at each power, of the dial with its prior, and of a coin.

    ``untold``: the power with the least error and those that are not told apart from it, ascending.
    """

    powers: tuple[float, ...]
    errors: tuple[Interval, ...]
    whole: Interval
    coin: float
    floor: float
    untold: tuple[float, ...]

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
    dial = RULES["dial"]
    held = [replace(dial, name=f"g {g:g}", priors={**dial.priors, "g": Fixed(g)}) for g in powers]
    of_held = score_theories(held, observations, seed=seed, draws=draws, redraws=redraws)
    board = score_theories([dial], observations, seed=seed, draws=draws, redraws=redraws)
    errors = tuple(of_held.of(one.name).mse_pb for one in held)
    untold = [g for g, one in zip(powers, held, strict=True) if one.name in of_held.untold()]
    whole = board.of("dial").mse_pb
    return DialCurve(tuple(powers), errors, whole, board.coin, board.floor, tuple(sorted(untold)))


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
    others = len(curve.untold) - 1
    near = f"{curve.untold[0]:g} to {curve.untold[-1]:g}" if others else "no other power"
    note = (
        f"Not told apart from the least: {near}. "
        "At 0 the dial counts cues, at 1 it adds up; large, the best cue alone decides."
    )
    figure = curves([Line("the dial held at g", line, marks=False)], name=name, plane=plane)
    return replace(figure, note=note)


def draw_dial(observations: Sequence[Observation], folder: Path, *, seed: int = 1) -> Path | None:
    """Write ``dial.svg``; None, and nothing, for choices between gambles. Raises DiskFull."""
    if any(one.experiment.domain != DOMAIN for one in observations):
        return None
    text, file = dial_figure(dial_curve(observations, seed=seed)).svg(), folder / "dial.svg"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DiskFull(f"the picture cannot be written: {error.strerror}", where=str(folder)) from error
    return file


def leaderboard_figure(search: TheorySearch, standings: Sequence[Standing]) -> Figure:
    """Two pictures over rounds, a line for each theory from the round that admitted it.

    A dot: it stands in a slot. The upper picture is relative: a new theory moves all the others.
    """
    labels = standings[-1].labels
    relative: dict[str, list[Dot]] = {name: [] for name in labels}
    absolute: dict[str, list[Dot]] = {name: [] for name in labels}
    done = 0
    # The last round may have no verdict yet, and then it has no standing.
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
