"""The planted bench: recall and variance explained; where A's concepts land is reported, not asserted."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.crosscoder.model import CrossCoder
from refork_methods.crosscoder.partition import Partition
from refork_methods.crosscoder.planted import planted_world, recall
from refork_methods.crosscoder.train import TrainSettings, train


def test_a_world_is_what_it_says():
    world = planted_world(seed=4)
    shared, only_a, only_b = slice(0, 40), slice(40, 44), slice(44, 48)
    assert np.allclose(np.linalg.norm(world.a[shared], axis=1), 1, atol=1e-6)
    cosine = (world.a[shared] * world.b[shared]).sum(axis=1)
    # Concept directions are random, so the turned one keeps about this cosine.
    assert cosine.mean() == pytest.approx(0.96, abs=0.02)
    assert cosine.min() > 0.85
    assert (world.b[only_a] == 0).all()
    assert (world.a[only_b] == 0).all()
    data = world.sample(4000, 1)
    assert data.d_in == (32, 32)
    assert np.array_equal(data.a, world.sample(4000, 1).a)
    with pytest.raises(BadInput):
        planted_world(cosine=1.5)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.06])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_planted_concept_is_found(share, seed):
    world = planted_world(seed=seed)
    model = CrossCoder((32, 32), 128, 3, "batch_topk", Partition(share, share), seed=seed)
    train(model, world.sample(60_000, 100 + seed), TrainSettings(steps=1_500, batch=128, seed=seed))
    found = recall(model, world, world.sample(5_000, 200 + seed))
    assert found.recall == 1.0
    assert found.fve >= 0.98
    assert (found.relative_norm > 0.9).all()
    assert model.forbidden_weight_max() == 0.0
    # Nothing in the loss puts A's concepts into A's block: the share is reported only.
    assert found.captured is None if share == 0 else 0 <= found.captured <= 1
    if share:
        assert found.captured == pytest.approx(np.mean(found.feature < model.blocks["A"].stop))
    assert found.to_json()["recall"] == 1.0
