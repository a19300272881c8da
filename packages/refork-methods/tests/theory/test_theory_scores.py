from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refork.errors import BadInput
from refork_methods.theory.scores import aggregate_loss, distances, relative_scores

NAN = float("nan")
tables = arrays(float, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=st.floats(0, 1))


def test_aggregate_loss_by_hand():
    # Spreads 0.8 (0.1 to 0.9), 0.5 (0.5 to 1), 0 (all equal).
    loss = aggregate_loss(
        np.asarray([0.3, 1.0, 0.2]), np.asarray([0.5, 0.5, 0.2]), [[0.1, 0.9], [0.75, NAN], [0.2]]
    )
    assert loss == pytest.approx((0.2 / 0.8 + 0.5 / 0.5 + 0.0) / 3)


def test_what_cannot_be_scored_loses_all_and_no_spread_is_plain_distance():
    assert aggregate_loss(np.asarray([NAN, 0.5]), np.asarray([0.1, 0.5]), [[], []]) == pytest.approx(0.5)


def test_the_candidate_s_own_spread_caps_its_loss():
    for far in (1.0, 10.0, 1e6):
        assert aggregate_loss(np.asarray([far]), np.asarray([0.0]), [[0.2, 0.4]]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("values", "real", "stored"),
    [([0.1], [NAN], [[]]), ([0.1], [0.1, 0.2], [[]]), ([], [], []), ([0.1], [0.1], [])],
)
def test_refused_losses(values, real, stored):
    with pytest.raises(BadInput):
        aggregate_loss(np.asarray(values), np.asarray(real), stored)


def test_leaderboard_by_hand():
    # Scaled rows: (0, 0), (0.5, 1), (1, 0.5 * 0.5 ...): three theories, two observations.
    d = np.asarray([[0.1, 0.0], [0.2, 0.4], [0.3, 0.1]])
    scaled = np.asarray([[0, 0], [0.5, 1], [1, 0.25]])
    lengths = np.sqrt((scaled**2).sum(axis=1))
    np.testing.assert_allclose(relative_scores(d), 1 - lengths / lengths.max())
    assert relative_scores(d)[0] == 1


def test_missing_counts_as_worst_and_ties_as_nothing():
    d = np.asarray([[0.1, 0.5, NAN], [0.2, 0.5, NAN]])
    # Rows: (0, 0, 1) and (1, 0, 1).
    np.testing.assert_allclose(relative_scores(d), [1 - 1 / np.sqrt(2), 0])
    np.testing.assert_allclose(relative_scores(np.asarray([[0.1], [0.1]])), [1, 1])
    np.testing.assert_allclose(relative_scores(np.asarray([[0.3]])), [1])


def test_admitting_a_theory_moves_the_others():
    d = np.asarray([[0.10, 0.10], [0.12, 0.20]])
    before = relative_scores(d)
    after = relative_scores(np.vstack([d, [[0.9, 0.9]]]))
    assert before[1] == 0
    assert after[1] > 0.8
    assert distances(1 - d, np.ones(2)) == pytest.approx(d)


@given(tables, st.randoms(use_true_random=False))
def test_scores_lie_in_the_unit_interval_and_follow_their_rows(d, random):
    scores = relative_scores(d)
    assert ((scores >= -1e-12) & (scores <= 1)).all()
    order = list(range(len(d)))
    random.shuffle(order)
    np.testing.assert_allclose(relative_scores(d[order]), scores[order], atol=1e-12)


@pytest.mark.parametrize("bad", [np.zeros((0, 2)), np.zeros(3), np.asarray([[-0.1]])])
def test_refused_leaderboards(bad):
    with pytest.raises(BadInput):
        relative_scores(bad)


def test_distances_need_as_many_real_values():
    with pytest.raises(BadInput):
        distances(np.zeros((2, 3)), np.zeros(2))
