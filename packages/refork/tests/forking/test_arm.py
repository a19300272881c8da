from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork.errors import BadInput, BadPoint, WrongTokenizer, WrongWeights
from refork.forking import Insert, Remove, compare, fork
from refork.forking.arm import prepare, run_jobs
from refork.growing.plant import plant_prompt
from refork.judge import MatchJudge
from refork.policies.base import Sampling
from refork.policies.scripted import ScriptedPolicy
from refork.tree.node import NewNode, Point
from refork.tree.tree import Tree
from support.chain import PLAIN, TABLE


def content(tree):
    """Everything stored, apart from times and the order of writing."""
    found = []
    for node in tree.walk():
        arrays = tuple(
            None if a is None else a.tobytes()
            for a in (node.tokens, node.logprobs, node.logprobs_t1, node.offsets)
        )
        found.append((node.id, node.parent, node.keep, node.kind, node.text, arrays, node.noise, node.fork))
    return sorted(found, key=lambda row: row[0])


def test_the_control_has_the_law_of_the_policy(start, policy, judge):
    # 4,000 draws of p = 0.55: outside 4.5 standard errors once in 150,000 seeds; the seed is fixed.
    arm = fork(start, policy, 4000, settings=PLAIN, judge=judge)
    assert np.mean(arm.values()) == pytest.approx(0.55, abs=4.5 * (0.55 * 0.45 / 4000) ** 0.5)


def test_a_fork_again_draws_nothing_new(tree, start, policy, judge):
    fork(start, policy, 20, settings=PLAIN, judge=judge)
    before = content(tree)
    again = fork(start, policy, 20, settings=PLAIN, judge=judge)
    assert again.tokens == 0
    assert len(again.draws) == 20
    assert content(tree) == before


def test_more_draws_extend_fewer(tree, start, policy, judge):
    few = fork(start, policy, 10, settings=PLAIN, judge=judge)
    more = fork(start, policy, 30, settings=PLAIN, judge=judge)
    assert more.values()[:10] == few.values()
    assert len(fork(start, policy, 10, settings=PLAIN, judge=judge).draws) == 10


@pytest.mark.parametrize(
    "order", [list(range(12)), list(range(11, -1, -1)), [5, 0, 11, 3, 1, 2, 4, 6, 7, 8, 9, 10]]
)
def test_any_order_and_any_batching_give_the_same_bytes(policy, judge, order):
    with Tree.memory() as whole, Tree.memory() as parts:
        fork(plant_prompt(whole, policy, "Well?"), policy, 12, settings=PLAIN, judge=judge)
        begin = plant_prompt(parts, policy, "Well?")
        for chunk in (order[:5], order[5:6], order[6:]):
            run_jobs([prepare(begin, policy, chunk, settings=PLAIN)], judge=judge)
        assert content(whole) == content(parts)


def test_draws_of_two_arms_pair_up(tree, start, policy, judge):
    base = fork(start, policy, 300, settings=PLAIN, judge=judge)
    same = fork(start, policy, 300, settings=PLAIN.but(max_tokens=9), judge=judge)
    assert base.record.id != same.record.id
    assert base.values() == same.values(), "a change without effect changes no draw"
    effect = compare(base, same)
    assert effect.paired
    assert effect.difference == 0


def test_another_seed_is_another_sample(start, policy, judge):
    one = fork(start, policy, 64, settings=PLAIN, judge=judge, seed=1)
    two = fork(start, policy, 64, settings=PLAIN, judge=judge, seed=2)
    assert one.values() != two.values()


def test_interrupted_work_is_finished_by_the_same_call(tmp_path, policy, judge):
    def stop(stage, done, total, *, tokens=None, waiting=None):
        if tokens:
            raise KeyboardInterrupt

    file = tmp_path / "t.db"
    with Tree.open(file) as tree:
        begin = plant_prompt(tree, policy, "Well?")
        with pytest.raises(KeyboardInterrupt):
            fork(begin, policy, 16, settings=PLAIN, judge=judge, progress=stop)
    with Tree.open(file) as tree, Tree.memory() as whole:
        begin = plant_prompt(tree, policy, "Well?")
        arm = fork(begin, policy, 16, settings=PLAIN, judge=judge)
        fork(plant_prompt(whole, policy, "Well?"), policy, 16, settings=PLAIN, judge=judge)
        assert len(arm.draws) == 16
        assert None not in arm.values()
        assert content(tree) == content(whole)


def test_settings_default_to_the_recorded_ones(tree, start, policy, judge):
    base = fork(start, policy, 4, settings=PLAIN.but(temperature=0.5), judge=judge)
    leaf = base.leaves()[0].leaf
    again = fork(tree.at(leaf, 1), policy, 4, judge=judge)
    assert Sampling.from_json(again.record.settings).temperature == 0.5


def test_a_resumed_turn_has_the_recorded_turns_limit(tree, policy):
    talk = ScriptedPolicy.from_chain({"": {" go": 1.0}, " go": {" go": 1.0}})
    begin = plant_prompt(tree, talk, "Well?")
    leaf = fork(begin, talk, 1, settings=Sampling(max_tokens=6)).leaves()[0].leaf
    assert leaf.length == 6
    arm = fork(tree.at(leaf, 4), talk, 1)
    assert arm.leaves()[0].leaf.length == 2


def test_bad_arguments_are_refused_and_leave_no_trace(tree, start, policy):
    before = tree.stats()
    with pytest.raises(BadInput, match="draws is 0"):
        fork(start, policy, 0, settings=PLAIN)
    with pytest.raises(BadPoint, match="belongs to no tree"):
        fork(Point(start.node, None), policy, 1, settings=PLAIN)
    assert tree.stats() == before


def test_points_beyond_the_step_are_refused(tree, start, policy):
    with pytest.raises(BadPoint):
        tree.at(start.node, start.node.length + 1)
    with pytest.raises(BadPoint):
        tree.at(start.node, -1)


def test_an_empty_prompt_is_refused(tree, policy):
    empty = tree.append([NewNode(kind="task", text="", tokens=policy.encode(""))])[0]
    with pytest.raises(BadInput, match="empty"):
        fork(tree.at(empty), policy, 1, settings=PLAIN)


def test_another_tokenizer_is_refused_unless_swapped(tree, start):
    other = ScriptedPolicy.from_replies(["right", "wrong"])
    with pytest.raises(WrongTokenizer, match="--change policy"):
        fork(start, other, 1, settings=PLAIN)


def test_other_weights_are_refused_inside_a_recorded_turn(tree, start, policy, judge):
    leaf = fork(start, policy, 1, settings=PLAIN, judge=judge).leaves()[0].leaf
    other = ScriptedPolicy.from_chain(TABLE | {"": {" think": 0.4, " guess": 0.6}})
    with pytest.raises(WrongWeights, match=policy.card.weights[:12]):
        fork(tree.at(leaf, 1), other, 1)
    assert len(fork(tree.at(leaf, 1), other, 1, any_weights=True).draws) == 1


def test_the_end_of_a_turn_needs_a_world(tree, start, policy, judge):
    leaf = fork(start, policy, 1, settings=PLAIN, judge=judge).leaves()[0].leaf
    with pytest.raises(BadPoint, match="no world to answer"):
        fork(tree.at(leaf), policy, 1)


def test_text_without_token_ids_is_rendered_by_a_token_policy(tree, policy):
    node = tree.append([NewNode(kind="task", text="only text")])[0]
    arm = fork(tree.at(node), policy, 1)
    start = arm.leaves()[0].steps[1].node
    assert (start.kind, start.extra["messages"]) == ("rewrite", [{"role": "user", "content": "only text"}])
    expected = policy.render([], np.zeros(0, np.int32), start.extra["messages"]).tokens
    np.testing.assert_array_equal(start.tokens, expected)


def test_ungraded_draws_are_not_zeros(start, policy):
    arm = fork(start, policy, 5, settings=PLAIN)
    assert arm.values() == [None] * 5
    with pytest.raises(BadInput, match="0 of 5 pairs"):
        compare(arm, arm)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_random_forks_of_random_forks_keep_the_tree_sound(data):
    policy = ScriptedPolicy.from_chain(TABLE)
    with Tree.memory() as tree:
        nodes = [plant_prompt(tree, policy, "Well?").node]
        for _ in range(data.draw(st.integers(1, 5))):
            node = data.draw(st.sampled_from(nodes))
            top = node.length - (node.kind == "action")
            token = data.draw(st.integers(0 if node.kind == "action" else node.length, max(top, 0)))
            point = tree.at(node, token)
            change = data.draw(st.sampled_from([None, Remove(1), Insert(text=" think")]))
            if isinstance(change, Remove) and (token < 1 or node.kind != "action"):
                change = None
            arm = fork(point, policy, 2, change, settings=PLAIN, judge=MatchJudge("right"))
            nodes += [trajectory.leaf for trajectory in arm.leaves()]
        assert list(tree.verify({policy.card.name: policy}, redraw=True)) == []
        for trajectory in tree.paths([n.id for n in nodes]):
            joined = np.concatenate([s.tokens for s in trajectory.context if s.tokens is not None])
            assert trajectory.tokens.tolist() == joined.tolist()
