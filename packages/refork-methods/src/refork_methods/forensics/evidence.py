"""Results with intervals, evidence, and how a result stands to a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refork.errors import BadInput
from refork.stats import Interval
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.hypothesis import Prediction, Quantity

Mark: TypeAlias = Literal["consistent", "inconsistent", "weak"]


@dataclass(frozen=True, slots=True)
class Result:
    """An estimate with its interval, the arms it was computed from, and the test of "nothing".

    ``p`` None: no test. ``bounded``: the interval takes failed and unfinished rollouts either way.
    """

    quantity: Quantity
    interval: Interval
    arms: tuple[Arm, ...]
    p: float | None = None
    method: str = ""
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One row of the table: an instrument's result for a design, and what else could explain it.

    ``confounds``: names such as ``capability``, ``unwillingness``, ``evaluation awareness``; rows that
    share one count once. ``looked_for``: set where the row is a search for something (hits show it, few
    hits speak against it); such a row says only as much as a positive control shows that the search
    can find. ``upper_bound``: the instrument itself may make hits (prefilled text).
    """

    name: str
    design: str
    instrument: str
    result: Result
    confounds: tuple[str, ...] = ()
    looked_for: str | None = None
    upper_bound: bool = False
    note: str = ""


def mark(
    prediction: Prediction, result: Result, *, low: float | None = None, high: float | None = None
) -> Mark:
    """How a result stands to a prediction.

    Consistent: the whole interval lies in the predicted region. Inconsistent: none of it does. Else weak.
    A curve, of any result's arms, is inconsistent where one arm's simultaneous interval misses its band.
    ``low`` and ``high`` put other ends in place of the interval's, for instruments that make or miss hits.

    Raises: BadInput where the quantities differ, or a predicted arm was not run.
    """
    if prediction.quantity == "curve":
        return _curve_mark(prediction, result, low, high)
    if prediction.quantity != result.quantity:
        raise BadInput(
            f"the prediction is of a {prediction.quantity}, the result is a {result.quantity}",
            where=prediction.words or None,
        )
    found = result.interval
    ends = (found.low if low is None else low, found.high if high is None else high)
    return _mark_of(ends, prediction.region)


def _mark_of(interval: tuple[float, float], region: tuple[float, float]) -> Mark:
    if interval[1] < region[0] or interval[0] > region[1]:
        return "inconsistent"
    return "consistent" if interval[0] >= region[0] and interval[1] <= region[1] else "weak"


def _curve_mark(prediction: Prediction, result: Result, low: float | None, high: float | None) -> Mark:
    rates = prediction.rates or {}
    arms = {arm.name: arm for arm in result.arms}
    absent = [name for name in rates if name not in arms]
    if absent:
        raise BadInput(f"predicted but not run: {', '.join(absent[:5])}", where=prediction.words or None)
    level = 1 - (1 - result.interval.level) / len(rates)  # all intervals hold together
    marks: set[Mark] = set()
    for name, rate in rates.items():
        found = arms[name].interval(level)
        ends = (
            found.low if low is None else min(low, found.low),
            found.high if high is None else max(high, found.high),
        )
        marks.add(_mark_of(ends, (rate - prediction.tolerance, rate + prediction.tolerance)))
    if "inconsistent" in marks:
        return "inconsistent"
    return "weak" if "weak" in marks else "consistent"
