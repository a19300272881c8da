"""Wilcoxon's signed-rank test against its definition."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from refork.errors import BadInput
from refork.stats import wilcoxon


def test_exact_p_by_enumeration() -> None:
    """All sign patterns of distinct ranks are equally likely."""
    change = np.array([1.5, -0.5, 3.0, 2.0, -1.0, 4.0])
    ranks = np.abs(change).argsort().argsort() + 1
    sums = [
        sum(r for r, keep in zip(ranks, signs, strict=True) if keep) for signs in product((0, 1), repeat=6)
    ]
    seen = ranks[change > 0].sum()
    tail = min(np.mean(np.array(sums) >= seen), np.mean(np.array(sums) <= seen))
    got = wilcoxon(np.zeros(6), change)
    assert got.statistic == seen
    assert got.p == pytest.approx(min(1.0, 2 * tail))


def test_pairs_without_a_difference_say_nothing() -> None:
    base = np.array([0.2, 0.5, 0.9])
    none = wilcoxon(base, base)
    assert (none.p, none.statistic, none.method) == (1.0, 0.0, "Wilcoxon signed-rank")
    some = wilcoxon(np.zeros(5), np.array([1, 2, 3, 0, 0]))
    fewer = wilcoxon(np.zeros(3), np.array([1, 2, 3]))
    assert (some.p, some.statistic) == (fewer.p, fewer.statistic)
    with pytest.raises(BadInput):
        wilcoxon(np.zeros(1), np.ones(1))


def test_one_sided_p_by_enumeration() -> None:
    change = np.array([1.5, -0.5, 3.0, 2.0, -1.0, 4.0])
    ranks = np.abs(change).argsort().argsort() + 1
    sums = np.array(
        [sum(r for r, keep in zip(ranks, signs, strict=True) if keep) for signs in product((0, 1), repeat=6)]
    )
    got = wilcoxon(np.zeros(6), change, alternative="greater")
    assert got.p == pytest.approx(np.mean(sums >= ranks[change > 0].sum()))
    other = wilcoxon(change, np.zeros(6), alternative="greater")
    assert other.p == pytest.approx(np.mean(sums <= ranks[change > 0].sum()))


def approximated(change: np.ndarray, ranks: list[float], ties: list[int]) -> float:
    """Two-sided p by the normal approximation, its variance lessened by groups of equal sizes."""
    n = len(ranks)
    seen = sum(rank for rank, d in zip(ranks, change, strict=True) if d > 0)
    variance = n * (n + 1) * (2 * n + 1) / 24 - sum(t**3 - t for t in ties) / 48
    return float(2 * norm.sf(abs(seen - n * (n + 1) / 4) / math.sqrt(variance)))


def test_ties_take_the_normal_approximation_with_its_correction() -> None:
    change = np.array([0.5, 0.5, -0.5, 1.0, 2.0, 2.0, 3.0])
    got = wilcoxon(np.zeros(7), change)
    ranks = [2.0, 2.0, 2.0, 4.0, 5.5, 5.5, 7.0]
    assert got.statistic == pytest.approx(26.0)
    assert got.p == pytest.approx(approximated(change, ranks, [3, 2]))
    assert got.method == "Wilcoxon signed-rank"


@pytest.mark.parametrize("pairs", [50, 51])
def test_fifty_pairs_are_exact_and_more_are_approximated(pairs: int) -> None:
    sizes = np.arange(1, pairs + 1) / 4
    change = np.where(np.arange(pairs) % 3 == 0, -sizes, sizes)
    got = wilcoxon(np.zeros(pairs), change)
    ranks = list(range(1, pairs + 1))
    assert got.statistic == sum(rank for rank, d in zip(ranks, change, strict=True) if d > 0)
    ways = np.zeros(pairs * (pairs + 1) // 2 + 1)  # sign patterns by their positive rank sum
    ways[0] = 1.0
    for rank in ranks:
        ways[rank:] = ways[rank:] + ways[: len(ways) - rank]
    exact = 2 * min(ways[int(got.statistic) :].sum(), ways[: int(got.statistic) + 1].sum()) / 2.0**pairs
    close = approximated(change, [float(rank) for rank in ranks], [])
    assert exact != pytest.approx(close, rel=1e-3)
    assert got.p == pytest.approx(exact if pairs == 50 else close, rel=1e-9)
