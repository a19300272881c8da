"""What rates of choice cannot see: whether a choice goes with the one before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from refork.stats.results import Array, Interval
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.experiment import generator
from refork_methods.theory.metrics import lag_one, previous_and_now
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials


@final
@dataclass(frozen=True, slots=True)
class OrderScore:
    """Lag-1 correlation of a theory's simulated choices, and of people's on the same observations.

    Means over the observations in which people's is defined, so that both are of the same ones; ``people`` is
    None where there is none, and has an interval over people. ``theory`` is None where its own choices never
    vary in one of them. ``difference``: theory less people, with an interval over both.
    """

    name: str
    theory: float | None
    people: Interval | None
    difference: Interval | None

    @property
    def error(self) -> float | None:
        """Squared difference of the two; None where one is missing."""
        return None if self.difference is None else self.difference.estimate**2

    @property
    def apart(self) -> bool:
        """Whether people's order is another: they differ by more than chance, or only people ever vary."""
        if self.people is None:
            return False
        return self.difference is None or not self.difference.low <= 0 <= self.difference.high


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
    of_people = {one.name: lag_one()(one.trials) for one in observations}
    used = [one for one in observations if of_people[one.name] is not None]
    rng = generator(seed, "people")
    centre = _mean([of_people[one.name] for one in used])
    drawn = _drawn([one.trials for one in used], redraws, rng)
    people = None if centre is None else _interval(centre, drawn, level)
    # The same for all theories, and another for each observation: or a mean over them would average nothing.
    seeds = (
        np.random.SeedSequence(seed, spawn_key=(len(observations),))
        .generate_state(len(observations))
        .tolist()
    )
    found = []
    for chooser in choosers:
        # Where people have no order to compare with, the theory's own is still shown.
        runs = [
            simulate(chooser, one.experiment, simulated, own)
            for one, own in zip(used or observations, seeds, strict=False)
        ]
        lags = [lag_one()(one) for one in runs]
        if people is None:
            found.append(
                OrderScore(chooser.name, _mean([lag for lag in lags if lag is not None]), None, None)
            )
            continue
        theory = _mean(lags)
        apart = None
        if theory is not None:
            apart = _interval(theory - people.estimate, _drawn(runs, redraws, rng) - drawn, level)
        found.append(OrderScore(chooser.name, theory, people, apart))
    return tuple(found)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where there is no value, or one of them is not defined."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _drawn(lists: Sequence[Trials], redraws: int, rng: np.random.Generator) -> Float[Array, "redraws"]:
    """Mean lag-1 over lists of trials, of people drawn again; NaN in a redraw that does not define it."""
    drawn: Float[Array, "redraws"] = np.zeros(redraws)
    for one in lists:
        drawn = drawn + _redrawn(one, redraws, rng) / len(lists)
    return drawn


def _interval(estimate: float, drawn: Float[Array, "redraws"], level: float) -> Interval:
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, "bootstrap over people")


def _redrawn(trials: Trials, redraws: int, rng: np.random.Generator) -> Float[Array, "redraws"]:
    """Lag-1 of people drawn again with replacement, from each person's sums."""
    before, now, person = previous_and_now(trials)
    own = np.searchsorted(np.asarray(trials.people), person)
    # Choices are 0 or 1, so their squares have the same sums: these four numbers give all moments.
    sums = [
        np.bincount(own, each, len(trials.people)) for each in (np.ones(now.size), before, now, before * now)
    ]
    table = np.stack(sums, axis=1)
    n, x, y, xy = (rng.multinomial(len(table), np.full(len(table), 1 / len(table)), redraws) @ table).T
    with np.errstate(invalid="ignore", divide="ignore"):
        up = xy / n - (x / n) * (y / n)
        down = np.sqrt((x / n) * (1 - x / n) * (y / n) * (1 - y / n))
        values: Float[Array, "redraws"] = up / down
    return values
