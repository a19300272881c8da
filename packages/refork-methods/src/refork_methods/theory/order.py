"""What rates of choice cannot see: whether a choice goes with the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from refork.stats.results import Interval
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import generator
from refork_methods.theory.metrics import lag_one, previous_and_now
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials


@final
@dataclass(frozen=True, slots=True)
class OrderScore:
    """Lag-1 correlation of a theory's simulated choices, and of people's on the same observations.

    Means over observations; None where no observation defines it. ``people`` has an interval over people.
    """

    name: str
    theory: float | None
    people: Interval | None

    @property
    def error(self) -> float | None:
        """Squared difference of the two; None where one is missing."""
        if self.theory is None or self.people is None:
            return None
        return (self.theory - self.people.estimate) ** 2


def score_order(
    choosers: Sequence[Chooser],
    observations: Sequence[Observation],
    *,
    seed: int,
    simulated: int = 200,
    redraws: int = 500,
    level: float = 0.95,
) -> tuple[OrderScore, ...]:
    """Lag-1 of each theory beside people's, in the order given.

    Raises: BadInput as :func:`refork_methods.theory.simulate.simulate`.
    Source: arXiv:2606.26448 scores rates alone, which are a coin's for theories of order; lag-1 is ours.
    """
    people = _of_people(observations, seed, redraws, level)
    found = []
    for chooser in choosers:
        values = [lag_one()(simulate(chooser, one.experiment, simulated, seed)) for one in observations]
        known = [value for value in values if value is not None]
        found.append(OrderScore(chooser.name, float(np.mean(known)) if known else None, people))
    return tuple(found)


def _of_people(observations: Sequence[Observation], seed: int, redraws: int, level: float) -> Interval | None:
    estimates = [lag_one()(one.trials) for one in observations]
    used = [one for one, value in zip(observations, estimates, strict=True) if value is not None]
    if not used:
        return None
    rng = generator(seed, "people")
    drawn = np.mean([_redrawn(one.trials, redraws, rng) for one in used], axis=0)
    # A redraw in which the choices never vary has no correlation (NaN) and is left out.
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    centre = float(np.mean([value for value in estimates if value is not None]))
    return Interval(centre, float(low), float(high), level, "bootstrap over people")


def _redrawn(
    trials: Trials, redraws: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Lag-1 of people drawn again with replacement, from each person's sums."""
    sums = []
    for person in trials.people:
        before, now = previous_and_now(trials.of(person))
        # Choices are 0 or 1, so their squares have the same sums: these four numbers give all moments.
        sums.append([before.size, before.sum(), now.sum(), (before * now).sum()])
    table = np.asarray(sums, dtype=np.float64)
    n, x, y, xy = (rng.multinomial(len(table), np.full(len(table), 1 / len(table)), redraws) @ table).T
    with np.errstate(invalid="ignore", divide="ignore"):
        up = xy / n - (x / n) * (y / n)
        down = np.sqrt((x / n) * (1 - x / n) * (y / n) * (1 - y / n))
        values: np.ndarray[tuple[int], np.dtype[np.float64]] = up / down
    return values
