"""Many tests at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array


@dataclass(frozen=True, slots=True)
class Adjusted:
    """Adjusted p-values in the order given, and which of them are rejected at ``rate``."""

    p: NDArray[np.float64]
    rejected: NDArray[np.bool_]
    rate: float
    method: str


def holm(p: Shaped[Array, "tests"], rate: float = 0.05) -> Adjusted:
    """Holm's step-down: the chance of even one false rejection is at most ``rate``.

    Source: Holm, A simple sequentially rejective multiple test procedure (1979).
    """
    values = _checked(p, rate)
    order = np.argsort(values)
    adjusted = np.empty_like(values)
    steps = values[order] * np.arange(values.size, 0, -1)
    # A running maximum: a larger p must not be adjusted to less than a smaller one.
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return Adjusted(adjusted, adjusted <= rate, rate, "Holm")


def benjamini_hochberg(p: Shaped[Array, "tests"], rate: float = 0.05) -> Adjusted:
    """Step-up control of the false discovery rate, for independent or positively dependent tests.

    Source: Benjamini and Hochberg, Controlling the false discovery rate (1995).
    """
    from scipy.stats import false_discovery_control

    values = _checked(p, rate)
    adjusted = false_discovery_control(values)
    return Adjusted(adjusted, adjusted <= rate, rate, "Benjamini-Hochberg")


def _checked(p: Any, rate: float) -> Float[Array, "tests"]:
    values = np.asarray(p, dtype=np.float64)
    if not 0 < rate < 1:
        raise BadInput(f"the rate is {rate!r}; it must lie strictly between 0 and 1")
    if not ((values >= 0) & (values <= 1)).all():
        raise BadInput("p-values must lie in [0, 1]")
    return values
