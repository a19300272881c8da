from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.cliff.credit import cliff_advantages, potential_gains
from refork_methods.cliff.scan import token_potential
from refork_methods.train.batch import trajectories_to_batch


def test_gains_telescope():
    gains = potential_gains([0.5, 0.8, 0.1], 0.0)
    assert gains == pytest.approx([0.3, -0.7, -0.1])
    assert gains.sum() == pytest.approx(0.0 - 0.5)
    assert np.isnan(potential_gains([0.5, np.nan], 1.0)).all()


def test_advantages_fit_the_trainer(planted, judge, tree):
    _, policy, end = planted
    found = token_potential(end, policy, 64, sequential=False, judge=judge)
    trajectory = tree.path(end)
    value = found.curve.value[:-1]
    mine = cliff_advantages([trajectory], [0.0], [value])[0]
    prompt = trajectory.root.length
    assert np.isnan(mine[:prompt]).all(), "the prompt was not said by the policy"
    assert mine[prompt:].sum() == pytest.approx(-value[0])
    batch = trajectories_to_batch([trajectory], [mine])
    assert int(batch.mask.sum()) == len(value)


def test_only_proven_cliffs_may_count(planted, judge, tree):
    _, policy, end = planted
    value = token_potential(end, policy, 64, sequential=False, judge=judge).curve.value[:-1]
    trajectory = tree.path(end)
    mine = cliff_advantages([trajectory], [0.0], [value], [[5]])[0][trajectory.root.length :]
    assert np.flatnonzero(mine).tolist() == [5]
    assert mine[5] < -0.4


def test_unknown_is_nan_and_not_zero(planted, tree):
    trajectory = tree.path(planted[2])
    assert np.isnan(cliff_advantages([trajectory], [np.nan], [None])[0]).all()
    with pytest.raises(BadInput, match="values for"):
        cliff_advantages([trajectory], [0.0], [[0.5]])
    with pytest.raises(BadInput, match="do not fit"):
        cliff_advantages([trajectory], [0.0, 1.0], [None])
