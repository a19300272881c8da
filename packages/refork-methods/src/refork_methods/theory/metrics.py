"""Statistics of choices: one number for the pooled trials, with its variance over people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float

from refork.errors import BadInput
from refork.stats.results import Array
from refork_methods.theory.trials import Trials


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A named statistic of trials. It returns None where it cannot be computed; that is not 0.

    ``many`` computes it on several lists of trials at once, where that is cheaper.
    """

    name: str
    compute: Callable[[Trials], float | None]
    words: str = ""
    many: Callable[[Sequence[Trials]], list[float | None]] | None = None

    def of_all(self, lists: Sequence[Trials]) -> list[float | None]:
        """The statistic of each; None as for one."""
        if self.many is None:
            return [self(one) for one in lists]
        found = self.many(lists)
        return [None if value is None or not math.isfinite(value) else float(value) for value in found]

    def __call__(self, trials: Trials) -> float | None:
        """The statistic; None where it is not defined or not finite."""
        value = self.compute(trials)
        return None if value is None or not math.isfinite(value) else float(value)


@final
@dataclass(frozen=True, slots=True)
class Measured:
    """A metric on some people's trials.

    ``value`` is that of the pooled trials, ``mean`` and ``variance`` those of the single persons' values
    (``ddof`` 0, as published), ``people`` how many of them have one. None: not defined.
    """

    metric: str
    value: float | None
    mean: float | None
    variance: float | None
    people: int
    missing: int

    @property
    def sample_variance(self) -> float | None:
        """The variance with one degree of freedom taken off; None for fewer than two people."""
        if self.variance is None or self.people < 2:
            return None
        return self.variance * self.people / (self.people - 1)


def measure(metric: Metric, trials: Trials) -> Measured:
    """A metric on pooled trials and on each person's.

    Source: arXiv:2606.26448 (code); the mean over people is ours.
    """
    # One call for all of them: a statistic that is code starts the sandbox once, not once a person.
    *each, pooled = metric.of_all([*(trials.of(person) for person in trials.people), trials])
    found = np.asarray([value for value in each if value is not None], dtype=np.float64)
    return Measured(
        metric.name,
        pooled,
        float(found.mean()) if found.size else None,
        float(found.var()) if found.size else None,
        int(found.size),
        len(each) - int(found.size),
    )


def share_of_b() -> Metric:
    """Share of choices of option B."""
    return Metric("share of B", lambda trials: float(trials.response.mean()))


def share_of_b_at(stimuli: Sequence[int]) -> Metric:
    """Share of B at some stimuli; None where none of them was shown. Raises BadInput for no stimulus."""
    if not stimuli:
        raise BadInput("a share at no stimulus")
    wanted = sorted(set(stimuli))

    def compute(trials: Trials) -> float | None:
        chosen = trials.response[np.isin(trials.stimulus, wanted)]
        return float(chosen.mean()) if chosen.size else None

    return Metric(f"share of B at {', '.join(map(str, wanted))}", compute)


def agreement(name: str, preference: Float[Array, "stimuli"]) -> Metric:
    """Share of choices that follow a preference (above 0: B, below 0: A); stimuli at 0 are left out.

    With a theory's score differences: how often people do what it says. None where it says nothing.
    """
    sides = np.sign(preference)

    def compute(trials: Trials) -> float | None:
        told = sides[trials.stimulus]
        chosen = trials.response[told != 0] == (told[told != 0] > 0)
        return float(chosen.mean()) if chosen.size else None

    return Metric(f"agreement with {name}", compute)


def previous_and_now(trials: Trials) -> tuple[Array, Array, Array]:
    """Responses before and now, within persons; and whose they are."""
    # Rows of several people may alternate; a stable sort keeps each person's own order.
    order = np.argsort(trials.person, kind="stable")
    person, response = trials.person[order], trials.response[order]
    same = person[1:] == person[:-1]
    return response[:-1][same], response[1:][same], person[1:][same]


def switch_rate() -> Metric:
    """Share of choices that differ from the person's one before; None where nobody chose twice."""

    def compute(trials: Trials) -> float | None:
        before, now, _ = previous_and_now(trials)
        return float((before != now).mean()) if now.size else None

    return Metric("switch rate", compute)


def lag_one() -> Metric:
    """Correlation of a choice with the same person's choice before: what order-only theories differ in.

    None where nobody chose twice, or where one side never varies.
    """

    def compute(trials: Trials) -> float | None:
        before, now, _ = previous_and_now(trials)
        return None if now.size < 2 else pearson(before.astype(float), now.astype(float))

    return Metric("lag-1", compute)


def _both(model: Array, people: Array) -> tuple[Float[Array, "stimuli"], Float[Array, "stimuli"]]:
    x, y = np.asarray(model, dtype=np.float64), np.asarray(people, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise BadInput(f"rates of shapes {x.shape} and {y.shape} cannot be compared")
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def mse_pb(model: Float[Array, "stimuli"], people: Float[Array, "stimuli"]) -> float | None:
    """Mean squared difference of two rates of choosing B; NaN pairs are left out, None for no pair.

    Raises: BadInput for unequal shapes. Source: arXiv:2606.26448.
    """
    x, y = _both(model, people)
    return float(np.mean((x - y) ** 2)) if x.size else None


def pearson(model: Float[Array, "stimuli"], people: Float[Array, "stimuli"]) -> float | None:
    """Correlation of two series; None for fewer than two pairs, or where one of them never varies.

    Raises: BadInput for unequal shapes.
    """
    x, y = _both(model, people)
    # The range of a constant series is exactly 0; its standard deviation may be a rounding above 0.
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
