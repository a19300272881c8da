from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from ramify.core.errors import BadInput
from ramify.core.stats.mixture import binomial_likelihood, mixture_laws

GRID = np.linspace(-4, 4, 9)


def test_likelihoods_are_binomial_up_to_a_factor():
    found = binomial_likelihood(np.array([0, 2]), np.array([3, 5]), GRID)
    q = expit(GRID)
    for row, (k, n) in zip(found, ((0, 3), (2, 5)), strict=True):
        truth = q**k * (1 - q) ** (n - k)
        assert row == pytest.approx(truth / truth.max())


def test_the_law_climbs_to_the_chances_behind_the_counts():
    # Exact expected shares of counts of 40 under half 0.12, half 0.88 (logits -2 and 2).
    from scipy.stats import binom

    k = np.arange(41)
    share = (binom.pmf(k, 40, expit(-2)) + binom.pmf(k, 40, expit(2))) / 2
    like = binomial_likelihood(k, np.full(41, 40), GRID)
    law = mixture_laws(like, np.stack([share, binom.pmf(k, 40, 0.5)]), 2000)
    assert law.sum(axis=1) == pytest.approx(1.0)
    assert law[0][[2, 6]] == pytest.approx(0.5, abs=0.01)
    assert law[1][4] == pytest.approx(1.0, abs=0.01)


def test_impossible_counts_are_refused():
    for k, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(BadInput, match="every count"):
            binomial_likelihood(np.array([k]), np.array([n]), GRID)
