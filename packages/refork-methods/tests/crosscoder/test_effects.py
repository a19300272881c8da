from __future__ import annotations

import numpy as np
import pytest
import torch

from refork.errors import BadInput, CannotDo
from refork_methods.crosscoder.effects import Steering, explained, patch_effect, steering_curve
from refork_methods.crosscoder.trials import Trials
from support.crosscoder_pair import tiny_pair


@pytest.fixture(scope="module")
def steering():
    pair = tiny_pair()
    trials = Trials(pair.prompts, lambda i, text: float("one" in text), short=3, long=8)
    return Steering(pair.coder, pair.a, pair.pairs, trials)


def test_a_patch_is_reported_with_units_kept_and_forgotten(steering):
    found = patch_effect(steering.model, steering.policy, steering.pairs, steering.trials)
    assert found.prompts == 12
    assert found.clean == steering.clean().long.mean()
    assert found.gain.long.estimate == pytest.approx(found.patched - found.clean)
    assert found.mismatched_gain.long.estimate == pytest.approx(found.mismatched - found.clean)


def test_explained_variance_by_hand():
    states = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    assert explained(states, states) == 1.0
    assert explained(states, states.mean(0).expand(2, 2)) == 0.0


def test_controls_act_on_the_same_prompts_with_the_same_norm(steering):
    top = int(steering.model.encode(steering.pairs.a, steering.pairs.b)[:, :10].sum(0).argmax())
    delta = steering.delta([top], 6.0)
    control = steering.like(delta, np.arange(16, dtype=np.float32))
    assert torch.allclose(control.norm(dim=1), delta.norm(dim=1), rtol=1e-5)
    # Some of the prompts: the same scores as among all of them.
    part = steering.under(delta, slice(4, 9))
    assert np.array_equal(part.long, steering.under(delta).long[4:9])
    assert np.array_equal(steering.clean(slice(4, 9)).long, steering.clean().long[4:9])


def test_random_directions_are_seeded(steering):
    delta = steering.delta([0], 30.0)
    one, two = (steering.randoms(delta, 3, seed, slice(0, 6)) for seed in (0, 0))
    assert one.shape == (3, 6)
    assert np.array_equal(one, two)


def test_a_curve_is_clean_at_strength_one(steering):
    curve = steering_curve(steering, [0], [1.0, 8.0], directions=20)
    assert curve.score[0] == curve.clean == curve.random_low[0] == curve.random_high[0]
    assert curve.random_low[1] <= curve.random_median[1] <= curve.random_high[1]
    best = curve.sweep().best("split_half")
    assert best.alpha in (1.0, 8.0)
    assert "scores" not in curve.to_json()


def test_what_cannot_be_is_refused(steering):
    with pytest.raises(BadInput, match="20 random"):
        steering_curve(steering, [0], [2.0], directions=5)
    with pytest.raises(CannotDo, match="exclusive to B"):
        steering_curve(steering, [steering.model.blocks["B"].start], [2.0], directions=20)
