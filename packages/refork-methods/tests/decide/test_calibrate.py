import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError

from refork.errors import BadInput
from refork_methods.decide import Calibration, brier, calibration_error, fit_calibration, reliability


def cases(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    score = rng.normal(size=n)
    truth = 1 / (1 + np.exp(-2 * score))
    return score, (rng.uniform(size=n) < truth).astype(float), truth


@pytest.mark.parametrize("method", ["isotonic", "bins"])
def test_a_fit_finds_the_chances_that_made_the_outcomes(method):
    score, right, _ = cases()
    found = fit_calibration(score, right, method)
    fresh, outcome, chance = cases(seed=1)
    # Bins are as wide as a tenth of the cases; over 20 seeds the largest mean error was .045.
    assert np.abs(found(fresh) - chance).mean() < 0.06
    assert brier(found(fresh), outcome) < brier(np.full(fresh.size, right.mean()), outcome)
    assert calibration_error(found(fresh), outcome) < 0.05


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=10, max_size=60))
def test_isotonic_never_falls_and_never_claims_certainty(rows):
    right = [r for _, r in rows]
    if min(sum(right), len(right) - sum(right)) < 5:
        return
    found = fit_calibration(np.array([s for s, _ in rows], float), np.array(right, float))
    stated = found(np.arange(-1.0, 11.0))
    assert (np.diff(stated) >= 0).all()
    assert (stated > 0).all()
    assert (stated < 1).all()


def test_equal_scores_get_one_chance_the_posterior_mean():
    found = fit_calibration(np.zeros(12), np.array([1.0] * 7 + [0.0] * 5))
    assert found.chance(0.0) == 8 / 14
    assert found.chance(5.0) == 8 / 14


def test_bins_are_steps():
    score = np.repeat([0.0, 1.0], 10)
    right = np.concatenate([np.r_[np.ones(1), np.zeros(9)], np.r_[np.ones(8), np.zeros(2)]])
    found = fit_calibration(score, right, "bins", bins=2)
    assert [found.chance(x) for x in (-1.0, 0.0, 0.9, 1.0, 2.0)] == pytest.approx(
        [2 / 12, 2 / 12, 2 / 12, 9 / 12, 9 / 12]
    )


def test_a_calibration_survives_json():
    score, right, _ = cases(300)
    found = fit_calibration(score, right)
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"method": "isotonic", "knots": [1, 0], "chances": [0.1, 0.2], "positives": 5, "cases": 10},
        {"method": "isotonic", "knots": [0], "chances": [1.2], "positives": 5, "cases": 10},
        {"method": "magic", "knots": [0], "chances": [0.2], "positives": 5, "cases": 10},
        {"method": "bins", "knots": [], "chances": [], "positives": 5, "cases": 10},
    ],
)
def test_what_is_no_calibration_is_refused(broken):
    with pytest.raises(BadInput, match="no calibration"):
        Calibration.from_json(broken)


def test_too_few_or_wrong_outcomes_are_refused():
    with pytest.raises(BadInput, match="at least 5 of each"):
        fit_calibration(np.arange(9.0), np.array([1.0] * 4 + [0.0] * 5))
    with pytest.raises(BadInput, match="0 or 1"):
        fit_calibration(np.arange(10.0), np.arange(10.0))
    with pytest.raises(BadInput, match="NaN"):
        fit_calibration(np.full(10, np.nan), np.ones(10))
    score, right, _ = cases(50)
    with pytest.raises((BadInput, TypeCheckError)):  # the shape checks of these tests look first
        fit_calibration(score, right, "platt")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="0 bins"):
        fit_calibration(score, right, "bins", bins=0)


def test_reliability_and_errors_of_a_table_done_by_hand():
    chances = np.array([0.1, 0.1, 0.9, 0.9, 1.0])
    right = np.array([0.0, 1.0, 1.0, 1.0, 0.0])
    rows = reliability(chances, right)
    assert [(row.stated, row.observed.estimate, row.cases) for row in rows] == [
        (0.1, 0.5, 2),
        (pytest.approx(2.8 / 3), pytest.approx(2 / 3), 3),
    ]
    assert calibration_error(chances, right) == pytest.approx((0.4 * 2 + (2.8 / 3 - 2 / 3) * 3) / 5)
    assert brier(chances, right) == pytest.approx((0.01 + 0.81 + 0.01 + 0.01 + 1) / 5)


@pytest.mark.parametrize("chances", [[-0.1], [1.1]])
def test_stated_chances_outside_0_and_1_are_refused(chances):
    with pytest.raises(BadInput):
        brier(np.array(chances), np.ones(1))
