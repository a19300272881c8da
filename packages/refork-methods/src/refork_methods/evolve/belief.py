"""How good a node or judge is believed to be at least: a low quantile of its Beta posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array

EPS = 0.05


def best_beliefs(
    successes: Int[Array, "..."], failures: Int[Array, "..."], eps: float = EPS
) -> Float[Array, "..."]:
    """The ``eps``-quantile of Beta(1 + S, 1 + F), elementwise; in (0, 1), ``eps`` where nothing was seen.

    Raises: BadInput for negative counts, or eps outside (0, 0.5].
    Source: arXiv:2606.26294, Algorithm 1 (there BB).
    """
    check_eps(eps)
    return quantile(counts(successes, "successes"), counts(failures, "failures"), eps)


def best_belief(successes: int, failures: int, eps: float = EPS) -> float:
    """:func:`best_beliefs` of one pair of counts."""
    return float(best_beliefs(np.asarray(successes), np.asarray(failures), eps))


def quantile(successes: Any, failures: Any, eps: float) -> NDArray[np.float64]:
    """The ``eps``-quantile of Beta(1 + S, 1 + F), elementwise, of weighted counts too; nothing is checked."""
    from scipy.special import betaincinv

    found: NDArray[np.float64] = np.asarray(betaincinv(1.0 + successes, 1.0 + failures, eps), np.float64)
    return found


def check_eps(eps: float) -> float:
    """``eps`` itself; raises BadInput outside (0, 0.5]: a belief above the median is no caution."""
    if not 0 < eps <= 0.5:
        raise BadInput(f"eps is {eps!r}; it must lie in (0, 0.5]", hint="0.05")
    return eps


def counts(values: Any, what: str) -> NDArray[np.int64]:
    """Whole numbers, none below 0; raises BadInput for anything else."""
    array = np.asarray(values)
    # NaN and infinity would become some whole number in the conversion.
    whole = array.astype(np.int64) if np.isfinite(array.astype(np.float64)).all() else None
    if whole is None or (whole != array).any() or (whole < 0).any():
        raise BadInput(f"{what} are counts: whole numbers, none below 0")
    return whole
