"""A rate learned from counts: the beta posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

from refork.errors import BadInput
from refork.stats import Interval
from refork.stats.results import check_level
from refork.types import Json


@final
@dataclass(frozen=True, slots=True)
class BetaRate:
    """The chance of a success after ``successes`` of ``trials``, under a Beta(``a``, ``b``) prior.

    The uniform prior is the default; its posterior mean is (successes + 1) / (trials + 2).

    Raises: BadInput for counts that do not fit, or a prior that is not positive.
    """

    successes: float
    trials: float
    a: float = 1.0
    b: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.trials) and 0 <= self.successes <= self.trials):
            raise BadInput(f"{self.successes} of {self.trials} is not a count of successes among trials")
        if not (self.a > 0 and self.b > 0):
            raise BadInput(f"the prior Beta({self.a}, {self.b}) must have positive parameters")

    @property
    def mean(self) -> float:
        """The posterior mean."""
        return (self.successes + self.a) / (self.trials + self.a + self.b)

    def interval(self, level: float = 0.95) -> Interval:
        """The equal-tailed credible interval."""
        from scipy.stats import beta

        tail = (1 - check_level(level)) / 2
        shape = self.successes + self.a, self.trials - self.successes + self.b
        low, high = (float(beta.ppf(q, *shape)) for q in (tail, 1 - tail))
        return Interval(self.mean, low, high, level, "beta posterior")

    def above(self, threshold: float) -> float:
        """The posterior chance that the rate exceeds a threshold."""
        from scipy.stats import beta

        return float(beta.sf(threshold, self.successes + self.a, self.trials - self.successes + self.b))

    def plus(self, success: bool) -> BetaRate:
        """After one more trial."""
        return replace(self, successes=self.successes + success, trials=self.trials + 1)

    def to_json(self) -> Json:
        """Counts and prior."""
        return {"successes": self.successes, "trials": self.trials, "a": self.a, "b": self.b}

    @classmethod
    def from_json(cls, data: Json) -> BetaRate:
        """Inverse of :meth:`to_json`; the prior may be left out. Raises BadInput for what is no such rate."""
        try:
            counts = float(data["successes"]), float(data["trials"])
            prior = float(data.get("a", 1.0)), float(data.get("b", 1.0))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInput(f"this is no rate learned from counts: {error!r}") from error
        return cls(*counts, *prior)
