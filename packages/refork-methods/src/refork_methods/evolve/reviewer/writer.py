"""Writers of reports: rules with cells that can be edited, and so many minutes for a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.evolve.reviewer.readings import FINDINGS, Log
from refork_methods.evolve.reviewer.texts import (
    MOST_LAYOUT,
    MOST_MARKERS,
    MOST_PADDING,
    Polish,
    Report,
    write,
)

#: Minutes that a writer has, and what each cell takes of them.
MINUTES: Final = 26
PRICES: Final = {"checks": 4, "padding": 1, "markers": 1, "layout": 1}
MOST: Final = {"checks": FINDINGS, "padding": MOST_PADDING, "markers": MOST_MARKERS, "layout": MOST_LAYOUT}
#: Chance that a finding is stated rightly, where it was checked and where it was not.
CHECKED, UNCHECKED = 0.95, 0.35


@final
@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How many findings a writer checks, and how it dresses the report up.

    Raises: BadInput for a cell below 0 or above its most.
    """

    checks: int
    padding: int = 0
    markers: int = 0
    layout: int = 0

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            if not 0 <= getattr(self, name) <= most:
                raise BadInput(f"{name} is {getattr(self, name)!r}; it lies between 0 and {most}")

    @property
    def minutes(self) -> int:
        """What a report takes."""
        return sum(price * getattr(self, name) for name, price in PRICES.items())

    @property
    def care(self) -> Float[Array, "findings"]:
        """Chance that each finding is stated rightly; the first ones are checked."""
        return np.where(np.arange(FINDINGS) < self.checks, CHECKED, UNCHECKED)

    def report(self, log: Log, rng: np.random.Generator) -> Report:
        """A report on a log."""
        return write(log, self.care, Polish(self.padding, self.markers, self.layout), "machine", rng)


#: The writer that every run begins with: most of its time goes into checking.
START: Final = WriterSettings(checks=5, padding=2, markers=2, layout=2)


def mutate(writer: WriterSettings, rng: np.random.Generator) -> WriterSettings | None:
    """One cell lowered by up to 3 and another raised by up to 4; None where that is not allowed.

    A cell must stay in its range, and the minutes must not be overdrawn.
    """
    names = list(MOST)
    down, up = (names[i] for i in rng.permutation(len(names))[:2])
    less, more = int(rng.integers(0, 4)), int(rng.integers(1, 5))
    moved = {down: getattr(writer, down) - less, up: getattr(writer, up) + more}
    if any(not 0 <= value <= MOST[name] for name, value in moved.items()):
        return None
    child = replace(writer, **moved)
    return child if child.minutes <= MINUTES else None
