"""How far the success probability can fall at one token: exact limits that no policy can break.

The value before a token is the mean of the values after all tokens that might be said there::

    V(before) = sum over a of pi(a) V(a) <= pi(x) V(x) + (1 - pi(x)) * 1

so the drop V(before) - V(x) is at most ``(1 - pi(x)) * (1 - V(x))``: a token that the policy says almost
surely cannot lose much, because its alternatives are too rare to have been worth much. A fall of
``delta0`` or more needs ``pi(x) <= 1 - delta0``. So a "deterministic" cliff, found where pi is 0.99 or more,
can only be sampling noise, a grader's fault or an engine's.

Source: our own; arXiv 2606.25524 reports deterministic cliffs as a class of their own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput
from refork_methods.cliff.table import DELTA0

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def max_drop(chance: ArrayLike, after: ArrayLike = 0.0) -> Floats:
    """The largest true drop at a token said with probability ``chance`` whose value is ``after``.

    Raises: BadInput for a probability or value outside [0, 1].
    """
    pi, v = np.asarray(chance), np.asarray(after)
    for name, part in (("probability", pi), ("value", v)):
        if ((part < 0) | (part > 1)).any():
            raise BadInput(f"a {name} lies outside [0, 1]", where="cliff bound")
    return np.asarray((1 - pi) * (1 - v))


def can_fall(chance: ArrayLike, delta0: float = DELTA0) -> Bools:
    """Where a true drop above ``delta0`` is possible at all; elsewhere no test is needed."""
    return np.asarray(max_drop(chance) >= delta0)


def bound_violations(
    before: ArrayLike, after: ArrayLike, chance: ArrayLike, tolerance: float = 1e-9
) -> Bools:
    """Where *exact* values break the bound: never, unless the values or the probabilities are wrong.

    On estimates it says where noise or a fault must be at work.
    """
    drop = np.asarray(before) - np.asarray(after)
    return np.asarray(drop > max_drop(chance, after) + tolerance)
