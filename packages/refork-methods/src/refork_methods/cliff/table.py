"""The published test for a cliff between two success counts, and how often it is right: pure and exact.

Source: arXiv 2606.25524 (the rule and its constants). The error rates are our own enumeration: the paper
controls neither the number of tests nor the noise of the curve they are chosen from.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refork.errors import BadInput

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Smallest drop that counts, and the one-sided 5 % quantile of the normal distribution.
DELTA0, Z = 0.1, 1.645
#: Fewer draws than this say next to nothing about a drop.
LEAST_DRAWS = 16


def check_draws(draws: int) -> int:
    """``draws`` itself; raises BadInput below 16, where no usable drop could be told from noise."""
    if draws < LEAST_DRAWS:
        raise BadInput(
            f"{draws} draws a point cannot tell a drop from noise",
            where="cliff test",
            hint=f"at least {LEAST_DRAWS}; the usual number is 64",
        )
    return draws


def unpaired_error(before: ArrayLike, after: ArrayLike, n_before: ArrayLike, n_after: ArrayLike) -> Floats:
    """Standard error of a difference of two independent shares, unpooled; NaN where a share is."""
    p, q, n, m = (np.asarray(each) for each in (before, after, n_before, n_after))
    # Of no draws the share is NaN already; the 1 only keeps the division quiet.
    return np.asarray(np.sqrt(p * (1 - p) / np.maximum(n, 1) + q * (1 - q) / np.maximum(m, 1)))


def is_cliff(drop: ArrayLike, error: ArrayLike, delta0: float = DELTA0, z: float = Z) -> Bools:
    """Whether ``drop > delta0 + z * error``; False where either is not known (NaN)."""
    return np.asarray(np.asarray(drop) > delta0 + z * np.asarray(error))


def cliff_table(draws: int = 64, delta0: float = DELTA0, z: float = Z) -> Bools:
    """The paper's test as a table: entry [k_before, k_after] of [draws + 1, draws + 1] says "cliff".

    Raises: BadInput for fewer than 16 draws, a delta0 outside [0, 1) or a z below 0.
    """
    check_draws(draws)
    if not 0 <= delta0 < 1 or z < 0:
        raise BadInput(f"delta0 is {delta0!r} and z is {z!r}; delta0 lies in [0, 1), z is 0 or more")
    share = np.arange(draws + 1) / draws
    before, after = share[:, None], share[None, :]
    return is_cliff(before - after, unpaired_error(before, after, draws, draws), delta0, z)


def detection_rate(
    before: float, after: float, draws: int = 64, delta0: float = DELTA0, z: float = Z
) -> float:
    """Chance that independent draws from values ``before`` and ``after`` trip the table, exact.

    With ``before == after`` this is the false rate per token.
    """
    from scipy.stats import binom

    counts = np.arange(draws + 1)
    chance = np.outer(binom.pmf(counts, draws, before), binom.pmf(counts, draws, after))
    return float(chance[cliff_table(draws, delta0, z)].sum())
