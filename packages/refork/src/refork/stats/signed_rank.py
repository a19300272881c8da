"""A paired test for graded outcomes that asks nothing of their distribution but symmetry."""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Shaped

from refork.stats.results import Array, Test, paired


def wilcoxon(
    base: Shaped[Array, "pairs"],
    other: Shaped[Array, pairs],
    alternative: Literal["two-sided", "greater"] = "two-sided",
) -> Test:
    """Signed-rank test that ``other - base`` is symmetric around 0; the statistic is the positive rank sum.

    ``greater`` tests against ``other`` being the larger one. Pairs without a difference are left out; p is 1
    where none has one. Exact up to 50 pairs without ties, else the normal approximation with its tie
    correction.

    Raises: BadInput for fewer than two pairs, unequal lengths or NaN.
    Source: Wilcoxon, Individual comparisons by ranking methods (1945).
    """
    from scipy import stats

    x, y = paired(base, other)
    differences = (y - x)[y != x]
    if not differences.size:
        return Test(0.0, 1.0, "Wilcoxon signed-rank")
    # The exact null distribution is that of distinct ranks.
    tied = np.unique(np.abs(differences)).size < differences.size
    method = "approx" if tied or differences.size > 50 else "exact"
    found = stats.wilcoxon(differences, method=method, alternative=alternative)
    ranks = stats.rankdata(np.abs(differences))
    return Test(float(ranks[differences > 0].sum()), float(found.pvalue), "Wilcoxon signed-rank")
