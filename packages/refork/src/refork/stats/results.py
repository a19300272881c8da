"""What statistics return, and the checks every one of them makes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from refork.errors import BadInput

if TYPE_CHECKING:
    Array: TypeAlias = NDArray[Any]
else:
    Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the interval ``low .. high`` that covers the truth with probability ``level``."""

    estimate: float
    low: float
    high: float
    level: float
    method: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        """``high - low``, in the estimate's unit."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Test:
    """A test's statistic and its p-value (two-sided unless the method says otherwise).

    ``statistic`` is None where the data define none: an odds ratio of 0 / 0.
    """

    __test__ = False  # not a pytest class, whatever its name

    statistic: float | None
    p: float
    method: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference with its interval and the test of "no difference" that agrees with it."""

    interval: Interval
    test: Test

    @property
    def p(self) -> float:
        """The two-sided p-value; below ``1 - level`` exactly where the interval leaves out 0."""
        return self.test.p


def check_level(level: float) -> float:
    """``level`` itself, refused outside (0, 1)."""
    # Turned round, so that NaN is refused as well.
    if not 0 < level < 1:
        raise BadInput(f"the level is {level!r}; it must lie strictly between 0 and 1", hint="0.95")
    return level


def check_count(count: int, total: int) -> None:
    """Refuse anything but ``0 <= count <= total`` with ``total >= 1``."""
    if total < 1 or not 0 <= count <= total:
        raise BadInput(f"{count} of {total} is not a count of successes among at least one trial")


def finite(values: Any, what: str = "values") -> NDArray[np.float64]:
    """The values as float64 [n], n >= 1; NaN and infinities are refused."""
    array = np.asarray(values, dtype=np.float64).ravel()
    if array.size == 0:
        raise BadInput(f"there are no {what}")
    if not np.isfinite(array).all():
        raise BadInput(f"{what} hold {int((~np.isfinite(array)).sum())} NaN or infinite entries")
    return array


def paired(base: Any, other: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both arms as float64 [n] of one length, n >= 2."""
    x, y = finite(base, "base outcomes"), finite(other, "other outcomes")
    if x.shape != y.shape:
        raise BadInput(f"{x.size} base outcomes cannot be paired with {y.size} others")
    if x.size < 2:
        raise BadInput("one pair cannot show a difference", hint="draw at least two")
    return x, y


def is_binary(values: NDArray[np.float64]) -> bool:
    """Whether every value is 0 or 1."""
    return bool(np.isin(values, (0.0, 1.0)).all())


def normal_quantile(level: float) -> float:
    """The z such that a standard normal lies in (-z, z) with probability ``level``."""
    from scipy.special import ndtri

    return float(ndtri(0.5 + check_level(level) / 2))


def normal_p(z: float) -> float:
    """Two-sided p-value of a standard normal statistic."""
    return math.erfc(abs(z) / math.sqrt(2))
