from __future__ import annotations

import numpy as np
import pytest

from ramify.core.errors import BadInput
from ramify.learn.credit.cliff.table import cliff_table, detection_rate


def test_the_table_equals_the_rule_cell_by_cell():
    table = cliff_table()
    for k in range(65):
        for m in range(65):
            p, q = k / 64, m / 64
            error = (p * (1 - p) / 64 + q * (1 - q) / 64) ** 0.5
            assert table[k, m] == (p - q > 0.1 + 1.645 * error), (k, m)


def test_counts_and_smallest_drops_are_those_enumerated():
    table = cliff_table()
    assert table.shape == (65, 65)
    assert table.sum() == 1283
    first = int(np.flatnonzero(table.any(axis=1))[0])
    assert first == 12
    assert np.flatnonzero(table[12]).tolist() == [0]
    needed = {k: k / 64 - np.flatnonzero(table[k]).max() / 64 for k in (64, 48, 32, 24)}
    assert needed == {64: 0.1875, 48: 0.25, 32: 0.25, 24: 0.234375}


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [(0.5, 0.2, 0.795), (0.9, 0.6, 0.868), (0.5, 0.5, 0.0030), (0.3, 0.3, 0.0023)],
)
def test_detection_rates(before, after, rate):
    assert detection_rate(before, after) == pytest.approx(rate, abs=5e-4)


def test_a_drop_of_a_half_is_always_found():
    assert min(detection_rate(p, p - 0.5) for p in (0.5, 0.7, 0.9, 1.0)) >= 0.999


def test_a_flat_trace_shows_false_cliffs():
    # 500 tokens at 0.5: 1.5 false cliffs on average if neighbouring tests were independent.
    assert 500 * detection_rate(0.5, 0.5) == pytest.approx(1.5, abs=0.03)
    assert 500 * detection_rate(0.9, 0.9) == pytest.approx(0.09, abs=0.01)


def test_refusals():
    with pytest.raises(BadInput, match="15 draws"):
        cliff_table(15)
    with pytest.raises(BadInput, match="delta0"):
        cliff_table(64, delta0=1.0)
