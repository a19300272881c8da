from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.case_parts import CARD, DESIGN, GRADER, counted, incident, item, memory, planned
from refork.errors import BadInput
from refork.tree.score import Producer
from refork_methods.forensics import Arm, Target, difference, golden, rate
from refork_methods.forensics.rules import censored, check_result, contrast_exists, judges_itself, refuse


def kinds(found):
    return [(c.rule, c.kind) for c in found]


def test_a_base_rate_of_one_or_zero_with_no_contrast_gets_no_verdict():
    for hits in (0, 100):
        base, other = counted("base", hits, 100), counted("no remark", hits, 100)
        assert kinds(contrast_exists(base, [other])) == [("no contrast", "refusal")]
        case = planned(memory())
        case.add_evidence(item(base, other))
        # Without draws or a base of its own the case has no base rate either.
        assert "No verdict" in case.table().verdict
        assert case.table().leading == ()


def test_a_base_rate_of_one_that_an_edit_moves_is_a_contrast():
    base = counted("base", 100, 100)
    assert contrast_exists(base, [counted("e", 20, 100)]) == []
    assert kinds(contrast_exists(base, [counted("e", 99, 100)])) == [("no contrast", "refusal")]
    assert contrast_exists(counted("base", 1, 100), []) == []
    assert kinds(contrast_exists(None, [])) == [("no base rate", "refusal")]


def test_different_graders_are_refused():
    result = difference(counted("base", 60, 100), counted("e", 10, 100, grader="x" * 32))
    assert kinds(check_result(result, "counterfactual", "row")) == [("unpaired graders", "refusal")]
    case = planned(memory())
    with pytest.raises(BadInput, match="different graders"):
        case.add_evidence(item(counted("base", 60, 100), counted("no remark", 10, 100, grader="x" * 32)))


def test_unknown_graders_are_told():
    result = difference(counted("base", 60, 100, grader=None), counted("e", 10, 100, grader=None))
    assert kinds(check_result(result, "counterfactual", "row")) == [("unpaired graders", "warning")]


def test_another_model_is_a_control_model_or_refused():
    result = difference(counted("base", 60, 100), counted("e", 10, 100, subject="other"))
    assert ("several subjects", "refusal") in kinds(check_result(result, "counterfactual", "row"))
    assert check_result(result, "control model", "row") == []


def test_judge_and_subject_of_one_checkpoint_are_told():
    assert judges_itself(incident()) == []
    own = replace(GRADER, config={"weights": CARD.weights})
    for grader in (own, Producer(CARD.name)):
        judged = replace(incident(), target=Target("x", grader))
        assert kinds(judges_itself(judged)) == [("same checkpoint", "warning")]
    other = replace(incident(), target=Target("x", replace(GRADER, config={"weights": "v" * 64})))
    assert judges_itself(other) == []


def test_rollouts_that_nobody_counted_are_told():
    assert kinds(censored(Arm("a", 1, 10))) == [("censoring", "warning")]
    assert censored(counted("a", 1, 10)) == []
    told = censored(counted("a", 1, 10, unfinished=5))
    assert "between 6.7% and 40.0%" in told[0].words


def test_a_rollout_that_counts_twice_is_told():
    nodes = ("a" * 32, "b" * 32)
    twice = difference(counted("base", 1, 2, nodes=nodes), counted("e", 1, 2, nodes=(nodes[0], "c" * 32)))
    found = check_result(twice, "counterfactual", "row")
    assert kinds(found) == [("counted twice", "warning")]
    assert "1 rollouts count more than once" in found[0].words
    once = difference(counted("base", 1, 2, nodes=nodes), counted("e", 1, 2, nodes=("c" * 32,)))
    assert check_result(once, "counterfactual", "row") == []


def test_many_failures_need_bounds():
    lossy = counted("no remark", 10, 70, failed=30)
    base = counted("base", 60, 100)
    case = planned(memory())
    with pytest.raises(BadInput, match="30 of 100 rollouts failed"):
        case.add_evidence(item(base, lossy))
    shown = replace(item(base, lossy), result=difference(base, lossy, bounds=True))
    assert kinds(case.add_evidence(shown)) == [("lost rollouts", "warning")]
    few = rate(counted("a", 10, 80, failed=20))
    assert check_result(few, "observation", "row") == []


def test_a_refusal_stops_and_warnings_pass():
    told = refuse(censored(Arm("a", 1, 10)))
    assert kinds(told) == [("censoring", "warning")]


def test_the_released_sweep_would_be_told_about():
    found = [c.rule for arm in golden.arms(golden.TYPE_ERRORS) for c in censored(arm)]
    assert found == ["censoring"] * 12
    assert DESIGN.arms[0].name == "base"
