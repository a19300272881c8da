"""Arms that are on a tree become forks again, with the effect that was reported when they were drawn."""

from __future__ import annotations

import pytest

from refork import (
    Ban,
    MatchJudge,
    Remove,
    Replace,
    Sampling,
    ScriptedPolicy,
    Set,
    SwapPolicy,
    Tree,
    compare,
    fork,
    plant_prompt,
)
from refork.errors import BadInput
from refork.forking.recorded import change_in_words, pairs, recorded_arm, recorded_pair
from refork.growing.plant import plant
from support.worlds import TwoTurns

CHAIN = {
    "": {" think": 0.5, " guess": 0.5},
    " think": {" right": 0.9, " wrong": 0.1},
    " guess": {" right": 0.2, " wrong": 0.8},
    " right": {"": 1.0},
    " wrong": {"": 1.0},
}


@pytest.fixture(scope="module")
def forked():
    policy = ScriptedPolicy.from_chain(CHAIN)
    tree = Tree.memory()
    judge = MatchJudge("right")
    base = fork(plant_prompt(tree, policy, "Well?"), policy, 40, settings=Sampling(max_tokens=8), judge=judge)
    guess = next(trajectory for trajectory in base.leaves() if " guess" in trajectory.leaf.text)
    point = tree.at(guess.leaf, 1)
    control = fork(point, policy, 40, judge=judge)
    other = fork(point, policy, 40, Remove(1), judge=judge)
    return tree, policy, judge, point, control, other


def test_an_effect_is_found_again(forked):
    tree, _, _, _, control, other = forked
    told = compare(control, other)
    again = compare(*recorded_pair(tree, control.record.id, other.record.id))
    same = (
        "what",
        "before_text",
        "difference",
        "low",
        "high",
        "p",
        "draws",
        "paired",
        "point",
        "base",
        "other",
    )
    assert {name: getattr(again, name) for name in same} == {name: getattr(told, name) for name in same}
    assert recorded_arm(tree, control.record.id).values() == control.values()


def test_every_changed_arm_meets_its_control(forked):
    tree, policy, judge, point, control, other = forked
    cold = fork(point, policy, 40, Set({"temperature": 0.5}), judge=judge)
    seeded = fork(point, policy, 40, Remove(1), judge=judge, seed=7)
    found = {pair.changed.id: pair.control.id for pair in pairs(tree.forks())}
    assert found == {other.record.id: control.record.id, cold.record.id: control.record.id}
    assert seeded.record.id not in found  # no control has its noise


def test_a_changed_arm_meets_the_control_with_its_own_turn_limit():
    world = TwoTurns()
    agent = ScriptedPolicy.from_chain({"": {" a": 0.6, " b": 0.4}, " a": {"": 1.0}, " b": {"": 1.0}})
    with Tree.memory() as tree:
        (start,) = plant(tree, agent, world, world.tasks("train", 1))
        given = {"world": world, "settings": Sampling(max_tokens=8)}
        controls = [fork(start, agent, 6, max_turns=most, **given) for most in (1, None)]
        for change in (Ban(text=" b"), Set(temperature=0.5), SwapPolicy(agent)):
            for control, most in zip(controls, (1, None), strict=True):
                changed = fork(start, agent, 6, change, max_turns=most, **given)
                met = {pair.changed.id: pair.control.id for pair in pairs(tree.forks())}
                assert met[changed.record.id] == control.record.id


def test_arms_of_different_points_are_refused(forked):
    tree, *_, other = forked
    start = next(record for record in tree.forks())
    with pytest.raises(BadInput, match="different points"):
        recorded_pair(tree, start.id, other.record.id)
    with pytest.raises(BadInput, match="no fork"):
        recorded_arm(tree, "none")


def test_changes_in_words(forked):
    tree, policy, judge, point, *_ = forked
    other = fork(point, policy, 2, Replace(1, text=" think"), judge=judge)
    diff = recorded_arm(tree, other.record.id).diff
    assert (diff.what, diff.before, diff.after) == (other.diff.what, other.diff.before, other.diff.after)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "ban", "always": False, "text": "x"}, ("ban as the next token", "x", "")),
        ({"kind": "ban", "always": True, "ids": [1, 2]}, ("ban always", "tokens 1 2", "")),
        ({"kind": "force", "text": "x"}, ("force", "", "x")),
        ({"kind": "insert", "ids": [3]}, ("insert", "", "tokens 3")),
        ({"kind": "message", "index": 1, "content": "new"}, ("edit message 1", "", "new")),
        ({"kind": "set", "values": {"temperature": 0}}, ("settings", "", "temperature=0")),
        ({"kind": "policy", "name": "other"}, ("policy", "", "other")),
        (
            {"kind": "compose", "changes": [{"kind": "remove", "tokens": 1}, {"kind": "force", "text": "x"}]},
            ("remove 1 token(s) + force", " guess | ", " | x"),
        ),
    ],
)
def test_every_kind_of_change_has_words(forked, change, said):
    diff = change_in_words(change, forked[3])
    assert (diff.what, diff.before, diff.after) == said
