from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from refork.errors import BadInput
from refork.growing.plant import plant_prompt
from refork.judge import Verdict
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import NewNode
from refork.tree.score import Producer
from refork_methods.forensics.arm import Arm
from refork_methods.forensics.instruments.trace_grading import ScaleJudge, read_grade, trace_grading


class Length:
    """Grades a trace by the number it says; 9 says nothing."""

    score = "grade"
    producer = Producer("length", "1", {})

    def __init__(self):
        self.seen = []

    def judge(self, trajectory):
        value = float(trajectory.leaf.text)
        self.seen.append(value)
        return Verdict(None if value == 9 else value)


def arm(tree, name, values):
    root = plant_prompt(tree, ScriptedPolicy.from_replies(["x"]), "q")
    drafts = [
        NewNode(kind="action", parent=root.node.id, key=f"{name}{i}", text=str(v))
        for i, v in enumerate(values)
    ]
    nodes = tuple(n.id for n in tree.append(drafts))
    return Arm(name, 0, len(nodes), nodes=nodes)


def test_two_arms_are_graded_by_one_judge_and_compared(tree):
    low, high = [1, 1, 2, 2, 3, 9], [3, 4, 4, 5, 5]
    judge = Length()
    found = trace_grading(tree, arm(tree, "base", low), arm(tree, "other", high), judge)
    assert found.ungraded == 1
    assert found.base.values == (1, 1, 2, 2, 3)
    assert found.other.values == (3, 4, 4, 5, 5)
    assert found.result.p == pytest.approx(mannwhitneyu(high, low[:-1]).pvalue)
    above = np.mean([(b > a) + 0.5 * (b == a) for a in low[:-1] for b in high])
    assert found.result.interval.estimate == pytest.approx(above)
    assert judge.seen != [float(v) for v in low + high], "in an order that does not tell the arms apart"
    told = found.to_json()
    assert told["arms"][0]["mean"] == pytest.approx(1.8)
    before = len(judge.seen)
    trace_grading(tree, arm(tree, "base", low), arm(tree, "other", high), judge)
    assert len(judge.seen) == before + 1, "only the ungraded trace is asked about again"


def test_grades_off_the_scale_and_arms_without_grades_are_refused(tree):
    with pytest.raises(BadInput, match="outside the scale"):
        trace_grading(tree, arm(tree, "a", [7, 1]), arm(tree, "b", [1, 2]), Length())
    with pytest.raises(BadInput, match="at least two"):
        trace_grading(tree, arm(tree, "c", [9, 1]), arm(tree, "d", [1, 2]), Length())


@pytest.mark.parametrize(
    ("answer", "grade"),
    [
        ("4", 4),
        ("Grade: 3.", 3),
        ("I say 2 of 5", None),
        ("6", None),
        ("3.5", None),
        ("none", None),
        ("4 4", 4),
    ],
)
def test_a_grade_is_one_number_of_the_scale(answer, grade):
    assert read_grade(answer) == grade


def test_a_model_grades_and_is_warned_of_where_it_grades_itself(tree):
    model = ScriptedPolicy.from_replies(["4"])
    judge = ScaleJudge(model, "How strong? {text}")
    first, second = arm(tree, "e", [1, 2]), arm(tree, "f", [3, 4])
    found = trace_grading(tree, first, second, judge, subject=model)
    assert found.base.values == (4.0, 4.0)
    assert found.result.interval.estimate == 0.5
    assert "itself" in found.warnings[0]
    with pytest.raises(BadInput, match="hold"):
        ScaleJudge(model, "no place")
    with pytest.raises(BadInput, match="no two grades"):
        read_grade("1", 3, 3)
