"""Signal of gradients: exact where there is no noise, unbiased where there is."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.compare import CompareRecipe
from refork_methods.compare.recipe import WorldPlan
from refork_testbed.trials.gradient_signal import arm_gradients, signal_of


def test_equal_gradients_are_all_signal():
    g = np.tile(np.array([3.0, 4.0]), (4, 1))
    found = signal_of(g, 2 * g)
    assert found.share == pytest.approx(1)
    assert found.alignment == pytest.approx(1)
    assert signal_of(g, g @ np.array([[0.0, 1.0], [-1.0, 0.0]])).alignment == pytest.approx(0)


def test_the_share_is_that_of_the_law():
    # |mean|^2 = 1 and noise of variance 3: a share of 1/4. The mean over 400 repetitions of 8 batches lies
    # within 0.03 of it: five standard errors, so about one run in two million fails.
    rng = np.random.default_rng(0)
    mean = np.zeros(30)
    mean[0] = 1.0
    shares = [
        signal_of(mean + rng.normal(0, np.sqrt(3 / 30), (8, 30)), np.tile(mean, (2, 1))).share
        for _ in range(400)
    ]
    assert abs(np.mean(shares) - 0.25) < 0.03


def test_pure_noise_has_no_direction():
    g = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert signal_of(g, g).share < 0
    assert np.isnan(signal_of(g, g).alignment)


def test_gradients_of_nothing_but_zeros_have_no_share():
    found = signal_of(np.zeros((3, 4)), np.ones((3, 4)))
    assert np.isnan([found.share, found.alignment]).all()


def test_one_batch_is_refused():
    with pytest.raises(BadInput, match="two batches"):
        signal_of(np.ones((1, 3)), np.ones((2, 3)))


def test_gradients_of_an_arm_are_the_same_again():
    place = WorldPlan(world="household:2", organism="test-tiny", tasks=2, budget=60)
    recipe = CompareRecipe(worlds=(place,), leaves=3, roots=2, at_once=1)
    first = arm_gradients(recipe, place, "independent+grpo", 2, 0)
    assert first.shape[0] == 2
    np.testing.assert_array_equal(first, arm_gradients(recipe, place, "independent+grpo", 2, 0))
