from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refork.errors import BadInput, CannotDo
from refork_methods.theory.cues import rules as cue_rules
from refork_methods.theory.cues.designs import every_binary_pair
from refork_methods.theory.gambles import rules
from refork_methods.theory.gambles.experiment import GambleExperiment, random_gambles
from refork_methods.theory.gambles.rules import decision_weights, value, weighting
from refork_methods.theory.predictive import score_theories
from refork_methods.theory.priors import Fixed, Uniform
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation
from refork_testbed.trials.theory_fit import fit

E = random_gambles(np.random.default_rng(4), 60)
PLAIN = {"alpha": 1.0, "loss": 1.0, "gamma": 1.0, "delta": 1.0}


def gap(rule, experiment, **parameters):
    full = {name: np.asarray([x], dtype=float) for name, x in {"beta": 1.0, **parameters}.items()}
    return np.asarray(rule.gap(experiment, full))[0]


def test_plain_prospect_theory_is_expected_value():
    np.testing.assert_allclose(
        gap(rules.RULES["prospect-theory"], E, **PLAIN), gap(rules.RULES["expected-value"], E), atol=1e-12
    )


def test_expected_values_by_hand():
    e = GambleExperiment.of([([(10, 0.5), (0, 0.5)], [(4, 1)]), ([(-8, 0.25), (0, 0.75)], [(-1, 1)])])
    assert gap(rules.RULES["expected-value"], e) == pytest.approx([-0.1, 0.1])


@given(st.floats(0.3, 1.2))
def test_a_weighting_keeps_the_ends(gamma):
    assert weighting(np.asarray([0.0, 1.0]), np.asarray(gamma)).tolist() == [0, 1]
    inner = weighting(np.linspace(0, 1, 101), np.asarray(gamma))
    assert (np.diff(inner) > 0).all()


def test_published_values_of_the_weighting():
    """Tversky and Kahneman's estimate 0.61 for gains weighs 0.5 by 0.42 and 0.01 by 0.055."""
    assert float(weighting(np.asarray(0.5), np.asarray(0.61))) == pytest.approx(0.4206, abs=1e-4)
    assert float(weighting(np.asarray(0.01), np.asarray(0.61))) == pytest.approx(0.0553, abs=1e-4)
    assert value(np.asarray([4.0, -4.0, 0.0]), np.asarray(0.5), np.asarray(2.25)).tolist() == [2, -4.5, 0]


@given(st.integers(0, 500), st.floats(0.3, 1.2), st.floats(0.3, 1.2))
def test_decision_weights_of_one_sign_sum_to_one(seed, gamma, delta):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.ones(4))
    for sign in (1, -1):
        outcomes = np.sort(sign * rng.uniform(1, 9, 4))
        weights = decision_weights(outcomes, chances, np.asarray(gamma), np.asarray(delta))
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert (weights >= -1e-12).all()


def test_a_reflected_gamble_is_chosen_the_other_way():
    """With alike curves for both signs and no loss aversion, -x is weighed as x with the sign turned."""
    turned = GambleExperiment.of([
        ([(-x, p) for x, p in a], [(-x, p) for x, p in b]) for a, b in zip(E.a, E.b, strict=True)
    ])  # fmt: skip
    same = {"alpha": 0.7, "loss": 1.0, "gamma": 0.6, "delta": 0.6}
    one, other = (gap(rules.RULES["prospect-theory"], e, **same) for e in (E, turned))
    np.testing.assert_allclose(one, -other, atol=1e-12)


def test_the_allais_pattern():
    """People take 3000 for sure over 0.8 of 4000, and 0.2 of 4000 over 0.25 of 3000."""
    e = GambleExperiment.of([
        ([(3000, 1)], [(4000, 0.8), (0, 0.2)]),
        ([(3000, 0.25), (0, 0.75)], [(4000, 0.2), (0, 0.8)]),
    ])  # fmt: skip
    typical = {"alpha": 0.88, "loss": 2.25, "gamma": 0.61, "delta": 0.69}
    assert np.sign(gap(rules.RULES["prospect-theory"], e, **typical)).tolist() == [-1, 1]
    assert np.sign(gap(rules.RULES["expected-value"], e)).tolist() == [1, 1]


def test_heuristics_by_hand():
    e = GambleExperiment.of([
        ([(100, 0.4), (-10, 0.6)], [(50, 0.9), (0, 0.1)]),
        ([(-100, 0.1), (-1, 0.9)], [(-50, 0.5), (-20, 0.5)]),
    ])  # fmt: skip
    by_name = {rule.name: gap(rule, e).tolist() for rule in rules.RANKED[2:]}
    assert by_name["maximin"] == [1, 1]
    assert by_name["maximax"] == [-1, -1]
    assert by_name["most-likely"] == [1, -1]


def test_drawn_pairs_are_a_matter_of_taste():
    assert E.stimuli == 60
    for a, b in zip(E.a, E.b, strict=True):
        assert (min(a)[0] < min(b)[0]) == (max(a)[0] > max(b)[0])
    assert GambleExperiment.from_json(E.to_json()) == E
    assert random_gambles(np.random.default_rng(4), 60) == E


def test_branches_of_different_number():
    e = GambleExperiment.of([([(5, 1)], [(1, 0.2), (4, 0.3), (9, 0.5)])])
    outcomes, chances = e.arrays()
    assert outcomes[0].tolist() == [[5, 5, 5], [1, 4, 9]]
    assert chances[0].tolist() == [[0, 0, 1], [0.2, 0.3, 0.5]]
    assert gap(rules.RULES["prospect-theory"], e, **PLAIN) == pytest.approx((0.2 + 1.2 + 4.5 - 5) / 9)


@pytest.mark.parametrize(
    "pairs",
    [
        [], [([], [(1, 1)])], [([(1, 0.5)], [(2, 1)])], [([(1, 1.5), (2, -0.5)], [(2, 1)])],
        [([(0, 1)], [(0, 1)])], [([(1, 1)], [(1, 1)])], [([(float("inf"), 1)], [(1, 1)])],
        [([(1, 0.5), (1, 0.5)], [(2, 1)])], [(1, 2)],
    ],
)  # fmt: skip
def test_refused_gambles(pairs):
    with pytest.raises(BadInput):
        GambleExperiment.of(pairs)


def test_prospect_theory_s_parameters_are_recovered():
    """Six people, 1,200 choices each, fixed seeds: correlation of fitted with true values over 0.85."""
    rng, rule = np.random.default_rng(8), rules.RULES["prospect-theory"]
    true, found = [], []
    for seed in range(6):
        own = {"alpha": rng.uniform(0.5, 1), "loss": rng.uniform(1, 3), "gamma": rng.uniform(0.4, 1)}
        own |= {"delta": rng.uniform(0.4, 1), "beta": 12.0, "lapse": 0.02}
        person = {name: np.full(1, x) for name, x in own.items()}
        trials = simulate(rule, E, 1, seed, parameters=person, trials=1200)
        fitted = fit(rule, E, trials, seed, screened=600, starts=2)
        assert fitted.choices == 1200
        true.append([own[name] for name in PLAIN])
        found.append([fitted.parameters[name] for name in PLAIN])
    for column, name in enumerate(PLAIN):
        pair = np.corrcoef(np.asarray(true)[:, column], np.asarray(found)[:, column])
        assert pair[0, 1] > 0.85, name
    assert np.abs(np.asarray(true) - np.asarray(found)).mean(axis=0)[0] < 0.06


def test_a_fit_is_at_least_as_likely_as_the_truth_and_repeats():
    from refork_testbed.trials.theory_fit import log_likelihoods

    rule = rules.RULES["prospect-theory"]
    person = {
        name: np.full(1, x)
        for name, x in {**PLAIN, "alpha": 0.8, "loss": 2, "beta": 10, "lapse": 0.1}.items()
    }
    trials = simulate(rule, E, 1, 3, parameters=person)
    fitted = fit(rule, E, trials, 0, screened=200, starts=2)
    chosen, shown = (part.sum(axis=0) for part in trials.counts(E.stimuli))
    assert fitted.log_likelihood >= log_likelihoods(rule, E, person, chosen, shown)[0]
    assert fit(rule, E, trials, 0, screened=200, starts=2) == fitted


def test_a_rule_without_free_parameters_is_as_likely_as_it_is():
    from refork_testbed.trials.theory_fit import log_likelihoods

    rule = rules.RULES["expected-value"]
    named = {
        name: prior.low if isinstance(prior, Uniform) else prior.value for name, prior in rule.priors.items()
    }
    fixed = replace(rule, priors={name: Fixed(value) for name, value in named.items()})
    trials = simulate(rule, E, 1, 0)
    chosen, shown = (part.sum(axis=0) for part in trials.counts(E.stimuli))
    found = fit(fixed, E, trials, 0)
    at = {name: np.full(1, value) for name, value in named.items()}
    assert found.parameters == named
    assert found.log_likelihood == log_likelihoods(fixed, E, at, chosen, shown)[0]
    assert found.choices == shown.sum()


def test_what_is_not_fitted():
    trials = simulate(rules.RULES["expected-value"], E, 1, 0)
    e = every_binary_pair((0.9, 0.8))
    chosen = simulate(cue_rules.RULES["wadd"], e, 1, 0)
    for rule, words in ((cue_rules.RULES["wadd"], "n_features"), (cue_rules.STRESS[0], "history")):
        with pytest.raises(CannotDo, match=words):
            fit(rule, e, chosen, 0)
    with pytest.raises(BadInput):
        fit(rules.RULES["expected-value"], E, trials, 0, starts=0)


def test_the_generator_comes_out_on_top():
    prospect = rules.RULES["prospect-theory"]
    seen = [Observation(str(i), e, simulate(prospect, e, 25, i)) for i, e in enumerate(
        random_gambles(np.random.default_rng(i), 24) for i in range(3))]  # fmt: skip
    board = score_theories([*rules.RANKED, rules.RULES["random"]], seen, seed=1, draws=500, redraws=100)
    assert board.theories[0].name == "prospect-theory"
    assert board.of("prospect-theory").skill.estimate > 0.8
