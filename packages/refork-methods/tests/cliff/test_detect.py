from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import xlogy
from scipy.stats import beta, binom, norm

from refork.errors import BadInput
from refork_methods.cliff.detect import _limits, retest_p, screen, survivors, undecided, z_of
from refork_methods.cliff.table import cliff_table
from support.curves import curve


@pytest.fixture(scope="module")
def p_values():
    """The re-test's p for all counts of 64 before and after."""
    return np.array([[retest_p((k, 64), (m, 64)) for m in range(65)] for k in range(65)])


def tables(before, after):
    counts = np.arange(65)
    return np.outer(binom.pmf(counts, 64, before), binom.pmf(counts, 64, after))


def test_p_values_are_numbers_everywhere(p_values):
    assert np.isfinite(p_values).all()
    assert ((p_values >= 0) & (p_values <= 1)).all()
    assert (np.diff(p_values, axis=1) >= -1e-9).all(), "less left after the token, smaller p"


@pytest.mark.parametrize("after", np.linspace(0, 0.9, 10))
def test_the_retest_keeps_its_level_at_the_edge_of_its_claim(after, p_values):
    # A true drop of exactly delta0: the exact rejection rate of a score test with 64 draws.
    assert tables(after + 0.1, after)[p_values < 0.05].sum() <= 0.058


@pytest.mark.parametrize("after", np.linspace(0, 1, 21))
def test_a_deterministic_cliff_cannot_survive_a_retest(after, p_values):
    # The largest drop that a token of probability 0.99 allows is 0.01 (1 - after). Exact rates, no sampling:
    # neither our re-test nor the published rule, applied to fresh draws, fires more than at its false rate.
    worst = tables(after + 0.01 * (1 - after), after)
    assert worst[p_values < 0.05].sum() <= 0.0036
    assert worst[cliff_table()].sum() <= 0.0045
    assert worst[p_values < 0.01].sum() <= 4e-4


def test_real_falls_survive(p_values):
    assert tables(0.5, 0.2)[p_values < 0.05].sum() > 0.78
    assert tables(0.9, 0.6)[p_values < 0.05].sum() > 0.86


def test_the_paper_screen_is_the_table():
    table = cliff_table()
    for k, m in [(12, 0), (32, 16), (32, 17), (64, 52), (64, 53)]:
        found = screen(curve([k, m, m], [64, 64, 64], [0.999] * 3, outcome=None), rule="paper")
        assert (0 in found) == table[k, m]


def test_the_paired_screen_ignores_tokens_that_cannot_fall():
    sure = curve([60, 0], [64, 64], [0.95, 0.5], pairs=([64, 64], [60, 0], [60, 0]))
    assert screen(sure).tolist() == []
    assert screen(sure, rule="paper").tolist() == [0]
    open_ = curve([60, 0], [64, 64], [0.5, 0.5], pairs=([64, 64], [60, 0], [60, 0]))
    assert screen(open_).tolist() == [0]


def test_few_draws_nominate_nothing():
    assert screen(curve([15, 0], [15, 15], [0.5, 0.5]), rule="paper").tolist() == []


def test_drawing_stops_where_nothing_can_fall():
    rows = curve(
        [32, 1, 0, 40], [64] * 4, [0.5, 0.5, 0.5, 0.97], pairs=([64] * 4, [31, 1, 0, 0], [31, 1, 0, 0])
    )
    assert undecided(rows).tolist() == [False, False, False, False]
    fresh = curve([8, 8], [16, 16], [0.3, 0.3], pairs=([16, 16], [2, 8], [8, 8]))
    assert undecided(fresh)[0]


def test_false_discoveries_are_controlled():
    # 200 families of 40 true nulls at the edge of the claim and 10 real falls; the mean false share is
    # at most fdr (BH); 0.13 leaves three standard errors of the mean for a seed that is unlucky.
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(200):
        before = rng.binomial(64, [0.5] * 40 + [0.8] * 10)
        after = rng.binomial(64, [0.4] * 40 + [0.1] * 10)
        found = survivors([(int(b), 64) for b in before], [(int(a), 64) for a in after], fdr=0.1)
        shares.append(found.survives[:40].sum() / max(found.survives.sum(), 1))
    assert np.mean(shares) <= 0.13


def test_nobody_to_judge_is_no_family():
    assert survivors([], []).survives.tolist() == []


def test_refusals():
    with pytest.raises(BadInput, match="unknown rule"):
        screen(curve([1], [64], [0.5]), rule="guess")
    for alpha in (0.0, 0.5, 0.7):
        with pytest.raises(BadInput, match=f"alpha is {alpha}"):
            z_of(alpha)
    for wins, draws in ((3, 2), (-1, 2), (0, 0)):
        with pytest.raises(BadInput, match=f"{wins} of {draws} is not a count"):
            retest_p((wins, draws), (1, 2))
        with pytest.raises(BadInput, match=f"{wins} of {draws} is not a count"):
            retest_p((1, 2), (wins, draws))


def test_the_quantile_of_a_one_sided_test():
    assert z_of(0.05) == pytest.approx(norm.isf(0.05))
    assert z_of(0.4) == pytest.approx(norm.isf(0.4))


@pytest.mark.parametrize("alpha", [None, 0.01, 0.3])
@pytest.mark.parametrize("delta0", [None, 0.25])
def test_screens_token_by_token(alpha, delta0):
    """Both rules as loops over every share of 20 draws and every probability."""
    wins = np.repeat(np.arange(21.0), 4)
    wins = np.random.default_rng(1).permutation(wins)
    chance = np.tile([0.1, 0.875, 0.95, np.nan], 21)
    moved = np.minimum(np.arange(84) % 13, wins)
    one = curve(wins, np.full(84, 20), chance, 0.0, (np.full(84, 20), moved, np.maximum(moved, 2)))
    options = {"alpha": alpha, "delta0": delta0}
    options = {name: value for name, value in options.items() if value is not None}
    z, size = norm.isf(alpha or 0.05), delta0 or 0.1
    drop = moved / 20
    error = np.sqrt(np.maximum(moved, 2) - moved**2 / 20) / 20
    wide = np.isnan(chance) | (chance <= 1 - size)
    assert screen(one, **options).tolist() == np.flatnonzero((drop > size + z * error) & wide).tolist()
    p, n = np.append(wins / 20, 0.0), np.append(np.full(84, 20), 1)
    error = np.sqrt(p[:-1] * (1 - p[:-1]) / n[:-1] + p[1:] * (1 - p[1:]) / n[1:])
    found = screen(one, rule="paper", **options).tolist()
    assert found == np.flatnonzero(-np.diff(p) > size + z * error).tolist()
    for kind in ("paired", "paper"):
        few = curve([15.0, 0.0], [15, 15], [0.1, 0.1], 0.0, ([15, 15], [15, 0], [15, 0]))
        enough = curve([16.0, 0.0], [16, 16], [0.1, 0.1], 0.0, ([16, 16], [16, 0], [16, 0]))
        assert (screen(few, rule=kind).tolist(), screen(enough, rule=kind).tolist()) == ([], [0])


@pytest.mark.parametrize("delta0", [None, 0.25])
@pytest.mark.parametrize("confidence", [None, 0.7])
@pytest.mark.parametrize("outcome", [None, 0.0, 1.0])
def test_what_more_draws_could_settle_token_by_token(delta0, confidence, outcome):
    """Over every share of 12 draws, several chances and drops; limits as Clopper and Pearson's."""
    rng = np.random.default_rng(0)
    size, draws = 300, 12
    wins = rng.integers(0, draws + 1, size).astype(float)
    pairs = rng.choice([0, 1, 2, 6, 12], size)
    moved = np.array([rng.integers(-n, n + 1) for n in pairs]).astype(float)
    square = np.array([rng.integers(abs(int(m)), n + 1) for m, n in zip(moved, pairs, strict=True)]).astype(
        float
    )
    chance = rng.choice([0.0, 0.3, 0.8, 0.95, np.nan], size)
    one = curve(wins, np.full(size, draws), chance, outcome, (pairs, moved, square))
    options = {"confidence": confidence, "delta0": delta0}
    options = {name: value for name, value in options.items() if value is not None}
    sure, least = confidence or 0.95, delta0 or 0.1
    wanted = []
    for t in range(size):
        upper = 1.0 if wins[t] == draws else beta.ppf(sure, wins[t] + 1, draws - wins[t])
        if t + 1 == size:
            lower = outcome or 0.0
        else:
            lower = 0.0 if wins[t + 1] == 0 else beta.ppf(1 - sure, wins[t + 1], draws - wins[t + 1] + 1)
        pi = 0.0 if np.isnan(chance[t]) else chance[t]
        possible = min(upper, (1 - pi) * (1 - lower)) > least
        n = pairs[t]
        if n:
            error = np.sqrt(max(square[t] - moved[t] ** 2 / n, 0.0)) / n if n > 1 else np.inf
            error = max(error, np.sqrt((1 - pi) / (2 * n)))
            clear = moved[t] / n + 2 * error < least or moved[t] / n - 3 * error > least
        else:
            clear = False
        wanted.append(possible and not clear)
    assert undecided(one, **options).tolist() == wanted
    assert 0 < sum(wanted) < size


@pytest.mark.parametrize("delta0", [0.1, 0.3])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((9, 10), (3, 12)),
        ((5, 8), (5, 8)),
        ((2, 9), (6, 7)),
        ((30, 40), (9, 20)),
        ((7, 7), (0, 9)),
        ((7, 7), (9, 9)),
        ((0, 7), (0, 9)),
        ((1, 1), (0, 1)),
        ((1, 1), (1, 2)),
    ],
)
def test_the_retest_maximises_the_likelihood_under_its_claim(before, after, delta0):
    """Farrington and Manning: the variance at the likeliest rates that differ by delta0, found by search."""
    (k, n), (m, size) = before, after

    def unlikely(q):
        p = q + delta0
        return -(xlogy(k, p) + xlogy(n - k, 1 - p) + xlogy(m, q) + xlogy(size - m, 1 - q))

    q = minimize_scalar(unlikely, bounds=(0.0, 1 - delta0), method="bounded", options={"xatol": 1e-12}).x
    p = q + delta0
    z = (k / n - m / size - delta0) / np.sqrt(p * (1 - p) / n + q * (1 - q) / size)
    assert retest_p(before, after, delta0) == pytest.approx(norm.sf(z), rel=1e-5)
    if delta0 == 0.1:
        assert retest_p(before, after) == retest_p(before, after, 0.1)


@pytest.mark.parametrize("confidence", [0.95, 0.7])
@pytest.mark.parametrize(("outcome", "end"), [(None, 0.0), (0.0, 0.0), (0.25, 0.25), (1.0, 1.0)])
def test_limits_are_those_of_clopper_and_pearson(confidence, outcome, end):
    wins, draws = np.array([0.0, 1.0, 2.5, 6.0, 7.0]), 7
    upper, lower = _limits(curve(wins, [draws] * 5, [0.5] * 5, outcome), confidence)
    assert upper == pytest.approx([*beta.ppf(confidence, wins[:4] + 1, draws - wins[:4]), 1.0])
    assert lower == pytest.approx([*beta.ppf(1 - confidence, wins[1:], draws - wins[1:] + 1), end])
    none = _limits(curve([7.0, 0.0], [7, 7], [0.5] * 2, outcome), confidence)
    assert none[0][0] == 1.0
    assert none[1][0] < 1e-300


def test_what_is_just_not_clear_or_just_not_possible():
    """Eight pairs of a token of chance 0 leave an error of a quarter at least."""
    for drop, delta0 in ((0.0, 0.5), (8.0, 0.25)):
        one = curve([8.0, 0.0], [8, 8], [0.0, 0.0], 0.0, ([8, 8], [drop, 0.0], [drop, 0.0]))
        assert undecided(one, delta0=delta0).tolist()[0]
        assert not undecided(one, delta0=delta0 + (1e-9 if drop == 0.0 else -1e-9)).tolist()[0]
    one = curve([8.0, 0.0], [8, 8], [0.5, 0.5], 0.0, ([0, 0], [0.0, 0.0], [0.0, 0.0]))
    assert undecided(one, delta0=0.5).tolist() == [False, False]
    assert undecided(one, delta0=0.5 - 1e-9).tolist()[0]


def test_a_retest_at_the_edges():
    for alike in ((5, 5), (0, 5)):
        assert retest_p(alike, alike, 0.0) == 0.5
    assert retest_p((6, 8), (5, 8), 0.125) == 0.5, "a drop of delta0 itself"
    assert retest_p((64, 64), (0, 64), 0.999) == pytest.approx(retest_p((640, 640), (0, 640), 0.999), abs=0.5)
    assert retest_p((0, 64), (64, 64)) == 1.0


def test_verdicts_are_those_of_all_nominees_together():
    before, after = [(60, 64), (40, 64), (30, 64)], [(5, 64), (20, 64), (28, 64)]
    found = survivors(before, after)
    p = [retest_p(b, a) for b, a in zip(before, after, strict=True)]
    assert found.p.tolist() == p
    assert found.q == pytest.approx([p[0] * 3, p[1] * 3 / 2, p[2]])
    assert found.fdr == 0.1
    assert found.survives.tolist() == [True, True, False]
    strict = survivors(before, after, delta0=0.5, fdr=0.001)
    assert strict.p.tolist() == [retest_p(b, a, 0.5) for b, a in zip(before, after, strict=True)]
    assert (strict.fdr, strict.survives.tolist()) == (0.001, [True, False, False])
    assert survivors([], []).p.dtype == np.float64
    near = survivors([(32, 64)], [(18, 64)])
    assert 0.05 < near.p[0] < 0.1
    assert near.survives.tolist() == [True]
    assert survivors([(32, 64)], [(18, 64)], fdr=0.05).survives.tolist() == [False]
