"""Coverage of the fork comparison's intervals."""

import numpy as np
import pytest
from scipy.stats import binom

from refork import stats
from refork.stats import proportions
from refork.stats.proportions import _tango_z

Z = 1.959963984540054


def tango_coverage(pairs, gain, loss):
    """Exact: the total probability of the tables whose interval holds the true difference."""
    total, delta = 0.0, gain - loss
    for gains in range(pairs + 1):
        weight = binom.pmf(gains, pairs, gain)
        if weight < 1e-9:
            continue
        losses = np.arange(pairs - gains + 1)
        weights = weight * binom.pmf(losses, pairs - gains, loss / (1 - gain))
        for k in losses[weights > 1e-12]:
            if abs(_tango_z(gains, int(k), pairs, delta)) <= Z:
                total += weights[k]
    return total


@pytest.mark.parametrize("pairs", [64, 128, 256, 512])
@pytest.mark.parametrize("discordant", [0.02, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("share", [0.5, 0.75, 1.0])
def test_paired_binary_coverage_is_as_documented(pairs, discordant, share):
    coverage = tango_coverage(pairs, discordant * share, discordant * (1 - share))
    assert coverage >= 0.93
    if pairs * discordant >= 6:
        assert coverage <= 0.97


@pytest.mark.parametrize(("gains", "losses", "pairs"), [(5, 0, 64), (9, 3, 128), (40, 60, 200)])
def test_interval_ends_where_the_score_is_z(gains, losses, pairs):
    interval = stats.tango(gains, losses, pairs).interval
    assert _tango_z(gains, losses, pairs, interval.low) == pytest.approx(Z, abs=1e-6)
    assert _tango_z(gains, losses, pairs, interval.high) == pytest.approx(-Z, abs=1e-6)


def outcomes(rng, kind, pairs):
    base = rng.random(pairs)
    if kind == "null":
        return base, np.where(rng.random(pairs) < 0.3, rng.random(pairs), base), 0.0
    if kind == "small":
        return base * 0.8, base * 0.8 + 0.2 * (rng.random(pairs) < 0.3), 0.06
    return base * 0.5, base * 0.5 + rng.random(pairs) * 0.5, 0.25


# 2,000 repetitions: a true coverage of 0.95 gives a figure outside [0.93, 0.975] once in 20,000 runs;
# seeds are fixed, so each test always has one outcome.
@pytest.mark.parametrize("kind", ["null", "small", "large"])
@pytest.mark.parametrize("pairs", [64, 256])
def test_graded_coverage(kind, pairs):
    rng = np.random.default_rng(5)
    hits = {"paired": 0, "unpaired": 0}
    for _ in range(2000):
        base, other, truth = outcomes(rng, kind, pairs)
        hits["paired"] += truth in stats.paired_difference(base, other).interval
        fresh = outcomes(rng, kind, pairs)[1]
        hits["unpaired"] += truth in stats.unpaired_difference(base, fresh).interval
    for count in hits.values():
        assert 0.93 <= count / 2000 <= 0.975


# As above; independent binary arms, exactly enumerable but cheaper to draw.
@pytest.mark.parametrize(("p", "q"), [(0.5, 0.5), (0.1, 0.2), (0.9, 0.6)])
def test_unpaired_binary_coverage(p, q, monkeypatch):
    # Beside its interval stands a p-value, whose search takes most of the time and has tests of its own.
    monkeypatch.setattr(proportions, "_touching", lambda *_: 0.0)
    n = 64
    first, second = binom.pmf(np.arange(n + 1), n, p), binom.pmf(np.arange(n + 1), n, q)
    covered = 0.0
    for i in np.flatnonzero(first > 1e-5):
        for j in np.flatnonzero(second > 1e-5):
            if (q - p) in stats.newcombe((int(i), n), (int(j), n)).interval:
                covered += first[i] * second[j]
    assert 0.93 <= covered <= 0.97
