"""Five measures of how far two classes of states lie apart."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array

Method = Literal["norm_fisher", "fisher", "cohen_d", "mahalanobis", "bhattacharyya"]
METHODS: Final[tuple[Method, ...]] = ("norm_fisher", "fisher", "cohen_d", "mahalanobis", "bhattacharyya")
#: Added to the diagonal of covariances of standardised states.
SHRINK: Final = 1.0


def standardised(states: Float[Array, "rows width"]) -> Float[Array, "rows width"]:
    """States less their mean, over their standard deviation; constant dimensions become 0."""
    spread = states.std(axis=0)
    return np.asarray((states - states.mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def between(
    states: Float[Array, "rows width"], labels: Int[Array, "labellings rows"], method: Method
) -> Float[Array, "labellings"]:
    """The measure under each labelling (1 refused, 0 complied) of states that are standardised already.

    ``norm_fisher``: squared distance of the class means over the sum of the classes' mean squared
    distances to their own mean. ``fisher`` and ``cohen_d`` are of one dimension, a probe's logits: squared
    distance over the sum of variances, and distance over the pooled standard deviation. ``mahalanobis``:
    squared distance under the pooled covariance plus the identity. ``bhattacharyya``: of two normal laws with
    such covariances.

    Raises: BadInput for an unknown measure, or more than one dimension where one is meant.
    Source: arXiv:2606.25013.
    """
    if method in ("mahalanobis", "bhattacharyya"):
        return np.array([_shrunk(states, row.astype(bool), method) for row in labels])
    if method not in METHODS:
        raise BadInput(f"unknown measure {method!r}", hint=", ".join(METHODS))
    ones = labels.astype(np.float64)
    refused, complied = (part.sum(axis=1, keepdims=True) for part in (ones, 1 - ones))
    mean_r, mean_c = ones @ states / refused, (1 - ones) @ states / complied
    distance = ((mean_r - mean_c) ** 2).sum(axis=1)
    squares = (states**2).sum(axis=1)
    within_r = ones @ squares / refused[:, 0] - (mean_r**2).sum(axis=1)
    within_c = (1 - ones) @ squares / complied[:, 0] - (mean_c**2).sum(axis=1)
    if method == "norm_fisher":
        return _over(distance, within_r + within_c)
    if states.shape[1] != 1:
        raise BadInput(f"{method} is of one dimension, a probe's logits")
    if method == "fisher":
        return _over(distance, within_r + within_c)
    n_r, n_c = refused[:, 0], complied[:, 0]
    pooled = (n_r * within_r + n_c * within_c) / (n_r + n_c - 2)
    return _over((mean_r - mean_c)[:, 0], np.sqrt(np.maximum(pooled, 0.0)))


def _over(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ratio; 0 where both vanish, as constant states have no distance at all."""
    return np.where(bottom > 1e-300, top / np.maximum(bottom, 1e-300), np.where(top == 0, 0.0, np.inf))


def _shrunk(states: NDArray[np.float64], refused: NDArray[np.bool_], method: Method) -> float:
    a, b = states[refused], states[~refused]
    shift = a.mean(axis=0) - b.mean(axis=0)
    parts = [(x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) for x in (a, b)]
    ridge = SHRINK * np.eye(states.shape[1])
    if method == "mahalanobis":
        return float(shift @ np.linalg.solve((parts[0] + parts[1]) / (len(states) - 2) + ridge, shift))
    one, two = (part / max(len(x) - 1, 1) + ridge for part, x in zip(parts, (a, b), strict=True))
    middle = (one + two) / 2
    logs = [float(np.linalg.slogdet(m)[1]) for m in (middle, one, two)]
    return float(shift @ np.linalg.solve(middle, shift)) / 8 + (logs[0] - (logs[1] + logs[2]) / 2) / 2
