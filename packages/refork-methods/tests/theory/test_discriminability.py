from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.rules import RANKED, RULES
from refork_methods.theory.discriminability import discriminability, jsd, sequence_jsd

weights = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda w: sum(w) > 0.01)


def law(w):
    return np.asarray(w) / sum(w)


@given(weights, weights)
def test_divergence_is_symmetric_and_bounded(p, q):
    value = float(jsd(law(p), law(q)))
    assert value == pytest.approx(float(jsd(law(q), law(p))), abs=1e-12)
    assert 0 <= value <= math.log(2)
    assert float(jsd(law(p), law(p))) == pytest.approx(0, abs=1e-15)
    if np.abs(law(p) - law(q)).max() > 1e-3:
        assert value > 0


def test_divergence_by_hand_and_against_scipy():
    from scipy.spatial.distance import jensenshannon

    assert float(jsd(np.asarray([1.0, 0]), np.asarray([0, 1.0]))) == pytest.approx(math.log(2))
    p, q = np.asarray([0.1, 0.2, 0.7]), np.asarray([0.3, 0.3, 0.4])
    assert float(jsd(p, q)) == pytest.approx(jensenshannon(p, q) ** 2)


def test_sequences_that_differ_in_order_alone():
    same = np.asarray([[0, 0, 1, 1], [1, 1, 0, 0]])
    other = np.asarray([[0, 1, 1, 0], [1, 0, 0, 1]])
    assert sequence_jsd(same, same) == 0
    # Rates are one half throughout; the joint distributions share no outcome from the second trial on.
    assert same.mean() == other.mean() == 0.5
    assert sequence_jsd(same, other) == pytest.approx(math.log(2) * 3 / 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros((0, 2)), np.zeros((1, 2))),
        (np.zeros((1, 2)), np.zeros((1, 3))),
        (np.full((1, 1), 2), np.zeros((1, 1))),
    ],
)
def test_refused_sequences(one, other):
    with pytest.raises(BadInput):
        sequence_jsd(one.astype(int), other.astype(int))


def test_refused_laws():
    for bad in ([0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]):
        with pytest.raises(BadInput):
            jsd(np.asarray(bad), np.asarray([0.5, 0.5]))
    with pytest.raises(BadInput):
        jsd(np.asarray([1.0]), np.asarray([0.5, 0.5]))


def test_the_median_over_random_designs():
    """50 designs and three pairs of theories: the reference is 0.038, outside 0.030 to 0.050 is wrong."""
    rng, found = np.random.default_rng(0), []
    theories = RANKED[:3]
    for seed in range(50):
        e = random_design(rng)
        found += [discriminability(a, b, e, seed) for a, b in itertools.combinations(theories, 2)]
    assert 0.030 <= np.median(found) <= 0.050


def test_a_theory_against_itself_shows_the_bias_alone():
    """Four cells at 300 runs a side: about (4 - 1) / 8 * 2 / 300 = 0.0025 nats, and less with rare cells."""
    e = random_design(np.random.default_rng(1))
    assert 0 < discriminability(RULES["dial"], RULES["dial"], e, 0) < 0.004
