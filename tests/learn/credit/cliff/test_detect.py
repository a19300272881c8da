from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from ramify.core.errors import BadInput
from ramify.learn.credit.cliff.curve import Curve, reuse_factor
from ramify.learn.credit.cliff.detect import retest_p, screen, survivors, undecided, z_of
from ramify.learn.credit.cliff.table import cliff_table

P = np.array([[retest_p((k, 64), (m, 64)) for m in range(65)] for k in range(65)])


def tables(before, after):
    counts = np.arange(65)
    return np.outer(binom.pmf(counts, 64, before), binom.pmf(counts, 64, after))


def curve(wins, draws, chance, outcome=0.0, pairs=None):
    wins, draws = np.array(wins, dtype=float), np.array(draws)
    size = len(wins)
    n = np.full(size, 64) if pairs is None else np.array(pairs[0])
    total = np.zeros(size) if pairs is None else np.array(pairs[1], dtype=float)
    square = np.zeros(size) if pairs is None else np.array(pairs[2], dtype=float)
    return Curve(wins, draws, outcome, np.array(chance, dtype=float), n, total, square, 64, 64 * size, 100)


def test_p_values_are_numbers_everywhere():
    assert np.isfinite(P).all()
    assert ((P >= 0) & (P <= 1)).all()
    assert (np.diff(P, axis=1) >= -1e-9).all(), "less left after the token, smaller p"


@pytest.mark.parametrize("after", np.linspace(0, 0.9, 10))
def test_the_retest_keeps_its_level_at_the_edge_of_its_claim(after):
    # A true drop of exactly delta0: the exact rejection rate of a score test with 64 draws.
    assert tables(after + 0.1, after)[P < 0.05].sum() <= 0.058


@pytest.mark.parametrize("after", np.linspace(0, 1, 21))
def test_a_deterministic_cliff_cannot_survive_a_retest(after):
    # The largest drop that a token of probability 0.99 allows is 0.01 (1 - after). Exact rates, no sampling:
    # neither our re-test nor the published rule, applied to fresh draws, fires more than at its false rate.
    worst = tables(after + 0.01 * (1 - after), after)
    assert worst[P < 0.05].sum() <= 0.0036
    assert worst[cliff_table()].sum() <= 0.0045
    assert worst[P < 0.01].sum() <= 4e-4


def test_real_falls_survive():
    assert tables(0.5, 0.2)[P < 0.05].sum() > 0.78
    assert tables(0.9, 0.6)[P < 0.05].sum() > 0.86


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


def test_the_paired_error_counts_discordant_pairs():
    one = curve([32, 20], [64, 64], [0.5, 0.5], pairs=([64, 64], [12, 20], [18, 20]))
    b, c, n = 15, 3, 64
    assert one.paired_error()[0] == pytest.approx(np.sqrt(b + c - (b - c) ** 2 / n) / n)
    assert one.paired_drop()[0] == pytest.approx(12 / 64)


def test_few_draws_nominate_nothing():
    assert screen(curve([15, 0], [15, 15], [0.5, 0.5]), rule="paper").tolist() == []


def test_both_ends_are_valued():
    found = curve([32, 32], [64, 64], [0.1, 0.1], outcome=0.0)
    assert found.value.tolist() == [0.5, 0.5, 0.0]
    assert found.drop.sum() == pytest.approx(0.5)
    assert 1 in screen(found, rule="paper"), "the last token can be a cliff"


def test_ungraded_ends_are_not_wrong():
    found = curve([32, 32], [64, 64], [0.1, 0.1], outcome=None)
    assert np.isnan(found.value[-1])
    assert screen(found, rule="paper").tolist() == []


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


def test_curves_add_up():
    one = curve([32, 20], [64, 64], [0.5, 0.5])
    both = one + one
    assert both.draws.tolist() == [128, 128]
    assert np.array_equal(both.value, one.value)
    assert reuse_factor([one, one]) == pytest.approx(2.0)
    assert Curve.from_json(one.to_json()).to_json() == one.to_json()
    with pytest.raises(BadInput, match="different traces"):
        one + curve([1], [2], [0.5])


def test_refusals():
    with pytest.raises(BadInput, match="unknown rule"):
        screen(curve([1], [64], [0.5]), rule="guess")
    with pytest.raises(BadInput, match="alpha"):
        z_of(0.7)
    with pytest.raises(BadInput, match="not a count"):
        retest_p((3, 2), (1, 2))
    with pytest.raises(BadInput, match="no continuation"):
        reuse_factor([])
