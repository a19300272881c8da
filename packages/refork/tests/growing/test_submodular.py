from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork.growing.submodular import greedy_submodular


def coverage(rng, items=6, ground=12):
    """Items that cover weighted elements, with overlaps; and the best value of any `budget` of them."""
    weights = rng.random(ground)
    covers = [frozenset(np.flatnonzero(rng.random(ground) < 0.35).tolist()) for _ in range(items)]

    def value(chosen):
        return float(sum(weights[e] for e in frozenset().union(*(covers[i] for i in chosen))))

    return value


def best(value, size, budget):
    return max(value(c) for n in range(budget + 1) for c in combinations(range(size), n))


def test_greedy_keeps_its_guarantee_on_overlapping_coverage():
    worst = 1.0
    for seed in range(200):
        value = coverage(np.random.default_rng(seed))
        found = greedy_submodular(value, 6, 4)
        assert found.value == pytest.approx(value(found.chosen))
        worst = min(worst, found.value / best(value, 6, 4))
    assert worst >= 1 - 1 / np.e


@given(st.integers(0, 10_000), st.integers(1, 8))
def test_lazy_and_plain_choose_the_same(seed, budget):
    value = coverage(np.random.default_rng(seed), items=8)
    lazy, plain = (greedy_submodular(value, 8, budget, lazy=flag) for flag in (True, False))
    assert lazy.gains == pytest.approx(plain.gains)
    assert lazy.evaluations <= plain.evaluations


@given(st.integers(0, 10_000))
def test_costs_bind_and_keep_half_the_guarantee(seed):
    rng = np.random.default_rng(seed)
    value, costs = coverage(rng), rng.uniform(0.5, 3, 6)
    found = greedy_submodular(value, 6, 4.0, costs)
    assert costs[list(found.chosen)].sum() <= 4.0 + 1e-9
    optimum = max(
        value(c) for n in range(7) for c in combinations(range(6), n) if costs[list(c)].sum() <= 4.0
    )
    assert found.value >= 0.5 * (1 - 1 / np.e) * optimum - 1e-12


def test_one_dear_item_beats_many_cheap_ones():
    def value(chosen):
        return max([100.0 if 1 in chosen else 0.0, *(2.0 for i in chosen if i == 0)])

    found = greedy_submodular(value, 2, 100.0, [1.0, 100.0])
    assert (found.chosen, found.single, found.value) == ((1,), True, 100.0)


def test_bad_budgets():
    with pytest.raises(BadInput, match="affords none"):
        greedy_submodular(len, 3, 0.5)
    with pytest.raises(BadInput, match="cost above 0"):
        greedy_submodular(len, 3, 2, [1, 0, 1])
