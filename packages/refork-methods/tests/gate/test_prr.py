"""The prediction-rejection ratio: closed cases, its exact random score, and lm-polygraph's numbers."""

import importlib
import importlib.util
import itertools
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from refork.errors import BadInput
from refork_methods.gate.score import prr, rejection_area

RNG = np.random.default_rng(7)


def peer():
    """lm-polygraph's two modules from the installed package, without running the package's own start."""
    found = importlib.util.find_spec("lm_polygraph")
    if found is None:
        pytest.skip("lm-polygraph is not installed")
    name = "lm_polygraph_ue_metrics_alone"
    if name not in sys.modules:
        package = types.ModuleType(name)
        package.__path__ = [str(Path(found.submodule_search_locations[0]) / "ue_metrics")]
        sys.modules[name] = package
    return (importlib.import_module(f"{name}.{part}") for part in ("pred_rej_area", "ue_metric"))


@pytest.mark.parametrize("share", [0.5, 1.0, 0.3])
@pytest.mark.parametrize("kind", ["distinct", "tied", "graded"])
def test_equal_to_lm_polygraph(share, kind):
    area, ue = peer()
    score = RNG.random(203)
    right = (RNG.random(203) < 0.3 + 0.5 * score).astype(float)
    if kind == "tied":
        score = np.round(score, 1)
    if kind == "graded":
        right = RNG.random(203) * 3 - 1
    metric = area.PredictionRejectionArea(max_rejection=share)
    theirs = ue.normalize_metric(
        metric(list(-score), list(right)),
        metric(list(-right), list(right)),
        ue.get_random_scores(metric, right),
    )
    ours = prr(score, right, share, random="monte-carlo", ties="sorted")
    assert ours.value == pytest.approx(theirs, abs=1e-12)
    assert ours.random == pytest.approx(ue.get_random_scores(metric, right), abs=1e-12)


def test_the_same_seed_leaves_the_global_generator_alone():
    np.random.seed(3)
    before = np.random.get_state()[1].copy()
    prr(RNG.random(20), np.arange(20) % 2, random="monte-carlo", iterations=10)
    assert (np.random.get_state()[1] == before).all()


def test_knowing_the_outcomes_is_1_and_its_reverse_is_the_mirror():
    right = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1], dtype=float)
    assert prr(right, right).value == pytest.approx(1)
    assert prr(-right, right).value < -0.5
    assert prr(np.zeros(10), right).value == pytest.approx(0, abs=1e-12)  # one tie: every order alike


def test_the_expected_area_of_a_random_score_is_the_mean_quality():
    quality = np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    areas = [
        rejection_area(np.array(order), quality, 0.7, "sorted") for order in itertools.permutations(range(5))
    ]
    assert np.mean(areas) == pytest.approx(0.6)
    assert prr(np.arange(5.0), quality, 0.7).random == pytest.approx(0.6)


def test_ties_are_averaged_over_their_orders():
    score = np.array([0.2, 0.2, 0.9, 0.2])
    right = np.array([1.0, 0.0, 1.0, 0.0])
    areas = [
        rejection_area(-(score - 1e-6 * np.array([a, b, 0, c])), right, 0.75, "sorted")
        for a, b, c in itertools.permutations((1, 2, 3))
    ]
    assert prr(score, right, 0.75).area == pytest.approx(np.mean(areas))


def test_nothing_to_order_is_none():
    found = prr(np.arange(6.0), np.ones(6))
    assert found.value is None


@pytest.mark.parametrize(
    ("score", "right", "share"),
    [([1.0], [1.0], 0.5), ([1.0, 2.0], [1.0], 0.5), ([1.0, np.nan], [1, 0], 0.5), ([1.0, 2.0], [1, 0], 0.0)],
)
def test_what_is_refused(score, right, share):
    with pytest.raises(BadInput):
        prr(np.array(score), np.array(right), share)
