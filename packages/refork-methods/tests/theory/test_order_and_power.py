"""Lag-1 beside rates, and what designs can tell."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.chooser import Rule
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.experiment import CueExperiment
from refork_methods.theory.cues.rules import RULES, STRESS
from refork_methods.theory.metrics import lag_one
from refork_methods.theory.order import score_order
from refork_methods.theory.power import power_table
from refork_methods.theory.priors import Fixed
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation, Trials

DESIGN = random_design(np.random.default_rng(1), cues=(4, 4))


def test_order_is_seen_by_lag_one_alone():
    alternation = STRESS[0]
    seen = [Observation("one", DESIGN, simulate(alternation, DESIGN, 25, 3))]
    alike, plain = score_order([alternation, RULES["wadd"]], seen, seed=1)
    assert alike.people.estimate == pytest.approx(lag_one()(seen[0].trials))
    assert alike.people.low < alike.people.estimate < alike.people.high < -0.5
    assert alike.error < 0.01 < 0.3 < plain.error


def test_people_who_never_vary_have_no_order():
    flat = Observation("one", DESIGN, Trials(np.repeat([0, 1], 6), np.tile(np.arange(6), 2), np.zeros(12)))
    (found,) = score_order([RULES["wadd"]], [flat], seed=1)
    assert found.people is None
    assert found.error is None


def test_a_statistic_that_nobody_has_is_no_zero():
    design = CueExperiment.of((0.9, 0.8), [[1, 0], [0, 1]], [[0, 1], [1, 1]])

    def never(_experiment, parameters):
        return np.full((len(parameters["beta"]), 2), -1000.0)

    same = [Rule(name, "cues", {"beta": Fixed(5), "lapse": Fixed(0)}, never) for name in "ab"]
    (row,) = power_table(*same, [("d", design)], seed=1).designs
    assert (row.statistic, row.mine, row.other, row.power) == ("lag-1", None, None, ())


def test_a_design_that_separates_needs_few_people_and_one_that_cannot_none():
    apart = CueExperiment.of((0.9, 0.8, 0.7), [[1, 0, 0]], [[0, 1, 1]])
    alike = CueExperiment.of((0.9, 0.8, 0.7), [[1, 1, 1]], [[0, 0, 0]])
    table = power_table(
        RULES["take-the-best"],
        RULES["tallying"],
        [("apart", apart), ("alike", alike)],
        seed=1,
        numbers=(5, 25),
    )
    one, other = table.designs
    assert one.statistic == "agreement with take-the-best"
    assert one.needed <= 5
    assert one.power[0] <= one.power[1] == pytest.approx(1)
    assert one.jsd > other.jsd
    assert other.needed is None or other.needed > 100
    assert table.passing.estimate == 0.5
    with pytest.raises(BadInput):
        power_table(RULES["wadd"], RULES["tallying"], [], seed=1)
