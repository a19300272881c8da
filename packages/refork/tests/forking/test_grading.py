"""Nothing is concluded from draws that nobody grades, and nothing is drawn that must be refused."""

from __future__ import annotations

import numpy as np
import pytest

from refork.errors import BadChange, BadInput
from refork.forking import Ban, Remove, compare, compare_until, fork, fork_both, plan_sweep, sweep
from refork.forking.report import said_report
from refork.judge import MatchJudge, Verdict, load_judge
from refork.policies.scripted import ScriptedPolicy
from support.chain import PLAIN


def counted(tree):
    return (
        sum(1 for _ in tree.walk()),
        len(list(tree.forks())),
        sum(len(tree.draws(f.id)) for f in tree.forks()),
    )


@pytest.mark.parametrize(
    "conclude",
    [
        lambda point, policy: sweep(point, policy, 8),
        lambda point, policy: plan_sweep(point, policy, 8),
        lambda point, policy: sweep(point, policy, 8, judge=MatchJudge("right", score="style")),
        lambda point, policy: sweep(point, policy, 8, score="style", judge=MatchJudge("right")),
        lambda point, policy: compare_until(point, policy, Ban(text=" think"), batch=4),
    ],
    ids=["sweep", "plan", "a judge of something else", "a score nobody gives", "until clear"],
)
def test_what_nobody_would_grade_is_refused_before_it_is_drawn(tree, start, policy, conclude):
    leaf = fork(start, policy, 1, settings=PLAIN).leaves()[0].leaf
    before = counted(tree)
    with pytest.raises(BadInput, match="nobody would give these draws") as refused:
        conclude(tree.at(leaf, 1), policy)
    for way in ("--world", "--success-regex", "--judge"):
        assert way in str(refused.value)
    assert counted(tree) == before


def test_a_change_that_cannot_be_made_costs_no_draw(tree, start, policy, judge):
    leaf = fork(start, policy, 1, settings=PLAIN, judge=judge).leaves()[0].leaf
    before = counted(tree)
    for draw in (fork_both, lambda p, a, n, c, **k: compare_until(p, a, c, max_draws=n, **k)):
        with pytest.raises(BadChange, match="cannot take 5"):
            draw(tree.at(leaf, 1), policy, 64, Remove(5), judge=judge)
        assert counted(tree) == before


def test_both_arms_are_what_two_calls_give(tree, start, policy, judge):
    base, other = fork_both(start, policy, 40, Ban(text=" think"), settings=PLAIN, judge=judge)
    assert fork(start, policy, 40, settings=PLAIN, judge=judge).draws == base.draws
    assert fork(start, policy, 40, Ban(text=" think"), settings=PLAIN, judge=judge).draws == other.draws
    few, _ = fork_both(start, policy, 8, Ban(text=" think"), settings=PLAIN, judge=judge)
    assert few.draws == base.draws[:8]


def test_a_judge_that_comes_later_grades_what_is_drawn_already(tree, start, policy, judge):
    blind = fork(start, policy, 30, settings=PLAIN)
    assert blind.values() == [None] * 30
    seen = fork(start, policy, 30, settings=PLAIN, judge=judge)
    assert seen.tokens == 0
    assert seen.values() == [float("right" in trajectory.leaf.text) for trajectory in seen.leaves()]


def test_each_call_is_graded_by_its_own_judge(tree, start, policy):
    right, wrong = MatchJudge("right"), MatchJudge("wrong")
    for judge in (right, wrong, right):
        arm = fork(start, policy, 30, settings=PLAIN, judge=judge)
        assert arm.values() == [float(judge.pattern in trajectory.leaf.text) for trajectory in arm.leaves()]

    class Silent(MatchJudge):
        def judge(self, trajectory):
            return Verdict(None)

    # What another judge said is no answer of one that has none.
    assert fork(start, policy, 30, settings=PLAIN, judge=Silent("none")).values() == [None] * 30
    base, other = fork_both(start, policy, 30, Ban(text=" think"), settings=PLAIN, judge=wrong)
    assert compare(base, other).base.rate == np.mean([v or 0 for v in base.values()])


def test_two_arms_that_nobody_graded_are_told_by_what_they_said(start):
    policy = ScriptedPolicy.from_replies(["one two three", "one", "four five"])
    base, other = fork_both(start_of(policy), policy, 60, Ban(text="four"), settings=PLAIN)
    told = said_report(base, other)
    texts = [[trajectory.leaf.text for trajectory in arm.leaves()] for arm in (base, other)]
    assert told["graded"] == 0
    assert told["paired"]
    assert told["other_text"] == np.mean([a != b for a, b in zip(*texts, strict=True)])
    assert told["other_first_token"] == np.mean([a.startswith("four") for a in texts[0]])
    sizes = [[trajectory.leaf.length for trajectory in arm.leaves()] for arm in (base, other)]
    assert told["length"]["difference"] == pytest.approx(np.mean(sizes[1]) - np.mean(sizes[0]))
    assert told["length"]["low"] <= told["length"]["difference"] <= told["length"]["high"]
    assert sum(count for _, count in told["said"]["control"]["most_common"]) == 60
    apart = said_report(base, fork(base.point, policy, 60, Ban(text="four"), settings=PLAIN, seed=1))
    assert (apart["other_text"], apart["other_first_token"]) == (None, None)


def start_of(policy):
    from refork.growing.plant import plant_prompt
    from refork.tree.tree import Tree

    return plant_prompt(Tree.memory(), policy, "Well?")


FILE = """
from refork import MatchJudge

class Mine(MatchJudge):
    def __init__(self):
        super().__init__("right")

made = MatchJudge("wrong")
seven = 7

def longest(trajectory):
    return None if trajectory.leaf.text == " guess wrong" else len(trajectory.leaf.text) / 100
"""


def test_a_judge_is_loaded_from_a_file(tmp_path, start, policy):
    file = tmp_path / "grader.py"
    file.write_text(FILE)
    assert load_judge(f"{file}:Mine").pattern == "right"
    assert load_judge(f"{file}:made").pattern == "wrong"
    judge = load_judge(f"{file}:longest")
    arm = fork(start, policy, 20, settings=PLAIN, judge=judge)
    expected = [None if w.leaf.text == " guess wrong" else len(w.leaf.text) / 100 for w in arm.leaves()]
    assert arm.values() == expected
    file.write_text(FILE + "# another version\n")
    assert load_judge(f"{file}:longest").producer.id != judge.producer.id
    for spec in (
        f"{file}:seven",
        f"{file}:nobody",
        f"{file}",
        "no.such.module:it",
        f"{tmp_path}/no.py:it",
        ":x",
    ):
        with pytest.raises(BadInput):
            load_judge(spec)
