"""Pictures hold what was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.cues.rules import RULES
from refork_methods.theory.priors import Fixed
from refork_methods.theory.report import dial_curve, dial_figure
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation


def seen(rule, top, count=5):
    rng = np.random.default_rng(0)
    designs = [random_design(rng, cues=(4, 5), top=top) for _ in range(count)]
    return [Observation(str(i), one, simulate(rule, one, 25, i)) for i, one in enumerate(designs)]


def test_the_dial_s_curve_has_its_least_where_people_are():
    planted = replace(RULES["dial"], priors={**RULES["dial"].priors, "g": Fixed(3.0)})
    curve = dial_curve(seen(planted, 1), draws=300, redraws=100, powers=(0.0, 1.0, 3.0, 10.0))
    assert curve.best == 3.0
    assert curve.errors[2].high < curve.coin
    assert 3.0 in curve.untold
    assert not {0.0, 1.0} & set(curve.untold)
    figure = dial_figure(curve)
    assert "least at g = 3" in figure.name
    assert "Not told apart from the least: " in figure.note
    assert [row[0] for row in figure.rows[:4]] == ["0", "1", "3", "10"]
    assert figure.rows[4][0].startswith("a coin 0.")
