"""Results against expected ones: the worst relative error, and where it is too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]


@final
@dataclass(frozen=True, slots=True)
class Compared:
    """The worst relative error (inf: not finite); the place of the worst excess, None where all pass."""

    error: float
    slot: int | None = None
    place: int | None = None
    got: float = 0.0
    expected: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every value is near enough."""
        return self.place is None


def compare(
    got: Values,
    expected: Values,
    rtol: float,
    atol: float,
    *,
    scale: float = 0.0,
    beside: Values | None = None,
) -> Compared:
    """Compare ``slots elements`` arrays: |got - expected| <= rtol |expected| + atol rms(the slot's expected).

    ``scale`` is the least rms: that of one number whose terms happen to cancel says nothing of rounding.
    ``beside`` are results of another program, which may be off as well: who is at most twice as far off as
    they are, beyond the tolerance, passes.

    The error is |got - expected| over |expected| + (atol / rtol) rms, 0 where both are equal. Integers must
    be equal.
    """
    if expected.dtype.kind in "iub":
        return _whole(got, expected)
    exact = expected.astype(expected.dtype if expected.dtype.itemsize > 4 else np.float64)
    size = np.abs(exact)
    rms = np.maximum(np.sqrt(np.mean(size * size, axis=1, keepdims=True)), scale)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(got - exact)
    bad = ~np.isfinite(got)
    if bad.any():
        return _at(bad.argmax(), got, expected, float("inf"))
    whole = size + (atol / rtol if rtol else 0.0) * rms
    with np.errstate(divide="ignore", invalid="ignore"):
        error = float(np.max(np.where(off > 0, off / whole, 0)))
    excess = off - (rtol * size + atol * rms)
    if beside is not None:
        excess -= 2 * np.abs(beside - exact)
    worst = int(np.argmax(excess))
    if excess.flat[worst] <= 0:
        return Compared(error)
    return _at(worst, got, expected, error)


def _whole(got: Values, expected: Values) -> Compared:
    if np.array_equal(got, expected):
        return Compared(0.0)
    off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    error = float(np.max(off / np.maximum(np.abs(expected.astype(np.float64)), 1)))
    return _at(int(np.argmax(got != expected)), got, expected, error)


def _at(flat: Any, got: Values, expected: Values, error: float) -> Compared:
    slot, place = divmod(int(flat), got.shape[1])
    return Compared(error, slot, place, float(got[slot, place]), float(expected[slot, place]))
