"""Folding prefixes into traces and clusters: exact, and by property."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refork.decoding.plan import BLOCK, align, clusters, shared, traces


def ids(*tokens):
    return np.array(tokens, dtype=np.int32)


def test_prefixes_fold_into_the_longest():
    long, other = ids(1, 2, 3, 4), ids(1, 2, 9)
    folded = traces([long[:2], long, other, long[:2].copy(), ids(1)])
    assert [t.tolist() for t in folded.tokens] == [[1, 2, 3, 4], [1, 2, 9]]
    assert folded.owner.tolist()[1:3] == [0, 1]
    assert folded.keep.tolist() == [2, 4, 3, 2, 1]


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), min_size=1, max_size=30))
def test_every_request_is_the_beginning_of_its_trace(lists):
    arrays = [ids(*tokens) for tokens in lists]
    folded = traces(arrays)
    for array, owner, keep in zip(arrays, folded.owner, folded.keep, strict=True):
        assert folded.tokens[owner][:keep].tolist() == array.tolist()
    plain = [t.tolist() for t in folded.tokens]
    assert plain == sorted(plain)
    assert not any(a != b and b[: len(a)] == a for a in plain for b in plain)


def test_clusters_share_whole_blocks():
    base = np.arange(200, dtype=np.int32)
    parted = [np.concatenate([base[:150], ids(500 + i)]) for i in range(3)]
    alone = np.arange(900, 1000, dtype=np.int32)
    short = [ids(5, 6), ids(5, 7)]
    tokens = traces([*parted, alone, *short]).tokens
    assert clusters(tokens) == [([0, 1, 2], 128), ([3], 0), ([4], 0), ([5], 0)]
    # The longer of two sides share with none of the shorter.
    assert clusters([base[:130], base[:140], base[:150]], switch=135) == [([0], 0), ([1, 2], 128)]


def test_lengths():
    assert align(1) == BLOCK
    assert align(BLOCK) == BLOCK
    assert align(0) == 0
    assert shared(ids(1, 2, 3), ids(1, 2)) == 2
    assert shared(ids(1), ids(2)) == 0
