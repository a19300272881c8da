"""Motives as hypotheses, each with predictions that could fail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.plain import content_hash, to_json

#: What a result is an estimate of. ``rate`` of one arm; ``difference`` of the second arm to the first;
#: ``ratio``, first / second (a six-fold drop is 6); ``trend`` z over doses; ``interaction`` of four cells;
#: ``scale``: chance that the second arm scores above the first; ``value``: anything else with an interval.
#: ``curve``, in predictions only: the rate of every arm.
Quantity: TypeAlias = Literal[
    "rate", "difference", "ratio", "trend", "curve", "interaction", "scale", "value"
]


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a hypothesis says of one design: the quantity lies in ``low .. high`` (None: open that side).

    ``rates``: the hit rate of every arm that it expects, for curves and likelihood ratios; with
    ``quantity`` "curve" the region is ``rates`` plus and minus ``tolerance``.
    """

    design: str
    quantity: Quantity
    low: float | None = None
    high: float | None = None
    rates: Mapping[str, float] | None = None
    tolerance: float = 0.1
    words: str = ""

    def __post_init__(self) -> None:
        low, high = self.region
        # NaN is neither above nor below anything: the comparison alone would let it pass.
        if math.isnan(low) or math.isnan(high) or low > high:
            raise BadInput(
                f"the predicted region {self.low} .. {self.high} is empty", where=self.words or None
            )
        if any(not 0 <= rate <= 1 for rate in (self.rates or {}).values()) or not 0 < self.tolerance < 1:
            raise BadInput("predicted rates and their tolerance lie in [0, 1]", where=self.words or None)
        if self.quantity == "curve" and not self.rates:
            raise BadInput("a predicted curve needs the rate of every arm", where=self.words or None)
        if self.quantity != "curve" and self.low is None and self.high is None:
            raise BadInput("a prediction that allows everything cannot fail", where=self.words or None,
                           hint="give low, high or both")  # fmt: skip

    @property
    def region(self) -> tuple[float, float]:
        """The bounds, an open side infinite."""
        return (-math.inf if self.low is None else self.low, math.inf if self.high is None else self.high)

    @property
    def id(self) -> str:
        """Digest of what is predicted."""
        return content_hash(to_json(self))


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A motive in one sentence; ``malign`` where it would be a misaligned one.

    Predictions given here are registered together with it.
    """

    name: str
    statement: str
    malign: bool = False
    predictions: tuple[Prediction, ...] = field(default=())
