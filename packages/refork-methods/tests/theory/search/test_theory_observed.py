"""What a theory's side of an observation costs it, also where it has nothing to say."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork.sandbox import Sandbox
from refork_methods.theory.chooser import Rule
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.priors import Fixed
from refork_methods.theory.sandboxed import LIMITS
from refork_methods.theory.search.observed import Predicted, failed, loss, observed, predict
from refork_methods.theory.search.settings import TheorySettings
from refork_methods.theory.search.statistic import Named
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials

SETTINGS = TheorySettings(draws=100)
DESIGN = random_design(np.random.default_rng(1), cues=(4, 4))


def never(experiment, parameters):
    return np.full((len(parameters["beta"]), experiment.stimuli), -1000.0)


#: Everybody takes A, always: its lag-1 is not defined.
CONSTANT = Rule("constant", "cues", {"beta": Fixed(5), "lapse": Fixed(0)}, never)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as one:
        yield one


def seen(trials, sandbox):
    return observed(Observation("one", DESIGN, trials), Named(kind="share_of_b"), 4, sandbox)


def test_a_theory_without_an_order_pays_for_people_s(sandbox):
    """Its choices never vary, so it has no lag-1; that used to cost it nothing."""
    one = seen(simulate(RULES["alternation"], DESIGN, 25, 3), sandbox)
    found = predict(CONSTANT, one, SETTINGS)
    assert one.lag < -0.5
    assert found.order == (1 + abs(one.lag)) ** 2
    assert found.error == found.mse_pb + found.order
    for rule in (RULES["wadd"], RULES["alternation"], RULES["perseveration"]):
        other = predict(rule, one, SETTINGS)
        assert other.order < found.order
        assert loss([other], [one], [[]], SETTINGS) < loss([found], [one], [[]], SETTINGS)


def test_a_theory_that_fails_is_no_nearer_than_any_that_runs(sandbox):
    one = seen(simulate(RULES["alternation"], DESIGN, 25, 3), sandbox)
    none = failed(one)
    assert none.value is None
    assert none.error == 1 + (1 + abs(one.lag)) ** 2
    assert none.error >= predict(CONSTANT, one, SETTINGS).error
    assert Predicted.from_json(none.to_json()) == none


def test_order_costs_nobody_where_people_have_none(sandbox):
    orders = simulate(RULES["wadd"], DESIGN, 5, 3)
    one = seen(Trials(orders.person, orders.stimulus, np.zeros_like(orders.response)), sandbox)
    assert one.lag is None
    for rule in (CONSTANT, RULES["perseveration"]):
        found = predict(rule, one, SETTINGS)
        assert found.order is None
        assert found.error == found.mse_pb
    assert failed(one).error == 1


def test_no_observation_has_no_loss():
    with pytest.raises(BadInput):
        loss([], [], [], SETTINGS)
