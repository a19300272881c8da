"""The distribution of chances behind counts: a mixture over a grid that makes what was counted likeliest."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Shaped

from refork.errors import BadInput
from refork.stats.results import Array


def binomial_likelihood(
    successes: Shaped[Array, "patterns"], trials: Shaped[Array, patterns], logits: Shaped[Array, "grid"]
) -> Float[Array, "patterns grid"]:
    """Likelihood of every count under every chance, each row's largest entry 1.

    Raises: BadInput for impossible counts.
    """
    from scipy.special import log_expit

    k, n = (np.asarray(a)[:, None] for a in (successes, trials))
    if k.shape != n.shape or not k.size or not ((n >= 1) & (k >= 0) & (k <= n)).all():
        raise BadInput("every count needs 0 .. n successes of n >= 1 trials")
    grid = np.asarray(logits, dtype=np.float64)
    # From logits: 1 - p would be 0 at the upper end of the grid, and the log of a failure minus infinity.
    logs = k * log_expit(grid) + (n - k) * log_expit(-grid)
    # A factor per row cancels in every EM step; without it a row of many trials underflows to 0 everywhere.
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def mixture_distributions(
    likelihood: Float[Array, "patterns grid"], weights: Float[Array, "samples patterns"], steps: int = 300
) -> Float[Array, "samples grid"]:
    """Distribution over the grid for every sample of weighted patterns, by EM steps from the uniform one.

    Source: Laird, Nonparametric maximum likelihood estimation of a mixing distribution (1978).
    """
    share = weights / weights.sum(axis=1, keepdims=True)
    # A pattern that a sample does not have may fit its distribution so badly that the fit is 0.
    held, pull = share > 0, np.zeros_like(share)
    distribution = np.full((len(share), likelihood.shape[1]), 1.0 / likelihood.shape[1])
    for _ in range(steps):
        fit = distribution @ likelihood.T
        pull[held] = share[held] / fit[held]
        distribution = distribution * (pull @ likelihood)
    return distribution
