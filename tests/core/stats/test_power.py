"""The difference that a sample can show."""

import numpy as np
import pytest

from ramify.core.errors import BadInput
from ramify.core.stats.power import detectable_difference


def test_the_detectable_difference_is_found_four_times_in_five():
    # Paired t tests at exactly that difference; 2,000 repetitions, 4 standard errors of the share.
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2000, 100))
    exact = detectable_difference(np.concatenate([np.full(50, -1.0), np.full(50, 1.0)]) * np.sqrt(99 / 100))
    found = ttest_1samp(noise + exact, 0, axis=1).pvalue < 0.05
    assert abs(found.mean() - 0.8) < 4 * np.sqrt(0.16 / 2000)


def test_the_detectable_difference_refuses_one_pair_and_no_power():
    with pytest.raises(BadInput):
        detectable_difference(np.array([1.0]))
    with pytest.raises(BadInput):
        detectable_difference(np.array([1.0, 2.0]), power=1.0)
