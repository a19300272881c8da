import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.speculate.anchors import block_mask, block_tokens, possible_anchors, sample_anchors

MASKS = st.lists(st.booleans(), min_size=1, max_size=40).map(lambda bits: np.array(bits, dtype=bool))


@given(MASKS, st.integers(1, 12), st.integers(0, 99))
def test_anchors_are_sorted_and_supervised_with_the_token_after(mask, count, seed):
    found = sample_anchors(mask, count, np.random.default_rng(seed))
    able = [i for i in range(len(mask) - 1) if mask[i] and mask[i + 1]]
    assert possible_anchors(mask).tolist() == able
    assert len(found) == min(count, len(able))
    assert sorted(set(found.tolist())) == found.tolist()
    assert set(found.tolist()) <= set(able)


@given(MASKS, st.integers(1, 8))
def test_blocks_learn_a_contiguous_beginning(mask, block):
    anchors = np.arange(len(mask))
    found = block_mask(mask, anchors, block)
    for a in anchors:
        wanted = np.cumprod([a + k < len(mask) and mask[a + k] for k in range(1, block + 1)]).astype(bool)
        assert np.array_equal(found[a], wanted)


def test_every_possible_anchor_learns_something():
    mask = np.array([0, 1, 1, 0, 1, 1, 1, 0], dtype=bool)
    assert block_mask(mask, possible_anchors(mask), 3)[:, 0].all()


def test_anchors_are_drawn_evenly():
    """200 draws of 5 of 20: each is expected 50 times, sd 6.1; a bound of 5 sd fails once in 80,000 seeds."""
    rng = np.random.default_rng(0)
    mask = np.ones(21, dtype=bool)
    counts = np.bincount(np.concatenate([sample_anchors(mask, 5, rng) for _ in range(200)]), minlength=20)
    assert np.abs(counts - 50).max() < 31


def test_teacher_forcing_columns():
    tokens = np.array([3, 4, 5, 6], dtype=np.int32)
    found = block_tokens(tokens, np.array([1, 2]), 3)
    assert found.tolist() == [[4, 5, 6, 6], [5, 6, 6, 6]]


def test_no_anchors_are_refused():
    with pytest.raises(BadInput):
        sample_anchors(np.ones(3, dtype=bool), 0, np.random.default_rng(0))
