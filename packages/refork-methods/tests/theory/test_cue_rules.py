from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput
from refork_methods.theory.cues.designs import every_binary_pair, random_design, steep_and_flat
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RANKED, RULES, STRESS
from refork_methods.theory.metrics import mse_pb
from refork_methods.theory.simulate import predicted_rates

VALIDITIES = (0.9, 0.8, 0.7, 0.6)
PAIRS = every_binary_pair(VALIDITIES)


def gap(rule, experiment, **parameters):
    """Score differences of one person."""
    full = {name: np.asarray([value], dtype=float) for name, value in {"beta": 1.0, **parameters}.items()}
    return np.asarray(rule.gap(experiment, full))[0]


def chance(rule, experiment, **parameters):
    full = {name: np.asarray([value], dtype=float) for name, value in parameters.items()}
    return rule.chances(experiment, full)[0, 0]


def test_there_are_120_pairs_of_four_binary_cues():
    assert PAIRS.stimuli == 120
    assert len(set(zip(PAIRS.a, PAIRS.b, strict=True))) == 120


@given(st.floats(0.1, 20), st.floats(0, 0.5))
def test_the_dial_at_zero_is_tallying_on_binary_cues(beta, lapse):
    one = chance(RULES["dial"], PAIRS, g=0, beta=beta, lapse=lapse)
    other = chance(RULES["tallying"], PAIRS, beta=beta, lapse=lapse)
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@given(st.floats(0.1, 20), st.floats(0, 0.5), st.integers(0, 1000))
def test_the_dial_at_one_is_equal_weight_wadd(beta, lapse, seed):
    e = random_design(np.random.default_rng(seed), top=10)
    one = chance(RULES["dial"], e, g=1, beta=beta, lapse=lapse)
    ones = np.ones((1, len(e.validities)))
    full = {"w": ones, "beta": np.asarray([beta]), "lapse": np.asarray([lapse])}
    np.testing.assert_allclose(one, RULES["wadd"].chances(e, full)[0, 0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(one, chance(RULES["equal-weight"], e, beta=beta, lapse=lapse), atol=1e-12)


@given(st.lists(st.floats(0.5, 0.99), min_size=1, max_size=6), st.integers(0, 1000))
def test_log_odds_are_bayes_rule_for_independent_cues(validities, seed):
    """P(B is better | cues) by Bayes' rule: a cue that tells the options apart is right by its validity."""
    count = len(validities)
    a, b = np.random.default_rng(seed).integers(0, 2, (2, 5, count))
    a[0], b[0] = 0, 1
    e = CueExperiment.of(validities, a.tolist(), b.tolist())
    found = chance(RULES["naive-bayes"], e, beta=1, lapse=0)
    for p, row in zip(found, b - a, strict=True):
        for_b, for_a = (
            np.prod([v if side == sign else 1 - v for v, side in zip(validities, row, strict=True) if side])
            for sign in (1, -1)
        )
        assert p == pytest.approx(for_b / (for_a + for_b), abs=1e-12)


def test_a_cue_that_is_always_right_outweighs_two_good_ones_and_is_finite():
    e = CueExperiment((1.0, 0.9, 0.9), ((0, 1, 1), (0, 0, 1)), ((1, 0, 0), (0, 1, 0)))
    found = gap(RULES["naive-bayes"], e)
    assert found[0] == pytest.approx(np.log(199) - 2 * np.log(9))
    assert found[1] == 0


def agreeing(g):
    """Ordered pairs out of 240 on which the dial and Take-the-Best choose alike."""
    one = np.sign(np.round(gap(RULES["dial"], PAIRS, g=g), 12))
    return 2 * int((one == gap(RULES["take-the-best"], PAIRS)).sum())


def test_the_dial_grows_into_take_the_best():
    assert [agreeing(g) for g in (1, 3, 5)] == [220, 230, 240]


def test_from_where_on_the_dial_is_take_the_best():
    def condition(g):
        powers = [v**g for v in VALIDITIES]
        return all(powers[j] > sum(powers[j + 1 :]) for j in range(len(powers)))

    for g in np.arange(0.0, 10.05, 0.1):
        assert (agreeing(g) == 240) == condition(g), g
    assert not condition(4.8)
    assert condition(4.9)


@given(st.integers(0, 1000), st.floats(0.1, 5))
def test_diminishing_returns_with_power_one_is_normalised_wadd(seed, s):
    e = random_design(np.random.default_rng(seed), top=10)
    one = gap(RULES["diminishing-wadd"], e, a=1, s=s)
    np.testing.assert_allclose(one, gap(RULES["equal-weight"], e) / sum(e.validities), rtol=0, atol=1e-9)


@given(st.floats(0.1, 1), st.floats(0.1, 5))
def test_a_concave_utility_of_binary_cues_only_rescales_beta(a, s):
    one = gap(RULES["diminishing-wadd"], PAIRS, a=a, s=s)
    linear = gap(RULES["diminishing-wadd"], PAIRS, a=1, s=s)
    np.testing.assert_allclose(one, linear * ((1 + s) ** a - s**a), rtol=0, atol=1e-9)


@pytest.mark.parametrize("pair", list(itertools.permutations(range(4), 2)))
def test_steep_and_flat_pairs_halve_every_linear_rule(pair):
    e = steep_and_flat(VALIDITIES, *pair, low=0, high=6, step=3)
    rng = np.random.default_rng(3)
    linear = {"w": rng.random((200, 4)), "beta": rng.uniform(0.1, 20, 200), "lapse": rng.uniform(0, 0.5, 200)}
    np.testing.assert_allclose(RULES["wadd"].chances(e, linear)[:, 0].mean(axis=1), 0.5, rtol=0, atol=1e-12)
    powers = {"g": rng.uniform(0, 10, 200), "beta": linear["beta"], "lapse": linear["lapse"]}
    np.testing.assert_allclose(RULES["dial"].chances(e, powers)[:, 0].mean(axis=1), 0.5, rtol=0, atol=1e-12)
    concave = {"a": rng.uniform(0.1, 0.9, 200), "s": rng.uniform(0.1, 5, 200), "beta": np.full(200, 5.0)}
    concave["lapse"] = np.zeros(200)
    # A gains at the low rating, so people of falling returns choose it more often.
    assert (RULES["diminishing-wadd"].chances(e, concave)[:, 0].mean(axis=1) < 0.5).all()


def test_hand_computed_scores():
    e = CueExperiment((0.9, 0.8, 0.6), ((0, 5, 5), (3, 3, 3)), ((1, 0, 0), (3, 3, 4)))
    assert gap(RULES["take-the-best"], e).tolist() == [1, 1]
    assert gap(RULES["tallying"], e).tolist() == [-1, 1]
    assert gap(RULES["equal-weight"], e) == pytest.approx([0.9 - 4 - 3, 0.6])
    assert gap(RULES["satisficing-wadd"], e, threshold=4) == pytest.approx([-1.4 / 2.3, 0.6 / 2.3])
    stress = {rule.name: rule for rule in STRESS}
    assert gap(stress["take-the-worst"], e).tolist() == [-1, 1]
    assert gap(stress["single-cue"], e).tolist() == [-1, 1]
    assert gap(stress["anti-majority"], e).tolist() == [1, -1]


def test_take_the_best_ties_and_equal_validities():
    e = CueExperiment((0.7, 0.9, 0.9), ((1, 1, 0), (1, 0, 0)), ((0, 0, 1), (1, 0, 0)))
    assert gap(RULES["take-the-best"], e).tolist() == [-1, 0]
    assert chance(RULES["take-the-best"], e, beta=20, lapse=0.3)[1] == 0.5


def test_lapses_bound_the_chances():
    e = CueExperiment((0.9,), ((0,), (1,)), ((1,), (0,)))
    assert chance(RULES["take-the-best"], e, beta=1e6, lapse=0.2) == pytest.approx([0.9, 0.1])


def test_reference_distances_of_the_theories():
    """Our own measurement with 20,000 draws; Monte Carlo error below 0.001."""
    found = {rule.name: predicted_rates(rule, PAIRS, 20_000, 1) for rule in RANKED[:3]}
    coin = predicted_rates(RULES["random"], PAIRS, 1, 1)
    assert coin.tolist() == [0.5] * 120
    table = {
        ("take-the-best", "wadd"): 0.043,
        ("take-the-best", "tallying"): 0.065,
        ("wadd", "tallying"): 0.008,
    }
    for (one, other), expected in table.items():
        assert mse_pb(found[one], found[other]) == pytest.approx(expected, abs=0.0015)
    for name, expected in (("take-the-best", 0.123), ("tallying", 0.099), ("wadd", 0.063)):
        assert mse_pb(coin, found[name]) == pytest.approx(expected, abs=0.0015)


@pytest.mark.parametrize(
    ("validities", "a", "b"),
    [
        ((0.4,), [[0]], [[1]]),
        ((1.1,), [[0]], [[1]]),
        ((float("nan"),), [[0]], [[1]]),
        ((), [[]], [[]]),
        ((0.9, 0.8), [[0]], [[1, 0]]),
        ((0.9,), [[11]], [[1]]),
        ((0.9,), [[-1]], [[1]]),
        ((0.9,), [[0.5]], [[1]]),
        ((0.9,), [[True]], [[1]]),
        ((0.9,), [["1"]], [[0]]),
        ((0.9,), [[1]], [[1]]),
        ((0.9,), [], []),
        ((0.9,), [[1], [0]], [[0]]),
        (("x",), [[1]], [[0]]),
    ],
)
def test_refused_experiments(validities, a, b):
    with pytest.raises(BadInput):
        CueExperiment.of(validities, a, b)


def test_an_experiment_is_read_back():
    e = random_design(np.random.default_rng(2), top=10)
    assert CueExperiment.from_json(e.to_json()) == e
    assert not e.binary
    assert PAIRS.binary
    with pytest.raises(BadInput, match="trial_b_ratings"):
        CueExperiment.from_json({**e.to_json(), "trial_b_ratings": None})


def test_a_rule_refuses_another_domain_and_missing_priors():
    from refork_methods.theory.chooser import Rule
    from refork_methods.theory.gambles.experiment import GambleExperiment

    gambles = GambleExperiment.of([([(1, 1)], [(2, 0.5), (0, 0.5)])])
    with pytest.raises(BadInput, match="about gambles"):
        predicted_rates(RULES["dial"], gambles, 10, 0)
    with pytest.raises(BadInput, match="lapse"):
        Rule("x", "cues", {"beta": RULES["dial"].priors["beta"]}, RULES["dial"].gap)
