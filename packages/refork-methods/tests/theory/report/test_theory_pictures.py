"""Pictures hold what was measured; the utility curve finds a planted bend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.theory.cues import rules
from refork_methods.theory.cues.designs import random_design
from refork_methods.theory.priors import Fixed
from refork_methods.theory.report import dial_curve, dial_figure, utility_curve, utility_figure
from refork_methods.theory.simulate import simulate
from refork_methods.theory.trials import Observation


def seen(rule, top, count=5):
    rng = np.random.default_rng(0)
    designs = [random_design(rng, cues=(4, 5), top=top) for _ in range(count)]
    return [Observation(str(i), one, simulate(rule, one, 25, i)) for i, one in enumerate(designs)]


def test_the_dial_s_curve_has_its_least_where_people_are():
    planted = replace(rules.dial(), priors={**rules.dial().priors, "g": Fixed(3.0)})
    curve = dial_curve(seen(planted, 1), draws=300, redraws=100, powers=(0.0, 1.0, 3.0, 10.0))
    assert curve.best == 3.0
    assert curve.errors[2].high < curve.coin
    figure = dial_figure(curve)
    assert "least at g = 3" in figure.name
    assert [row[0] for row in figure.rows[:4]] == ["0", "1", "3", "10"]
    assert figure.rows[4][0].startswith("a coin 0.")


@pytest.mark.parametrize("power", [0.4, 1.0])
def test_a_planted_utility_is_found(power):
    """The 95 % interval over people, one data set each; the truth of the concave one is .676."""
    priors = {**rules.diminishing_wadd().priors, "a": Fixed(power), "s": Fixed(0.5)}
    curve = utility_curve(seen(replace(rules.diminishing_wadd(), priors=priors), 10, 8), redraws=300)
    truth = rules.concave(np.asarray(5.0), power, 0.5) / rules.concave(np.asarray(10.0), power, 0.5)
    estimate, low, high = curve.bend
    assert low <= truth <= high
    assert (low > 0.5) == (power < 1)
    assert curve.prior_bend == pytest.approx(0.5, abs=0.02)
    assert (curve.low <= curve.mean + 1e-9).all()
    figure = utility_figure(curve)
    assert f"{estimate:.3f}" in figure.note
    assert len({row[0] for row in figure.rows}) == 4


def test_binary_ratings_say_nothing_of_utility():
    with pytest.raises(BadInput, match="graded"):
        utility_curve(seen(rules.wadd(), 1, 1))
