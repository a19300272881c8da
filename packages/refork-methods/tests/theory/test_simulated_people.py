from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.cues.designs import every_binary_pair, random_design
from refork_methods.theory.cues.rules import RULES, STRESS
from refork_methods.theory.experiment import repeats, trial_orders
from refork_methods.theory.metrics import lag_one, measure, switch_rate
from refork_methods.theory.simulate import predicted_rates, simulate
from refork_methods.theory.trials import Trials

E = random_design(np.random.default_rng(0))
DIGEST = """
import hashlib, numpy as np
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.simulate import simulate
t = simulate(RULES["wadd"], random_design(np.random.default_rng(0)), 10, 7, random_share=0.2)
print(hashlib.sha256(t.person.tobytes() + t.stimulus.tobytes() + t.response.tobytes()).hexdigest())
"""


def test_repetitions_fill_96_trials():
    assert [repeats(n) for n in (1, 8, 7, 96, 200)] == [96, 12, 13, 1, 1]
    orders = trial_orders(E, 5, 3)
    assert orders.shape == (5, 96)
    assert all((np.bincount(row) == 12).all() for row in orders)
    assert (trial_orders(E, 2, 3) == orders[:2]).all()
    shared = trial_orders(E, 4, 3, shared=True)
    assert (shared == shared[0]).all()


def test_a_seed_gives_the_same_people_in_another_process():
    here = {}
    exec(DIGEST.replace("print(", "out = ("), here)
    there = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here["out"]


def test_common_noise_pairs_the_theories():
    one, other = (simulate(rule, E, 6, 2) for rule in (RULES["equal-weight"], RULES["tallying"]))
    assert (one.stimulus == other.stimulus).all()
    again = simulate(RULES["equal-weight"], E, 6, 2)
    assert (one.response == again.response).all()
    assert (one.response != simulate(RULES["equal-weight"], E, 6, 3).response).any()


def test_simulated_rates_agree_with_predicted_ones():
    """Fails by chance for one seed in 10,000 or so: every rate within 4 standard errors."""
    people = 2000
    predicted = predicted_rates(RULES["wadd"], E, 20_000, 5)
    chosen, shown = simulate(RULES["wadd"], E, people, 6).counts(E.stimuli)
    each = chosen / shown
    error = each.std(axis=0, ddof=1) / np.sqrt(people)
    assert (np.abs(each.mean(axis=0) - predicted) < 4 * error + 0.004).all()


def test_all_random_choices_are_a_coin():
    """Mean of 48,000 coins within 4 standard errors: fails for 6 seeds in 100,000."""
    trials = simulate(RULES["take-the-best"], E, 500, 1, random_share=1.0)
    assert abs(trials.response.mean() - 0.5) < 4 * 0.5 / np.sqrt(trials.response.size)


def test_order_only_theories_have_the_coin_s_rates_and_another_lag():
    """Only a measure of order sees them (rates within 4 standard errors; the lags are 10 away from 0)."""
    stress = {rule.name: rule for rule in STRESS}
    lags = {}
    for name in ("alternation", "perseveration"):
        trials = simulate(stress[name], every_binary_pair((0.9, 0.8, 0.7, 0.6)), 200, 4)
        assert abs(trials.response.mean() - 0.5) < 0.06
        found = measure(lag_one(), trials)
        lags[name] = found.mean / np.sqrt(found.variance / found.people)
    assert lags["alternation"] < -10
    assert lags["perseveration"] > 10
    assert stress["alternation"].reads_history


def test_a_first_order_chain_by_hand():
    """beta and lapse fixed: P(switch) = (1 - lapse) * expit(beta) + lapse / 2 after every choice."""
    alternation = STRESS[0]
    parameters = {"beta": np.full(300, 2.0), "lapse": np.full(300, 0.1)}
    chances = alternation.chances(E, parameters)
    p = 0.9 / (1 + np.exp(-2)) + 0.05
    np.testing.assert_allclose(chances[:, 0], 0.5)
    np.testing.assert_allclose(chances[:, 1], p)
    np.testing.assert_allclose(chances[:, 2], 1 - p)
    rate = switch_rate()(simulate(alternation, E, 300, 8, parameters=parameters))
    assert abs(rate - p) < 4 * np.sqrt(p * (1 - p) / (300 * 95))


def test_trials_are_checked():
    with pytest.raises(BadInput, match="one length"):
        Trials(np.zeros(2), np.zeros(1), np.zeros(2))
    with pytest.raises(BadInput, match="no trials"):
        Trials(np.zeros(0), np.zeros(0), np.zeros(0))
    with pytest.raises(BadInput, match="a response is 0"):
        Trials(np.zeros(1), np.zeros(1), np.asarray([2]))
    with pytest.raises(BadInput, match="numbered"):
        Trials(np.asarray([-1]), np.zeros(1), np.zeros(1))


def test_trials_leave_the_caller_s_arrays_alone():
    mine = np.zeros(2, dtype=np.int64)
    kept = Trials(mine.copy(), mine, mine)
    mine[0] = 1
    assert mine.tolist() == [1, 0]
    assert kept.people == (0,)


def test_rates_of_what_was_never_shown_are_unknown():
    trials = Trials(np.asarray([4, 4, 9]), np.asarray([0, 2, 0]), np.asarray([1, 0, 0]))
    np.testing.assert_array_equal(trials.rates(3), [0.5, np.nan, 0.0])
    assert trials.people == (4, 9)
    chosen, shown = trials.counts(3)
    assert chosen.tolist() == [[1, 0, 0], [0, 0, 0]]
    assert shown.tolist() == [[1, 0, 1], [1, 0, 0]]
    with pytest.raises(BadInput, match="stimulus 2"):
        trials.counts(2)


@pytest.mark.parametrize("bad", [{"people": 0}, {"random_share": 1.5}, {"seed": -1}])
def test_refused_simulations(bad):
    with pytest.raises(BadInput):
        simulate(RULES["dial"], E, **{"people": 2, "seed": 0, **bad})
    with pytest.raises(BadInput):
        predicted_rates(RULES["dial"], E, 0, 0)
