"""What old scores do to a ranking after the judge has changed: kept, and erased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from refork.errors import BadInput
from refork.stats.results import Array


@final
@dataclass(frozen=True, slots=True)
class ErasureEffect:
    """Mean Spearman correlations over repetitions, with and without the old judge's outcomes.

    ``pinned``: of the ranking before the change with the one after it. ``truth``: of the ranking after it
    with the true one under the new judge. Errors are standard errors of the means.
    """

    pinned_keep: float
    pinned_erase: float
    truth_keep: float
    truth_erase: float
    errors: tuple[float, float, float, float]


def erasure_effect(
    new_outcomes: int, *, old_outcomes: int = 48, nodes: int = 32, repetitions: int = 2000, seed: int = 0
) -> ErasureEffect:
    """Rank nodes by successes, before and after a judge that loves gloss gives way to one that does not.

    A node has quality q and gloss g, uniform; the old judge accepts with 0.55 + 0.4 g, the new one with
    clip(0.1 + 0.8 q - 0.3 g). A ranking without spread correlates 0 with any other.

    Raises: BadInput for fewer than two nodes, or no outcomes or repetitions.
    Source: arXiv:2606.26294 says that rankings stay pinned; this world and its figures are ours.
    """
    if min(new_outcomes, old_outcomes, repetitions) < 1 or nodes < 2:
        raise BadInput("erasure is measured on two nodes or more, with outcomes before and after")
    rng = np.random.default_rng([seed, new_outcomes])
    quality, gloss = rng.random((2, repetitions, nodes))
    truth = np.clip(0.1 + 0.8 * quality - 0.3 * gloss, 0, 1)
    old = rng.binomial(old_outcomes, 0.55 + 0.4 * gloss)
    new = rng.binomial(new_outcomes, truth)
    kept, alone, before = old + new, new, _ranks(old)
    columns = [
        _correlation(before, _ranks(kept)),
        _correlation(before, _ranks(alone)),
        _correlation(_ranks(truth), _ranks(kept)),
        _correlation(_ranks(truth), _ranks(alone)),
    ]
    means = [float(column.mean()) for column in columns]
    errors = [
        float(column.std(ddof=1) / np.sqrt(repetitions)) if repetitions > 1 else np.inf for column in columns
    ]
    return ErasureEffect(means[0], means[1], means[2], means[3], (errors[0], errors[1], errors[2], errors[3]))


def _ranks(values: NDArray[np.float64] | NDArray[np.int64]) -> Float[Array, "repetitions nodes"]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=1), dtype=np.float64)


def _correlation(
    x: Float[Array, "repetitions nodes"], y: Float[Array, "repetitions nodes"]
) -> Float[Array, "repetitions"]:
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    found = np.zeros(scale.shape)
    np.divide((x * y).sum(axis=1), scale, out=found, where=scale > 0)
    return found
