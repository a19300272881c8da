from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.crosscoder.paired import Pairs
from refork_methods.crosscoder.spillover import change_in_score, difference_of_spillovers, shuffled, spillover
from refork_methods.crosscoder.trials import Trials
from support.crosscoder_pair import tiny_pair


def test_the_change_by_hand():
    found = change_in_score(np.array([0.0, 0.0, 1.0, 1.0]), np.array([1.0, 0.0, 1.0, 1.0]))
    assert (found.clean, found.patched, found.change) == (0.5, 0.75, 0.25)
    assert found.standard_error == pytest.approx(0.5 / 2)
    assert found.z == pytest.approx(1.0)


def test_no_change_at_all_is_a_z_of_zero():
    found = change_in_score(np.ones(5), np.ones(5))
    assert (found.change, found.standard_error, found.z) == (0.0, 0.0, 0.0)
    with pytest.raises(BadInput):
        change_in_score(np.ones(5), np.ones(4))


def test_a_change_of_nothing_is_within_two_errors_nineteen_times_in_twenty():
    # Clean and patched are independent coins of one bias: |z| > 2 in 4.6 % of draws; of 400, 9.5 % is +4.6
    # SE.
    rng = np.random.default_rng(0)
    draws = (rng.random((400, 2, 200)) < 0.4).astype(float)
    beyond = np.mean([abs(change_in_score(*pair).z) > 2 for pair in draws])
    assert 0.01 < beyond < 0.095


def test_shuffling_keeps_every_row_and_breaks_the_pairs():
    a = np.arange(40, dtype=np.float32).reshape(20, 2)
    first, second = shuffled(a, a.copy(), seed=1)
    assert np.array_equal(first, a)
    assert sorted(map(tuple, second.tolist())) == sorted(map(tuple, a.tolist()))
    assert (second != a).any(axis=1).mean() > 0.7
    with pytest.raises(BadInput):
        shuffled(a, a[:5])


def test_a_spillover_is_measured_on_the_policy_itself():
    pair = tiny_pair()
    trials = Trials(pair.prompts, lambda i, text: float("one" in text), short=3, long=8)
    found = spillover(pair.coder, pair.b, pair.pairs, trials)
    assert found.prompts == 12
    assert found.clean == trials.run(pair.b).long.mean()
    with pytest.raises(BadInput, match="pairs for"):
        spillover(pair.coder, pair.b, Pairs(pair.pairs.a[:3], pair.pairs.b[:3]), trials)
    gap = difference_of_spillovers(found, found)
    assert gap.estimate == 0
    assert gap.low == -gap.high
