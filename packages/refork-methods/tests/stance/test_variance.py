from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from refork.errors import BadInput
from refork.stats.results import Interval
from refork_methods.stance.variance import (
    Group,
    VarianceAt,
    coin,
    estimated_parts,
    plug_in_values,
    reading,
    total_variance,
    unbiased_values,
    variance_at,
)


@pytest.mark.parametrize("n", [2, 8, 32])
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.97])
def test_the_plug_in_value_is_too_small_by_one_over_n_and_the_other_is_not(n, p):
    k = np.arange(n + 1)
    distribution = binom.pmf(k, n, p)
    sizes = np.full(n + 1, n)
    assert distribution @ plug_in_values(k, sizes) == pytest.approx(4 * p * (1 - p) * (n - 1) / n, abs=1e-12)
    assert distribution @ unbiased_values(k, sizes) == pytest.approx(4 * p * (1 - p), abs=1e-12)


def test_a_coin_reads_one_and_its_plug_in_seven_eighths():
    k = np.arange(9)
    distribution = binom.pmf(k, 8, 0.5)
    assert distribution @ unbiased_values(k, np.full(9, 8)) == pytest.approx(1.0, abs=1e-12)
    assert distribution @ plug_in_values(k, np.full(9, 8)) == pytest.approx(0.875, abs=1e-12)
    assert coin(8) == 0.875
    assert coin(32) == 31 / 32


def test_one_answer_is_no_variance():
    assert np.isnan(unbiased_values(np.array([0, 1]), np.array([1, 2]))).tolist() == [True, False]
    assert np.isnan(plug_in_values(np.array([0, 1]), np.array([1, 2]))).tolist() == [True, False]
    with pytest.raises(BadInput, match="one answer"):
        coin(1)
    with pytest.raises(BadInput, match="outside"):
        unbiased_values(np.array([3]), np.array([2]))
    with pytest.raises(BadInput, match="matched"):
        unbiased_values(np.array([3]), np.array([2, 2]))


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=12))
def test_the_law_of_total_variance(prefixes):
    q, w = np.array(prefixes).T
    parts = total_variance(q, w / w.sum())
    assert parts.total == pytest.approx(parts.within + parts.between, abs=1e-12)


def test_the_decomposition_on_an_enumerated_tree():
    # Two binary tokens before the answer; every leaf's chance given. Cut after 0, 1 and 2 tokens.
    first, second = {0: 0.3, 1: 0.7}, {0: {0: 0.9, 1: 0.1}, 1: {0: 0.25, 1: 0.75}}
    refusal = {(0, 0): 0.05, (0, 1): 0.6, (1, 0): 0.5, (1, 1): 1.0}
    leaves = list(product((0, 1), repeat=2))
    weight = np.array([first[a] * second[a][b] for a, b in leaves])
    chance = np.array([refusal[leaf] for leaf in leaves])
    q = float(weight @ chance)
    early = np.array([sum(second[a][b] * refusal[a, b] for b in (0, 1)) for a in (0, 1)])
    late = total_variance(chance, weight)
    after_one = total_variance(early, np.array([first[0], first[1]]))
    assert late.total == pytest.approx(4 * q * (1 - q), abs=1e-12)
    assert after_one.total == pytest.approx(late.total, abs=1e-12)
    assert late.total == pytest.approx(late.within + late.between, abs=1e-12)
    assert after_one.within >= late.within, "going on settles more, never less, on average"
    with pytest.raises(BadInput, match="weights must sum"):
        total_variance(chance, weight * 2)
    with pytest.raises(BadInput, match="outside"):
        total_variance(chance * 3)


def test_the_estimated_decomposition_is_unbiased_by_enumeration():
    # Three prefixes drawn from two (q 0.2 with 0.25, 0.9 with 0.75), two answers each: all 6^3 outcomes.
    distribution = [(w, q) for w, q in ((0.25, 0.2), (0.75, 0.9))]
    truth = total_variance(np.array([0.2, 0.9]), np.array([0.25, 0.75]))
    expected = np.zeros(3)
    one = [(w * binom.pmf(k, 2, q), k) for w, q in distribution for k in range(3)]
    for outcome in product(one, repeat=3):
        chance = np.prod([c for c, _ in outcome])
        parts = estimated_parts(np.array([k for _, k in outcome]), np.full(3, 2))
        expected += chance * np.array([parts.total, parts.within, parts.between])
    assert expected == pytest.approx([truth.total, truth.within, truth.between], abs=1e-12)
    with pytest.raises(BadInput, match="two prefixes"):
        estimated_parts(np.array([1]), np.array([2]))


def groups(rng, prompts, prefixes, spread, pool="harmful"):
    """Prompts with their own chance, the same for all their prefixes, eight answers each."""
    q = rng.beta(spread, spread, prompts)
    return [
        Group(pool, f"{pool}{i}", f"{i}/{j}", int(rng.binomial(8, q[i])), 8)
        for i in range(prompts)
        for j in range(prefixes)
    ]


def test_pools_count_alike_and_small_groups_are_left_out():
    rows = [
        Group("harmful", "a", "1", 4, 8),
        Group("benign", "b", "1", 0, 8),
        Group("benign", "c", "1", 0, 8),
    ]
    rows.append(Group("benign", "d", "1", 1, 1))
    found = variance_at(rows)
    assert found.pools == {"benign": 0.0, "harmful": pytest.approx(8 / 7)}
    assert found.value.estimate == pytest.approx(4 / 7)
    assert found.plug_in == pytest.approx(0.5)
    assert (found.groups, found.left_out, found.answers, found.coin) == (3, 1, 24, 0.875)
    assert variance_at(rows[3:]) is None
    assert variance_at(rows, seed=1) == variance_at(rows, seed=1)


def test_the_nested_interval_covers_and_the_pair_interval_does_not():
    # Truth 4 E[q(1-q)] = 2a / (2a + 1). 200 seeds: nested covers 95 %, standard error 1.5 points; below 0.90
    # once in 1,000 suites. Pairs of one prompt share its chance: taking them as independent covers far less.
    truth, hits = 2 * 0.5 / (2 * 0.5 + 1), {"nested": 0, "pair": 0}
    for seed in range(200):
        rows = groups(np.random.default_rng(seed), 40, 8, 0.5)
        for unit in hits:
            found = variance_at(rows, seed=seed, resamples=200, unit=unit)
            hits[unit] += truth in found.value
    assert hits["nested"] >= 180
    assert hits["pair"] <= 150


def test_refusals():
    rows = [Group("harmful", "a", "1", 4, 8)]
    with pytest.raises(BadInput, match="unit"):
        variance_at(rows, unit="prompt")
    with pytest.raises(BadInput, match="resamples"):
        variance_at(rows, resamples=10)


def at(value, low, high):
    return VarianceAt(Interval(value, low, high, 0.95, "x"), value, {}, 10, 0, 80, 0.875)


def test_what_two_modes_say_that_one_cannot():
    low, high = at(0.0, 0.0, 0.05), at(0.9, 0.8, 1.0)
    assert "not decided" in reading(low, high)
    assert reading(low, low).startswith("decided: ")
    assert reading(high, high) == "open in both modes"
    assert "disturbs" in reading(high, low)
    assert "unclear" in reading(at(0.2, 0.1, 0.3), low)
    assert "the free mode tells which" in reading(low, None)
    assert reading(None, low) == "one mode only"
