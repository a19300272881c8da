from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from refork.errors import BadInput
from refork.stats.mixture import binomial_likelihood, mixture_distributions

GRID = np.linspace(-4, 4, 9)


def test_likelihoods_are_binomial_up_to_a_factor():
    found = binomial_likelihood(np.array([0, 2]), np.array([3, 5]), GRID)
    q = expit(GRID)
    for row, (k, n) in zip(found, ((0, 3), (2, 5)), strict=True):
        truth = q**k * (1 - q) ** (n - k)
        assert row == pytest.approx(truth / truth.max())


def test_likelihoods_are_as_exact_as_the_counts_are():
    rough = np.array([-0.1, 0.7], dtype=np.float32)
    found = binomial_likelihood(np.array([1]), np.array([2]), rough)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(
        found, binomial_likelihood(np.array([1]), np.array([2]), rough.astype(float))
    )
    assert binomial_likelihood(np.array([0]), np.array([1]), GRID)[0] == pytest.approx(
        expit(-GRID) / expit(-GRID).max()
    )


def test_steps_of_em_by_hand():
    # Two patterns seen thrice and once; the distribution of two chances before and after a step.
    like, seen = np.array([[1.0, 0.25], [0.5, 1.0]]), np.array([[3.0, 1.0]])
    assert mixture_distributions(like, seen, 0).tolist() == [[0.5, 0.5]]
    first = 0.75 * 0.5 / 0.625 + 0.25 * 0.25 / 0.75
    assert mixture_distributions(like, seen, 1)[0] == pytest.approx([first, 1 - first])
    near = mixture_distributions(like, seen)
    np.testing.assert_array_equal(near, mixture_distributions(like, seen, 300))
    np.testing.assert_allclose(near, mixture_distributions(like, 10 * seen), rtol=1e-12)


def test_how_many_steps_the_law_takes():
    # Two chances that are almost alike: every step still moves the distribution.
    like = np.array([[1.0, 0.99]])
    distributions = [
        mixture_distributions(like, np.ones((1, 1)), *steps)[0, 1] for steps in ((299,), (), (301,))
    ]
    assert distributions[0] > distributions[1] > distributions[2]


def test_the_law_climbs_to_the_chances_behind_the_counts():
    # Exact expected shares of counts of 40 under half 0.12, half 0.88 (logits -2 and 2).
    from scipy.stats import binom

    k = np.arange(41)
    share = (binom.pmf(k, 40, expit(-2)) + binom.pmf(k, 40, expit(2))) / 2
    like = binomial_likelihood(k, np.full(41, 40), GRID)
    distribution = mixture_distributions(like, np.stack([share, binom.pmf(k, 40, 0.5)]), 2000)
    assert distribution.sum(axis=1) == pytest.approx(1.0)
    assert distribution[0][[2, 6]] == pytest.approx(0.5, abs=0.01)
    assert distribution[1][4] == pytest.approx(1.0, abs=0.01)


def test_a_count_that_a_sample_does_not_have_says_nothing_of_it():
    like = binomial_likelihood(np.array([0, 1800]), np.array([2000, 2000]), np.linspace(-8, 8, 161))
    alone = mixture_distributions(like[:1], np.ones((1, 1)))
    both = mixture_distributions(like, np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert np.isfinite(both).all()
    np.testing.assert_allclose(both[0], alone[0], rtol=1e-12)


def test_impossible_counts_are_refused():
    for k, n in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(BadInput, match="every count"):
            binomial_likelihood(np.array([k]), np.array([n]), GRID)
    with pytest.raises(BadInput, match="every count"):
        binomial_likelihood(np.zeros(0), np.zeros(0), GRID)


def test_every_count_needs_its_trials(unchecked):
    with pytest.raises(BadInput, match="every count"):
        binomial_likelihood(np.array([1, 2]), np.array([2]), GRID)
