"""The two comparisons of a fork: paired by common noise, or independent samples.

Binary outcomes, paired: Tango's score interval was chosen by exact enumeration of all tables for 64
to 512 pairs, 2 to 60 % of them discordant, split evenly to wholly one-sided. Where six or more
discordant pairs are expected its 95 % interval covers between 0.940 and 0.967; below, up to 1
(never under 0.95). There Student's t falls to 0.69, Agresti-Min to 0.90, and Bonett-Price is near
1. ``packages/refork/tests/stats/test_coverage.py`` repeats the enumeration.

Graded outcomes in [0, 1], paired, by simulation (64 to 256 pairs, 3 to 100 % of them differing, by
uniform, beta(1, 5) or symmetric amounts; 2,000 repetitions): the adjusted t covers 0.92 to 0.98 where a
dozen pairs or more are expected to differ, and 0.97 to 1 below. Student's t falls to 0.69 there and the
BCa bootstrap with it. Outcomes with a long tail need more draws.
"""

from __future__ import annotations

from jaxtyping import Shaped

from refork.stats.means import adjusted_paired_t, adjusted_welch, span
from refork.stats.proportions import newcombe, tango
from refork.stats.results import Array, Difference, finite, is_binary, paired


def paired_difference(
    base: Shaped[Array, "pairs"], other: Shaped[Array, pairs], level: float = 0.95
) -> Difference:
    """Mean of ``other - base`` over pairs, with its interval and p.

    Outcomes that are all 0 or 1 get Tango's score interval (p: McNemar's score test), graded ones an
    adjusted t interval. Never without width, even where no pair differs.

    Raises: BadInput for fewer than two pairs, unequal lengths, NaN, a level outside (0, 1).
    """
    x, y = paired(base, other)
    if is_binary(x) and is_binary(y):
        return tango(int((y > x).sum()), int((y < x).sum()), x.size, level)
    return adjusted_paired_t(y - x, span(x, y), level)


def unpaired_difference(
    base: Shaped[Array, "base"], other: Shaped[Array, other], level: float = 0.95
) -> Difference:
    """Difference of the means of two independent samples, other minus base, with its interval and p.

    Outcomes that are all 0 or 1 get Newcombe's interval, graded ones an adjusted Welch interval.

    Raises: BadInput for empty arms, NaN, a level outside (0, 1).
    """
    x, y = finite(base, "base outcomes"), finite(other, "other outcomes")
    if is_binary(x) and is_binary(y):
        return newcombe((int(x.sum()), x.size), (int(y.sum()), y.size), level)
    return adjusted_welch(x, y, level)
