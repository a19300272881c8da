"""Wilcoxon's signed-rank test against its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from ramify.core.errors import BadInput
from ramify.core.stats import wilcoxon


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
    assert wilcoxon(base, base).p == 1.0
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
