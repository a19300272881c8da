"""Which designs can tell two theories apart, and by how many people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from refork.errors import BadInput
from refork.stats.proportions import wilson
from refork.stats.results import Interval
from refork_methods.theory.chooser import Chooser
from refork_methods.theory.discriminability import discriminability
from refork_methods.theory.experiment import Experiment
from refork_methods.theory.gate import ALPHA, gate, moments, welch_power
from refork_methods.theory.metrics import (
    Measured,
    Metric,
    agreement,
    lag_one,
    measure,
    share_of_b,
    switch_rate,
)
from refork_methods.theory.simulate import predicted_rates, simulate

#: People of each theory behind the moments: their own noise is small beside what is planned.
SIMULATED: Final = 200
NUMBERS: Final = (10, 25, 50, 100)


@final
@dataclass(frozen=True, slots=True)
class DesignPower:
    """One design and the statistic that tells two theories apart by the fewest people.

    ``mine`` and ``other``: its mean over each theory's people; None where it is not defined.
    ``power``: chance of showing the difference for each of the asked numbers of people on a side. ``needed``:
    people for a power of 0.8; None where 100,000 are too few. ``jsd``: sequence divergence, nats.
    """

    design: str
    statistic: str
    mine: float | None
    other: float | None
    jsd: float
    power: tuple[float, ...]
    needed: int | None


@final
@dataclass(frozen=True, slots=True)
class PowerTable:
    """All designs, in the order given. ``passing``: share whose power at ``planned`` is 0.8 or more."""

    numbers: tuple[int, ...]
    alpha: float
    planned: int
    designs: tuple[DesignPower, ...]
    passing: Interval


def difference_metric(mine: Chooser, other: Chooser, experiment: Experiment, seed: int) -> Metric | None:
    """Share of choices on the side that ``mine`` takes more often than ``other``; None where they are alike.

    Raises: BadInput for an experiment of another domain.
    """
    gap = predicted_rates(mine, experiment, 1000, seed) - predicted_rates(other, experiment, 1000, seed)
    sides = np.where(np.abs(gap) > 0.02, np.sign(gap), 0.0)
    return agreement(mine.name, sides) if sides.any() else None


def power_table(
    mine: Chooser,
    other: Chooser,
    designs: Sequence[tuple[str, Experiment]],
    *,
    seed: int,
    planned: int = 25,
    numbers: Sequence[int] = NUMBERS,
    alpha: float = ALPHA,
    simulated: int = SIMULATED,
) -> PowerTable:
    """Power of Welch's test on the best statistic of every design, by simulated people of two theories.

    The statistic is the best of several on the same moments, which makes its power look a little greater.

    Raises: BadInput for no design, fewer than two people, or an experiment of another domain.
    """
    if not designs or min([planned, *numbers]) < 2:
        raise BadInput("power needs a design, and two people or more")
    rows = [
        _row((mine, other), name, one, seed + i, tuple(numbers), alpha=alpha, simulated=simulated)
        for i, (name, one) in enumerate(designs)
    ]
    good = sum(row.needed is not None and row.needed <= planned for row in rows)
    return PowerTable(tuple(numbers), alpha, planned, tuple(rows), wilson(good, len(rows)))


def _row(
    theories: tuple[Chooser, Chooser],
    name: str,
    experiment: Experiment,
    seed: int,
    numbers: tuple[int, ...],
    *,
    alpha: float,
    simulated: int,
) -> DesignPower:
    mine, other = theories
    # A seed for each side: one seed would give both the same noise, and Welch's samples are independent.
    seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
    runs = [simulate(one, experiment, simulated, s) for one, s in zip((mine, other), seeds, strict=True)]
    own = difference_metric(mine, other, experiment, seed)
    metrics = [*([own] if own is not None else []), lag_one(), switch_rate(), share_of_b()]
    pairs = [(measure(one, runs[0]), measure(one, runs[1])) for one in metrics]
    one, two = min(pairs, key=lambda pair: _needed(pair[0], pair[1], alpha))
    apart = discriminability(mine, other, experiment, seed)
    known = [found for found in (moments(one), moments(two)) if found is not None]
    power = tuple(welch_power(known[0], known[1], n, alpha) for n in numbers) if len(known) == 2 else ()
    needed = _needed(one, two, alpha)
    return DesignPower(
        name,
        one.metric,
        one.mean,
        two.mean,
        apart,
        power,
        int(needed) if needed < np.inf else None,
    )


def _needed(mine: Measured, other: Measured, alpha: float) -> float:
    found = gate(mine, other, alpha=alpha).needed
    return np.inf if found is None else float(found)
