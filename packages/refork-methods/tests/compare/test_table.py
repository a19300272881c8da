"""Curves into a table: exact on curves whose answer is known."""

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.compare import Curve, compare_arms, mean_curve, tokens_to_level


def line(slope, tokens=(0, 50, 100), tasks=4, shift=0.0):
    success = np.clip(shift + slope * np.array(tokens, float), 0, 1)
    return Curve(np.array(tokens, float), np.repeat(success[:, None], tasks, axis=1))


def test_a_level_is_reached_between_points():
    assert tokens_to_level([0, 10, 20], [0.0, 0.5, 0.5], 0.25) == pytest.approx(5)
    assert tokens_to_level([0, 10], [0.3, 0.5], 0.3) == 0
    assert tokens_to_level([0, 10], [0.3, 0.5], 0.6) is None


def test_twice_the_slope_needs_half_the_tokens():
    base, twice = [line(0.002)] * 3, [line(0.004)] * 3
    rows = compare_arms({"a": base, "b": twice}, "a")
    assert [row.arm for row in rows] == ["a", "b"]
    assert rows[0].share == pytest.approx(1)
    assert rows[0].gain is None
    assert rows[1].share == pytest.approx(0.5)
    assert rows[1].gain.estimate == pytest.approx(0.2)
    assert rows[1].area_gain.estimate == pytest.approx(0.1)
    assert rows[1].unit == "runs"


def test_the_baselines_own_plateau_is_not_counted_against_others():
    flat = line(0.01, tokens=(0, 50, 100, 200), shift=0.0)
    stop = Curve(flat.tokens, np.minimum(flat.success, 0.5))
    rows = compare_arms({"a": [stop], "b": [stop]}, "a")
    assert rows[0].share == pytest.approx(1)
    assert rows[1].share == pytest.approx(1)


def test_an_arm_that_never_gets_there_has_no_share():
    rows = compare_arms({"a": [line(0.004)], "b": [line(0.001)]}, "a")
    assert rows[1].share is None


def test_few_runs_are_paired_over_tasks_and_it_is_said():
    rng = np.random.default_rng(0)
    a = Curve(np.array([0.0, 10.0]), rng.random((2, 30)))
    b = Curve(np.array([0.0, 10.0]), a.success + 0.1)
    row = compare_arms({"a": [a], "b": [b]}, "a")[1]
    assert row.unit == "tasks"
    assert row.gain.estimate == pytest.approx(0.1)


def test_a_lucky_evaluation_is_pooled_by_the_rising_fit():
    bumpy = Curve(np.array([0.0, 1.0, 2.0]), np.array([[0.2], [0.9], [0.4]]))
    curve = mean_curve([bumpy], points=3)
    np.testing.assert_allclose(curve.success, [0.2, 0.9, 0.4])
    np.testing.assert_allclose(curve.fitted, [0.2, 0.65, 0.65])


def test_ungraded_tasks_take_no_part():
    curve = Curve(np.array([0.0, 1.0]), np.array([[np.nan, 0.5], [1.0, 0.0]]))
    np.testing.assert_allclose(curve.mean, [0.5, 0.5])


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="no arm"):
        compare_arms({"a": [line(0.1)]}, "b")
    with pytest.raises(BadInput, match="has 2 runs"):
        compare_arms({"a": [line(0.1)], "b": [line(0.1)] * 2}, "a")
    with pytest.raises(BadInput, match="must not fall"):
        Curve(np.array([1.0, 0.0]), np.zeros((2, 1)))
    with pytest.raises(BadInput, match="shape"):
        Curve(np.array([1.0]), np.zeros((2, 1)))
    with pytest.raises(BadInput, match="no learning curve"):
        mean_curve([])
