"""Results against expected ones: the worst relative error, and where it is too large."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Values: TypeAlias = NDArray[Any]
#: Elements at a time: what is computed of them stays in a core's own caches.
BLOCK = 16384


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
    error, most, worst = 0.0, 0.0, -1
    for slot, theirs in enumerate(expected):
        rms = max(_rms(theirs), scale)
        for start in range(0, len(theirs), BLOCK):
            block = slice(start, start + BLOCK)
            mine, exact = got[slot, block], _precise(theirs[block])
            if not np.isfinite(mine).all():
                place = start + int(np.isfinite(mine).argmin())
                return _at(slot * len(theirs) + place, got, expected, float("inf"))
            size = np.abs(exact)
            whole = size + (atol / rtol if rtol else 0.0) * rms
            with np.errstate(all="ignore"):
                off = np.abs(mine - exact)
                error = float(np.maximum(error, np.max(np.where(off > 0, off / whole, 0))))
            off -= rtol * size + atol * rms
            if beside is not None:
                off -= 2 * np.abs(beside[slot, block] - exact)
            place = int(np.argmax(off))
            # What is no number is the worst, and the first of them.
            if not (np.isnan(most) or off[place] <= most):
                most, worst = float(off[place]), slot * len(theirs) + start + place
    return Compared(error) if worst < 0 else _at(worst, got, expected, error)


def _precise(values: Values) -> Values:
    return values.astype(values.dtype if values.dtype.itemsize > 4 else np.float64)


def _rms(values: Values) -> float:
    """Root of the mean square of a slot."""
    parts = (_precise(values[at : at + BLOCK]) for at in range(0, len(values), BLOCK))
    return float(np.sqrt(sum(np.sum(part * part) for part in parts) / len(values)))


def _whole(got: Values, expected: Values) -> Compared:
    if np.array_equal(got, expected):
        return Compared(0.0)
    off = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    error = float(np.max(off / np.maximum(np.abs(expected.astype(np.float64)), 1)))
    return _at(int(np.argmax(got != expected)), got, expected, error)


def _at(flat: Any, got: Values, expected: Values, error: float) -> Compared:
    slot, place = divmod(int(flat), got.shape[1])
    return Compared(error, slot, place, float(got[slot, place]), float(expected[slot, place]))
