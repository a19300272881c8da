"""What reports are about: a log of readings at stations, each with a value before and a value after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

#: Findings of one log: a report states each of them, rightly or not.
FINDINGS: Final = 10
STATIONS: Final = (
    "Arden", "Birch", "Calder", "Dunmore", "Elswick", "Farley", "Garston", "Hexley", "Ilford", "Jarrow",
    "Keld", "Lorne", "Marton", "Norden", "Oakham", "Penrith", "Quorn", "Ripley", "Selby", "Tarset",
    "Ulver", "Varley", "Wharram", "Yarm",
)  # fmt: skip
QUANTITIES: Final = ("flow", "level", "load", "pressure", "temperature", "turbidity")
_LEAST, _MOST = 10, 100


@final
@dataclass(frozen=True, slots=True)
class Reading:
    """One finding: a quantity at a station, before and after; the two values differ."""

    station: str
    quantity: str
    before: int
    after: int


@final
@dataclass(frozen=True, slots=True)
class Log:
    """What was read. No number stands in it twice, so that a number tells its reading."""

    readings: tuple[Reading, ...]

    @property
    def numbers(self) -> frozenset[int]:
        """All values of the log."""
        return frozenset(value for one in self.readings for value in (one.before, one.after))


def make_log(rng: np.random.Generator) -> Log:
    """A log of :data:`FINDINGS` readings at different stations."""
    names = rng.permutation(len(STATIONS))[:FINDINGS]
    kinds = rng.integers(len(QUANTITIES), size=FINDINGS)
    values = _LEAST + rng.permutation(_MOST - _LEAST)[: 2 * FINDINGS]
    return Log(tuple(
        Reading(STATIONS[name], QUANTITIES[kind], int(values[2 * i]), int(values[2 * i + 1]))
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ))  # fmt: skip


def invented(log: Log, rng: np.random.Generator) -> tuple[int, ...]:
    """A value for each finding that stands nowhere in the log, no two alike."""
    held = log.numbers
    free = [value for value in range(_LEAST, _MOST) if value not in held]
    return tuple(free[int(place)] for place in rng.permutation(len(free))[: len(log.readings)])
