"""Aggregation, attribution, best of N, prediction, signal: pure functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from refork.errors import BadInput
from refork_methods.implicit.aggregate import (
    STEP_RULES,
    TOKEN_RULES,
    aggregate_steps,
    pair_logprobs,
    sensitivity_grid,
    step_advantages,
    token_advantages,
    trajectory_score,
)
from refork_methods.implicit.attribute import decisive_step, step_accuracy
from refork_methods.implicit.choose import best_of, select_best
from refork_methods.implicit.predict import bootstrap_auroc, predict_success, tune
from refork_methods.implicit.signal import advise, win_chance

NAN = float("nan")
POLICY = [-9.0, -1.0, -2.0, -0.5, -9.0, -3.0, -1.0]
REFERENCE = [-1.0, -2.0, -1.0, -2.5, -2.0, -1.0, -4.0]
IDS = [-1, 0, 0, 0, -1, 1, 1]


@pytest.fixture
def pair():
    return pair_logprobs(POLICY, REFERENCE, IDS)


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ("sum", 2.0, 1.0),
        ("mean", 2 / 3, 0.5),
        ("last", 2.0, 3.0),
        ("min", -1.0, -2.0),
        ("max", 2.0, 3.0),
        # Extremes under either model apart: other tokens than those of the ratio.
        ("min-of-each", -2.0 + 2.5, -3.0 + 4.0),
        ("max-of-each", -0.5 + 1.0, -1.0 + 1.0),
    ],
)
def test_rules_over_tokens(pair, rule, first, second):
    assert step_advantages(pair, rule).tolist() == pytest.approx([first, second])
    assert step_advantages(pair, rule, beta=0.5).tolist() == pytest.approx([first / 2, second / 2])


def test_rules_over_steps():
    steps = [3.0, -1.0, NAN, 2.0]
    wanted = {"sum": 4.0, "mean": 4 / 3, "last": 2.0, "min": -1.0, "max": 3.0, "bottom10": -1.0}
    assert {rule: aggregate_steps(steps, rule) for rule in STEP_RULES} == pytest.approx(wanted)
    assert aggregate_steps(np.arange(20.0), "bottom10") == 0.5
    assert aggregate_steps(np.arange(21.0), "bottom10") == 1.0
    assert np.isnan(aggregate_steps([NAN], "sum"))


def test_tokens_of_the_world_are_never_read(pair):
    blank = [NAN if i < 0 else v for i, v in zip(IDS, POLICY, strict=True)]
    other = pair_logprobs(blank, REFERENCE, IDS)
    assert trajectory_score(other) == trajectory_score(pair) == 3.0
    assert np.isnan(token_advantages(pair)[[0, 4]]).all()


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-20, 0)), max_size=30))
def test_filler_that_both_models_find_equally_likely_changes_no_sum(filler):
    ids = np.array([0, 1, 2, 3, *(i for i, _ in filler)])
    mine = np.array([-1.0, -2, -3, -4, *(v for _, v in filler)])
    theirs = np.array([-2.0, -1, -1, -9, *(v for _, v in filler)])
    assert abs(trajectory_score(pair_logprobs(mine, theirs, ids)) - 3.0) < 1e-9


def test_the_sum_over_tokens_is_the_sum_over_any_steps():
    rng = np.random.default_rng(0)
    mine, theirs = -rng.exponential(size=(2, 50))
    one = trajectory_score(pair_logprobs(mine, theirs, np.zeros(50, dtype=int)))
    many = trajectory_score(pair_logprobs(mine, theirs, np.arange(50) // 7))
    assert one == pytest.approx(many, abs=1e-12)


def test_cut_actions_have_no_score_unless_asked_for_as_released():
    pair = pair_logprobs([-1.0, -1.0], [-2.0, -4.0], [1, 2], steps=4, cut=[False, False, True, False])
    assert pair.cut.tolist() == [True, False, True, True], "actions without tokens are cut as well"
    assert np.array_equal(step_advantages(pair), [NAN, 1.0, NAN, NAN], equal_nan=True)
    assert step_advantages(pair, cut="zero").tolist() == [0.0, 1.0, 3.0, 0.0]
    assert trajectory_score(pair, "sum", "mean") == 1.0
    assert trajectory_score(pair, "sum", "mean", cut="zero") == 1.0
    assert trajectory_score(pair, "sum", "sum", cut="zero") == 4.0


def test_the_grid_names_every_pair_of_rules(pair):
    grid = sensitivity_grid(pair)
    assert len(grid) == len(TOKEN_RULES) * len(STEP_RULES)
    assert grid["sum/sum"] == 3.0


@pytest.mark.parametrize(
    ("side", "value", "said"),
    [
        ("policy", NAN, "nan"),
        ("reference", NAN, "nan"),
        ("reference", -np.inf, "-inf"),
        ("policy", 0.5, "0.5"),
    ],
)
def test_log_probs_that_are_none_are_refused_with_their_token(side, value, said):
    columns = {"policy": list(POLICY), "reference": list(REFERENCE)}
    columns[side][5] = value
    names = list("abcdefg")
    with pytest.raises(BadInput, match=f"{side} gives token 5 'f' the log-prob {said}") as found:
        pair_logprobs(**columns, step_id=IDS, names=names, where="line 3")
    assert found.value.where == "line 3"
    assert found.value.hint


def test_a_trajectory_without_actions_is_refused():
    with pytest.raises(BadInput, match="chosen by the policy"):
        pair_logprobs([-1.0], [-1.0], [-1])


def test_unknown_rules_and_lengths_are_refused(pair):
    with pytest.raises(BadInput, match="token rule"):
        step_advantages(pair, "median")
    with pytest.raises(BadInput, match="step rule"):
        aggregate_steps([1.0], "median")
    with pytest.raises(BadInput, match="cut actions"):
        step_advantages(pair, cut="ignore")
    with pytest.raises(BadInput, match="1 policy and 2 reference"):
        pair_logprobs([-1.0], [-1.0, -1.0], [0])
    with pytest.raises(BadInput, match="step 3 of 2"):
        pair_logprobs([-1.0], [-1.0], [3], steps=2)
    with pytest.raises(BadInput, match="cut marks"):
        pair_logprobs([-1.0], [-1.0], [0], cut=[True, False])


# -- attribution --------------------------------------------------------------------------------


def test_the_three_rules_may_name_three_steps():
    steps = [-1.0, -1.5, 2.0, -0.5, -1.0]
    assert decisive_step(steps, "lowest").step == 1
    assert decisive_step(steps, "running-sum").step == 1
    assert decisive_step(steps, "drop").step == 3
    assert decisive_step(steps, "lowest").margin == pytest.approx(0.5)
    assert decisive_step(steps, "drop").margin == pytest.approx(2.0)
    assert decisive_step(steps, "running-sum").margin == pytest.approx(0.5)


def test_where_nothing_points_the_first_step_is_named_and_said_to_be_no_finding():
    found = decisive_step([0.5, 0.0, 0.1], "lowest")
    assert (found.step, found.margin, found.pointed) == (0, None, False)
    assert not decisive_step([1.0, 2.0, 3.0], "drop").pointed
    assert decisive_step([1.0, 1.0, 3.0], "drop").step == 1
    assert decisive_step([NAN, 2.0], "lowest") == decisive_step([NAN, -2.0], "lowest")


def test_steps_without_a_score_cannot_be_named():
    assert decisive_step([NAN, -1.0, NAN, -3.0], "lowest").step == 3
    with pytest.raises(BadInput, match="no step"):
        decisive_step([NAN, NAN])
    with pytest.raises(BadInput, match="rule"):
        decisive_step([1.0], "highest")


def test_steps_are_compared_as_integers():
    found = step_accuracy([1, 3, 2], [10, 3, 4])
    assert found.exact == pytest.approx(1 / 3)
    assert found.as_text == pytest.approx(2 / 3), "1 occurs in 10, which is why text does not do"
    assert found.mean_error == pytest.approx(11 / 3)
    with pytest.raises(BadInput, match="not an integer"):
        step_accuracy(["1"], [1])
    with pytest.raises(BadInput, match="cannot be compared"):
        step_accuracy([], [])


# -- best of N ----------------------------------------------------------------------------------


def test_the_best_candidate_of_each_task():
    tasks = ["a", "a", "b", "b", "b"]
    found = select_best([1.0, 2.0, 5.0, NAN, 1.0], tasks, [0, 1, 0, 1, 1])
    assert found.picks.tolist() == [1, 2]
    assert (found.chosen, found.oracle) == (0.5, 1.0)
    assert found.mean == pytest.approx((0.5 + 2 / 3) / 2)
    assert (found.tasks, found.fewest, found.most) == (2, 2, 3)


def test_equal_scores_are_a_blind_pick():
    rng = np.random.default_rng(0)
    outcomes = rng.integers(0, 2, 800).astype(float)
    tasks = [i // 8 for i in range(800)]
    found = select_best(np.zeros(800), tasks, outcomes, seed=3)
    assert found.expected == pytest.approx(found.mean, abs=1e-12)
    picks = found.picks - np.arange(100) * 8
    assert len(set(picks.tolist())) == 8, "not always the first"
    assert np.array_equal(best_of(np.zeros(800), tasks, seed=3), found.picks)
    assert not np.array_equal(best_of(np.zeros(800), tasks, seed=4), found.picks)
    assert found.gain is not None
    assert found.gain.low < 0 < found.gain.high
    assert found.gain.estimate == pytest.approx(0.0, abs=1e-12)


def test_best_of_n_refuses_what_it_cannot_judge():
    with pytest.raises(BadInput, match="needs an outcome"):
        select_best([1.0, 2.0], ["a", "a"], [1.0, NAN])
    with pytest.raises(BadInput, match="one candidate"):
        select_best([1.0, 2.0], ["a", "b"], [1.0, 0.0])
    with pytest.raises(BadInput, match="task names"):
        best_of([1.0], [])


# -- prediction ---------------------------------------------------------------------------------


def test_the_area_counts_ties_half_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 5, 200).astype(float), rng.integers(0, 2, 200)
    found = bootstrap_auroc(scores, labels, resamples=200)
    assert found.estimate == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found.low < found.estimate < found.high
    assert bootstrap_auroc(np.zeros(200), labels, resamples=100).estimate == 0.5


def test_the_bootstrap_interval_is_about_delongs_and_wider_for_tasks():
    rng = np.random.default_rng(1)
    ease = np.repeat(rng.normal(size=60), 5)
    labels = (ease + rng.normal(size=300) > 0).astype(float)
    scores = ease + 0.5 * rng.normal(size=300)
    tasks = [i // 5 for i in range(300)]
    plain, by_task = predict_success(scores, labels), predict_success(scores, labels, tasks)
    assert plain.auroc.width == pytest.approx(plain.delong.width, rel=0.15)
    assert by_task.auroc.width > 1.1 * plain.auroc.width
    assert (plain.resampled, by_task.resampled) == ("trajectories", "tasks")
    assert predict_success(scores, labels).auroc == plain.auroc, "seeded"
    assert 0 < plain.spearman < 1


@pytest.mark.parametrize("label", [0, 1])
def test_labels_of_one_class_are_refused(label):
    with pytest.raises(BadInput, match="nothing can be told apart"):
        predict_success([1.0, 2.0, 3.0], [label] * 3)


def test_prediction_refuses_bad_input():
    with pytest.raises(BadInput, match="0 or 1"):
        predict_success([1.0, 2.0], [0.5, 1.0])
    with pytest.raises(BadInput, match="trajectory 1 has no score"):
        predict_success([1.0, NAN], [0, 1])
    with pytest.raises(BadInput, match="resamples"):
        bootstrap_auroc([1.0, 2.0], [0, 1], resamples=10)
    with pytest.raises(BadInput, match="group names"):
        bootstrap_auroc([1.0, 2.0], [0, 1], ["a"])


def test_rules_are_not_chosen_on_the_data_they_are_reported_on():
    grid = {"sum/sum": [0.0, 1.0, 2.0, 3.0], "min/max": [0.0, 3.0, 1.0, 2.0]}
    best, areas = tune(grid, [0, 0, 1, 1], tuned_on=["a", "b"], reported_on=["c"])
    assert best == "sum/sum"
    assert areas == {"sum/sum": 1.0, "min/max": 0.5}
    with pytest.raises(BadInput, match="1 trajectories to report on were also used"):
        tune(grid, [0, 0, 1, 1], tuned_on=["a", "b"], reported_on=["b", "c"])


# -- signal -------------------------------------------------------------------------------------


def test_advice():
    go = advise([0.1, -0.1], branch_below=-0.5, stop_fall=1.0)
    assert (go.advice, go.step) == ("go on", None)
    branch = advise([0.1, -0.7, NAN, 0.2], branch_below=-0.5, stop_fall=1.0)
    assert (branch.advice, branch.step) == ("branch", 1)
    stop = advise([0.5, -0.7, -0.4], branch_below=-0.5, stop_fall=1.0)
    assert (stop.advice, stop.fall) == ("stop", pytest.approx(1.1))
    assert advise([], branch_below=-0.5, stop_fall=1.0).advice == "go on"
    with pytest.raises(BadInput, match="below 0"):
        advise([], branch_below=0.5, stop_fall=1.0)


def test_value_of_a_point():
    found = win_chance([0.0, 1.0, -1.0, NAN], 0.2)
    assert found[0] == pytest.approx(0.2)
    assert found[1] > 0.2 > found[2]
    assert np.isnan(found[3])
    with pytest.raises(BadInput, match="prior"):
        win_chance([0.0], 1.0)
