from __future__ import annotations

import numpy as np
import pytest

from gate.gate_problems import IMPERFECT, model
from refork.errors import BadInput
from refork_methods.gate import rules
from refork_methods.gate.controller import BayesController
from refork_methods.gate.evaluate import worth
from refork_methods.gate.model import Prices
from refork_methods.gate.released import released_policies
from refork_methods.gate.simulate import draw_trajectories, simulate
from refork_methods.gate.solve import in_floats

PRICES = Prices(verify=45, ship_loss=60)
EPISODES = 4000


@pytest.fixture(scope="module")
def trajectories():
    return draw_trajectories(model(), EPISODES, 3, seed=0)


def test_what_is_drawn_has_the_rates_of_the_model(trajectories):
    # Each share is within four standard errors; a wrong alarm in about 16,000 runs for each of eight.
    right, verdicts = trajectories.right, trajectories.verdicts

    def near(hits, rate):
        assert abs(hits.mean() - rate) <= 4 * np.sqrt(max(rate * (1 - rate), 1e-12) / hits.size)

    near(right[:, 0], 0.6)
    near(right[:, 1][~right[:, 0]], 0.25)
    near(~right[:, 2][right[:, 1]], 0.10)
    for place, critic in enumerate(IMPERFECT):
        near(verdicts[..., place][right], critic.right)
        near(verdicts[..., place][~right], critic.wrong)


@pytest.mark.parametrize("verify", ["terminal", "retry"])
def test_the_mean_is_what_enumeration_says(trajectories, verify):
    # Four standard errors for six policies in two ways: one wrong alarm in about 1,300 changes of the seed.
    known, problem = model(), in_floats(model(), PRICES, 3, verify)
    policies = [
        BayesController(known, PRICES, 3, verify),
        BayesController(known, PRICES, 3, verify, method="greedy"),
        rules.always_verify(known, 3),
        rules.pipeline(known, 3),
        rules.reflexion(known, 3, "test"),
        released_policies(known, PRICES)["dp as released"],
    ]
    for policy in policies:
        episodes = simulate(policy, known, PRICES, trajectories, verify)
        assert abs(episodes.mean - worth(policy, problem)) <= 4 * episodes.error
        assert np.all(episodes.cost >= 0)


def test_the_final_belief_is_calibrated(trajectories):
    # Brier of the belief beats that of the prior, and its mean is the share that is right within 4 errors.
    episodes = simulate(rules.pipeline(model(), 3), model(), PRICES, trajectories)
    gap = episodes.belief - episodes.right
    assert abs(gap.mean()) <= 4 * gap.std() / np.sqrt(gap.size)
    assert (gap**2).mean() < ((0.6 - episodes.right) ** 2).mean()


def test_the_same_seed_gives_the_same_episodes_whatever_their_number(trajectories):
    few = draw_trajectories(model(), 10, 3, seed=0)
    np.testing.assert_array_equal(few.right, trajectories.right[:10])
    np.testing.assert_array_equal(few.verdicts, trajectories.verdicts[:10])
    other = draw_trajectories(model(), 10, 3, seed=1)
    assert not np.array_equal(other.verdicts, few.verdicts)
    first, second = (simulate(rules.pipeline(model(), 3), model(), PRICES, few) for _ in range(2))
    np.testing.assert_array_equal(first.utility, second.utility)


def test_a_released_gate_is_charged_the_wrong_price(trajectories):
    few = draw_trajectories(model(), 50, 3, seed=0)
    charged = simulate(released_policies(model(), PRICES)["gate(test)"], model(), PRICES, few)
    honest = simulate(rules.gate(model(), 3, "test"), model(), PRICES, few)
    assert np.all(honest.cost - charged.cost >= 1)


def test_what_cannot_be_drawn_or_done_is_refused(trajectories):
    for episodes, horizon in ((1, 3), (10, 0)):
        with pytest.raises(BadInput):
            draw_trajectories(model(), episodes, horizon, 0)
    odd = rules.Rule("odd", model(), lambda state: ("lint", "because"))
    with pytest.raises(BadInput, match="'lint', which is not open"):
        simulate(odd, model(), PRICES, draw_trajectories(model(), 2, 3, 0))


def test_a_model_without_critics_can_be_played():
    bare = model(())
    episodes = simulate(BayesController(bare, PRICES), bare, PRICES, draw_trajectories(bare, 20, 3, 0))
    assert episodes.utility.shape == (20,)
