from __future__ import annotations

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import norm

from refork.errors import BadInput
from refork_methods.probe.ceiling import auroc_ceiling, estimate_ceiling

# AUROC* where the chance of refusal is Beta(a, a).
BETA = {0.1: 0.989, 0.2: 0.968, 0.5: 0.905, 1.0: 5 / 6, 2.0: 0.757}


def beta_ceiling(a, b=None):
    """AUROC* where q ~ Beta(a, b), b = a unless given, by its closed form."""
    b = a if b is None else b
    distance = 4 / (a + b) * np.exp(betaln(a + b, a + b) - betaln(a, a) - betaln(b, b))
    return 0.5 + distance * (a + b) ** 2 / (4 * a * b)


@pytest.mark.parametrize(("a", "limit"), BETA.items())
def test_beta_laws_have_the_ceiling_of_their_closed_form(a, limit):
    from scipy.stats import beta

    assert beta_ceiling(a) == pytest.approx(limit, abs=5e-4)
    for b in (a, 1.5):
        q = beta(a, b).ppf((np.arange(20_000) + 0.5) / 20_000)
        assert auroc_ceiling(q) == pytest.approx(beta_ceiling(a, b), abs=1e-4)


def test_the_formula_is_the_pairwise_definition():
    rng = np.random.default_rng(3)
    q, w = np.round(rng.random(40), 1), rng.random(40)
    above = (q[:, None] > q) + 0.5 * (q[:, None] == q)
    pairs = (w * q)[:, None] * (w * (1 - q))
    assert auroc_ceiling(q, w) == pytest.approx(float((pairs * above).sum() / pairs.sum()), abs=1e-12)


def test_sure_outcomes_have_no_ceiling_and_equal_chances_no_information():
    assert auroc_ceiling(np.array([0.0, 1.0, 1.0])) == 1.0
    assert auroc_ceiling(np.full(9, 0.3)) == pytest.approx(0.5)


@pytest.mark.parametrize("a", BETA)
@pytest.mark.parametrize("rollouts", [8, 20, 32])
def test_the_estimate_has_no_bias_to_speak_of(a, rollouts):
    """Mean error of 20 estimates within 2 of their standard deviations over sqrt(20) plus 0.002."""
    rng = np.random.default_rng([round(100 * a), rollouts])
    prompts = 400
    found = [
        estimate_ceiling(
            rng.binomial(rollouts, rng.beta(a, a, prompts)), np.full(prompts, rollouts), resamples=60, seed=i
        )
        for i in range(20)
    ]
    errors = np.array([one.estimate for one in found]) - beta_ceiling(a)
    se = float(np.mean([one.se for one in found]))
    assert abs(errors.mean()) < 2 * errors.std(ddof=1) / np.sqrt(20) + 0.002
    assert abs(errors.mean()) < se
    # The standard error is the estimate's own scatter.
    assert 0.6 < errors.std(ddof=1) / se < 1.6


@pytest.mark.parametrize(("chance", "rollouts"), [(0.5, 8), (0.5, 32), (0.1, 8), (0.9, 32)])
def test_equal_chances_have_a_ceiling_of_one_half(chance, rollouts):
    """Half of the estimates should be exactly 0.5: 24 data sets fall outside 4 to 20 once in 3,000 times.

    And half a unit of error apart from it on average: the mean excess is that of half a normal's spread.
    """
    rng = np.random.default_rng([round(100 * chance), rollouts])
    found = [
        estimate_ceiling(rng.binomial(rollouts, chance, 400), np.full(400, rollouts), resamples=60, seed=i)
        for i in range(24)
    ]
    values = np.array([one.estimate for one in found])
    assert 4 <= np.sum(values < 0.5005) <= 20
    assert values.mean() - 0.5 < 1.5 * np.mean([one.se for one in found])
    assert np.median([one.plug_in for one in found]) > 0.5


def test_the_bracket_holds_the_truth_where_the_mixture_is_hard():
    """Two equal groups, at .1 and .9: the estimate is too high, and its bracket says how far it may be."""
    rng = np.random.default_rng(0)
    q = rng.permutation(np.repeat([0.1, 0.9], 1000))
    one = estimate_ceiling(rng.binomial(20, q), np.full(2000, 20))
    assert one.repeat < 0.9 + 2 * one.se
    assert 0.9 < one.estimate < one.plug_in


def test_repeat_is_the_auroc_of_the_other_rollouts():
    labels = np.array([[1, 1, 0], [0, 0, 0], [1, 0, 0], [1, 1, 1]])
    wins = total = 0.0
    for i in range(4):
        for j in range(4):
            for a in range(3):
                for b in range(3):
                    if i != j and labels[i, a] == 1 and labels[j, b] == 0:
                        up, down = labels[i].sum() - 1, labels[j].sum()
                        wins += (up > down) + 0.5 * (up == down)
                        total += 1
    found = estimate_ceiling(labels.sum(axis=1), np.full(4, 3), resamples=20)
    assert found.repeat == pytest.approx(wins / total)


def test_units_count_by_their_rollouts_and_may_have_different_numbers():
    rng = np.random.default_rng(1)
    q = np.repeat(rng.beta(0.5, 0.5, 500), 2)
    n = np.tile([12, 3], 500)
    found = estimate_ceiling(rng.binomial(n, q), n, prompts=np.repeat(np.arange(500), 2))
    assert abs(found.estimate - beta_ceiling(0.5)) < 3 * found.se
    assert found.rollouts == (3, 12)


def test_same_seed_same_result():
    r, n = np.array([0, 3, 8, 5, 8, 1]), np.full(6, 8)
    assert estimate_ceiling(r, n, seed=4) == estimate_ceiling(r, n, seed=4)


def test_ceiling_and_variance_are_one_fact_seen_twice():
    """V = 4 q (1 - q) is 2a / (2a + 1) on average, and falls as AUROC* rises."""
    for a in BETA:
        q = np.random.default_rng(2).beta(a, a, 200_000)
        assert np.mean(4 * q * (1 - q)) == pytest.approx(2 * a / (2 * a + 1), abs=4 * norm.pdf(0) / 400)


@pytest.mark.parametrize(
    ("refusals", "rollouts", "told"),
    [
        ([1, 0, 1], [1, 1, 1], "one rollout each"),
        ([0, 0], [4, 4], "one outcome"),
        ([4, 4], [4, 4], "one outcome"),
        ([5], [4], "not a count"),
        ([-1], [4], "not a count"),
        ([1.5], [4], "whole"),
        ([], [], "0 counts"),
        ([1, 2], [4], "for 1"),
    ],
)
def test_counts_that_carry_no_ceiling(refusals, rollouts, told):
    with pytest.raises(BadInput, match=told):
        estimate_ceiling(np.array(refusals), np.array(rollouts))


@pytest.mark.parametrize(
    ("q", "w"), [([1.2], None), ([0.0, 0.0], None), ([], None), ([0.5], [-1.0]), ([0.5, 0.2], [1.0])]
)
def test_chances_that_are_none(q, w):
    with pytest.raises(BadInput):
        auroc_ceiling(np.array(q), None if w is None else np.array(w))
