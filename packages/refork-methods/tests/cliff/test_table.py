from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from refork.errors import BadInput
from refork_methods.cliff.table import (
    check_draws,
    cliff_table,
    detection_rate,
    is_cliff,
    unpaired_error,
)


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
    assert check_draws(16) == 16
    assert cliff_table(16).shape == (17, 17)
    for delta0, z in ((1.0, 1.0), (-0.1, 1.0), (0.1, -1.0)):
        with pytest.raises(BadInput, match=f"delta0 is {delta0} and z is {z}"):
            cliff_table(64, delta0, z)


@pytest.mark.parametrize(("draws", "delta0", "z"), [(16, 0.0, 0.0), (20, 0.3, 0.5)])
def test_another_table_and_its_rates_cell_by_cell(draws, delta0, z):
    table = cliff_table(draws, delta0, z)
    assert table.dtype == np.bool_
    rate = 0.0
    for k in range(draws + 1):
        for m in range(draws + 1):
            p, q = k / draws, m / draws
            error = (p * (1 - p) / draws + q * (1 - q) / draws) ** 0.5
            assert table[k, m] == (p - q > delta0 + z * error), (k, m)
            rate += table[k, m] * binom.pmf(k, draws, 0.7) * binom.pmf(m, draws, 0.4)
    assert detection_rate(0.7, 0.4, draws, delta0, z) == pytest.approx(rate)
    assert detection_rate(0.7, 0.4) == detection_rate(0.7, 0.4, 64, 0.1, 1.645)
    assert (cliff_table() == cliff_table(64, 0.1, 1.645)).all()


def test_the_error_of_a_difference():
    assert unpaired_error(0.5, 0.25, 4, 16) == pytest.approx((0.25 / 4 + 0.1875 / 16) ** 0.5)
    assert unpaired_error([0, 1], [1, 1], [1, 2], [1, 3]).tolist() == [0.0, 0.0]
    assert unpaired_error(0.5, 0.5, 1, 1) == pytest.approx(0.5**0.5)
    assert np.isnan(unpaired_error([np.nan, 0.5], [0.5, np.nan], [0, 4], [4, 0])).all()
    assert (
        is_cliff([0.25, 0.25, 0.75, np.nan], [0.0, 0.5, np.nan, 0.0], 0.125, 0.25).tolist()
        == [True] + [False] * 3
    )
    assert is_cliff(0.25, 0.5, 0.125, 0.2)
    assert is_cliff(0.5, 0.2, 0.1).dtype == np.bool_
